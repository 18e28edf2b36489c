// Calibration of a model layer by layer: what its matrices read decides how they are rounded. The text passes through the float layers
// one after another; a layer is in f32 only while it is in work, and of the text only the hidden states between two layers are kept.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/block_runner.h"
#include "graph/graph.h"
#include "model/model.h"
#include "quant/activation_range.h"
#include "quant/gptq.h"
#include "quant/layer_weights.h"
#include "quant/matrix.h"
#include "quant/quant.h"
#include "quant/stored_form.h"

namespace slm::quant {

// A tensor of the layer as it will be stored.
struct StoredTensor {
  std::vector<std::byte> bytes;
  CodedRows coded;       // of a grid, in place of bytes
  double error = 0;      // TensorReport::error
  float input_most = 0;  // of static activations, the value of the largest code
};

// What is calibrated, and for which writer.
struct CalibrationTask {
  Recipe recipe;
  std::map<const model::Tensor*, StoredForm> matrices;  // that are rounded; the others stay as they are
  VectorTypes vectors = VectorTypes::kF32;
  backend::InputRounding inputs = backend::InputRounding::kNone;  // what products will read
  std::optional<RangeRule> range = {};                            // of kStatic; none: of each layer the one with the least error
};
CalibrationTask TaskOf(const Plan& plan);

struct CalibratedLayer {
  std::map<const model::Tensor*, StoredTensor> tensors;  // those that differ from what rounding without data would store
  LayerReport report;
};

class Calibration {
 public:
  // `m` and `text` outlive it. `cancelled` is asked between sequences and matrices, may be empty. Errors: kInvalidArgument (no
  // tokens, a token outside the vocabulary), and what the graph says; Next and Skip also kCancelled.
  static Result<std::unique_ptr<Calibration>> Start(std::shared_ptr<const model::Model> m, CalibrationTask task,
                                                    const CalibrationText& text, const Machine& machine, std::function<bool()> cancelled);
  virtual ~Calibration() = default;
  // The next layer, from 0 on.
  virtual Result<CalibratedLayer> Next() = 0;
  // The next layer is rounded already: only moves the text through it, as Next does. As slow as Next where layers read what is stored.
  virtual Status Skip() = 0;
};

inline constexpr int64_t kSampleTokens = 1024;  // that are kept of each activation that is rounded

// Bytes of memory that a calibration takes at most.
uint64_t CalibrationBytes(const model::Model& m, const Recipe& recipe, int64_t tokens, int64_t longest, int n_threads);

}  // namespace slm::quant
