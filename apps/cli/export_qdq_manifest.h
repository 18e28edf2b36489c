// manifest.json of a folder with graphs of fixed shapes: what a host must know to feed them, and how they were made.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "export_qdq.h"
#include "exporter/qdq/qdq.h"
#include "quant/quant.h"

namespace slm::cli {

inline constexpr const char *kWeightsFile = "weights.bin", *kHostFile = "host.safetensors";

using FileDigests = std::vector<std::pair<std::string, std::string>>;  // name of a file, SHA-256 of its bytes

struct QdqManifest {
  int context = 0;
  FileDigests source;
  FileDigests files;                           // of the folder: what no runtime of an NPU checks
  std::optional<quant::CalibrationText> text;  // absent: not calibrated
  std::vector<std::string> notes;
};

// Of the files that a model's weights and configuration are read from. Errors: kIo, kCancelled.
Result<FileDigests> DigestsOf(const model::Model& m, const Io& io);

nlohmann::ordered_json ManifestOf(const QdqManifest& m, const model::Model& model, const QdqRequest& r, const exporter::StaticModel& built);

}  // namespace slm::cli
