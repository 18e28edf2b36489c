// See ort_flags.h.
#include "ort_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "environment.h"

namespace slm::cli {
namespace {

// "A=B" split at the first '='; an empty key when there is none.
std::pair<std::string, std::string> Split(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos) return {};
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace

void AddOrtFlags(CLI::App& app, OrtFlags& f) {
  const char* group = "ONNX Runtime";
  app.add_option("--ort", f.runtime, "libonnxruntime.so, or a folder with it (default: SLM_ORT, then what ./dev ort fetched)")
      ->group(group);
  app.add_option("--ep-library", f.providers, "NAME=PATH: registers an execution provider's library; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  app.add_option("--ep-option", f.options, "KEY=VALUE, or PROVIDER:KEY=VALUE, for the provider that is taken; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  app.add_option("--power", f.power, "burst, balanced or low: speed against power, where the provider can choose (Qualcomm's, WebGPU's)")
      ->check(CLI::IsMember({"burst", "balanced", "low"}))
      ->group(group);
}

bool AnyLibrary(const OrtFlags& f) { return !f.runtime.empty() || !f.providers.empty() || !f.options.empty(); }

std::vector<std::string> DeviceList(const std::string& device) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& word) {
    if (!word.empty() && std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
  };
  for (size_t begin = 0; begin <= device.size();) {
    const size_t end = std::min(device.find(',', begin), device.size());
    const std::string word = device.substr(begin, end - begin);
    begin = end + 1;
    if (word != "auto") add(word);
    else
      for (const char* each : {"npu", "gpu", "cpu"}) add(each);
  }
  if (out.empty()) out.push_back("cpu");
  return out;
}

std::vector<std::string> OrtPlaces(const OrtFlags& flags) {
  if (!flags.runtime.empty()) return {flags.runtime};
  if (const std::string named = Environment("SLM_ORT"); !named.empty()) return {named};
  return {CacheFolder("onnxruntime"), "libonnxruntime.so.1"};
}

Result<std::shared_ptr<backend::ort::Runtime>> OpenOrtRuntime(const OrtFlags& flags, int n_threads) {
  backend::ort::RuntimeOptions options;
  options.places = OrtPlaces(flags);
  options.n_threads = n_threads;
  for (const std::string& text : flags.providers) {
    auto [name, path] = Split(text);
    if (name.empty() || path.empty())
      return Error(Code::kInvalidArgument, "--ep-library '" + text + "' is not NAME=PATH",
                   "as in --ep-library QNNExecutionProvider=libonnxruntime_providers_qnn.so");
    options.providers.push_back({std::move(name), std::move(path)});
  }
  return backend::ort::OpenRuntime(options);
}

Result<backend::ort::Choice> OrtChoice(const OrtFlags& flags, const std::string& device, Fallback fallback) {
  backend::ort::Choice choice;
  choice.devices = DeviceList(device);
  // "auto" asks for nothing in particular: what is not there is not missed.
  choice.absent = device == "auto" ? backend::ort::Absent::kExpected : backend::ort::Absent::kNoted;
  choice.rest = fallback == Fallback::kForbidden ? backend::ort::OnCpu::kForbidden : backend::ort::OnCpu::kAllowed;
  using backend::ort::Power;
  if (flags.power == "burst") choice.power = Power::kBurst;
  if (flags.power == "balanced") choice.power = Power::kBalanced;
  if (flags.power == "low") choice.power = Power::kLow;
  for (const std::string& text : flags.options) {
    auto [key, value] = Split(text);
    if (key.empty())
      return Error(Code::kInvalidArgument, "--ep-option '" + text + "' is not KEY=VALUE", "as in --ep-option backend_type=htp");
    const size_t colon = key.find(':');
    const std::string provider = colon == std::string::npos ? "" : key.substr(0, colon);
    choice.options.push_back({provider, colon == std::string::npos ? key : key.substr(colon + 1), std::move(value)});
  }
  return choice;
}

}  // namespace slm::cli
