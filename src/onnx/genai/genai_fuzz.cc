// libFuzzer: any bytes as genai_config.json; what it promises is looked at.
#include <set>

#include "onnx/genai/genai.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm::onnx;
  const auto c = ParseGenAiConfig({reinterpret_cast<const char*>(data), size});
  if (!c.ok()) return 0;
  if (c.value().files.empty() || (OnlyDecoder(c.value()) && OnlyPipeline(c.value()))) __builtin_trap();
  std::set<std::string> names;
  for (const GenAiStage& s : c.value().stages) {
    const std::set<std::string> outputs(s.outputs.begin(), s.outputs.end());
    if (s.file.empty() || !names.insert(s.name).second || outputs.size() != s.outputs.size()) __builtin_trap();
    for (const auto& [from, to] : s.forwarded)
      if (!outputs.contains(from) || to.empty()) __builtin_trap();
  }
  return 0;
}
