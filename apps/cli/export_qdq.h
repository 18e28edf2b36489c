// slm export --to qdq: a folder with graphs of fixed shapes for compilers of NPUs.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "calibration_text.h"
#include "model/model.h"
#include "verb.h"

namespace slm::cli {

struct QdqRequest {
  std::string out;                 // the folder; new or empty
  std::string weights = "w4-g32";  // a name of kQdqWeights
  int context = 0;                 // slots of the cache; 0: 2048, or the model's own where that is less
  int chunk = 64;                  // tokens of the prefill graph
  int decode = 1;                  // of the decode graph
  std::string keys = "rows";       // how keys are rotated: a name of kKeyRotations
  int activation_bits = 16;
  double margin = 1.5;  // of ranges
  int n_threads = 0;
  CalibrationOptions calibration;
};
inline constexpr const char* kKeyRotations[] = {"rows", "columns"};
inline constexpr const char* kQdqWeights[] = {"w4-g32", "w4-channel", "w8", "f32"};

// The recipe `npu` (quant/static/static.h) with what the request changes: as the manifest has it.
nlohmann::ordered_json QdqRecipeJson(const QdqRequest& request);

// Errors: those of calibration and the exporter; kUnsupported for activations of 8 bits; kInvalidArgument, kIo.
Result<int> ExportQdq(std::shared_ptr<model::Model> model, const QdqRequest& request, Io& io);

}  // namespace slm::cli
