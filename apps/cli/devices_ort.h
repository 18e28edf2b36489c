// What slm devices says about ONNX Runtime: its providers, and where it would run each node of an ONNX file.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "open_model.h"
#include "verb.h"

namespace slm::cli {

struct OrtDevicesOptions {
  OrtFlags flags;
  std::string place;            // ONNX file to place; empty: none
  std::string device = "auto";  // as in OpenOptions
  Fallback fallback = Fallback::kAllowed;
};

// Declares --ort, --ep-library, --ep-option, --place, --device, --no-fallback.
void AddOrtDevices(CLI::App& app, OrtDevicesOptions& options);

// {backend: "ort", version, api, path, providers: […]}; null when there is no library and no flag asks for one. Errors: OpenOrtRuntime's.
Result<nlohmann::ordered_json> DescribeOrt(const OrtDevicesOptions& options);
std::string OrtText(const nlohmann::ordered_json& ort);

// {model, nodes, providers: {name: n}, ops: […], notes: […]}. Errors: kLimit for --no-fallback, with the nodes named.
Result<nlohmann::ordered_json> PlaceOnnx(const OrtDevicesOptions& options);
std::string PlaceText(const nlohmann::ordered_json& place);

}  // namespace slm::cli
