// Options of ONNX Runtime on the command line, and the runtime that they ask for.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/ort/ort.h"
#include "open_model.h"

namespace slm::cli {

// Declares --ort, --ep-library, --ep-option and --power.
void AddOrtFlags(CLI::App& app, OrtFlags& flags);

// Was --ort, --ep-library or --ep-option given?
bool AnyLibrary(const OrtFlags& flags);

// The entries of --device, best first; "auto" stands for npu, gpu, cpu.
std::vector<std::string> DeviceList(const std::string& device);

// Where the library is looked for: --ort, else the environment variable SLM_ORT, else the folder that `./dev ort` fills and the system's.
std::vector<std::string> OrtPlaces(const OrtFlags& flags);

// Errors: kInvalidArgument naming the flag, and OpenRuntime's.
Result<std::shared_ptr<backend::ort::Runtime>> OpenOrtRuntime(const OrtFlags& flags, int n_threads);
Result<backend::ort::Choice> OrtChoice(const OrtFlags& flags, const std::string& device, Fallback fallback);

}  // namespace slm::cli
