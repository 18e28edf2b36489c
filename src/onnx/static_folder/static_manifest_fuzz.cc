// libFuzzer: any bytes as the manifest of a folder of static graphs; what it promises is looked at.
#include "onnx/static_folder/static_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm::onnx;
  const auto m = ParseStaticManifest({reinterpret_cast<const char*>(data), size});
  if (!m.ok()) return 0;
  const StaticManifest& s = m.value();
  const auto layers = static_cast<size_t>(s.n_layers);
  if (s.graphs.empty() || s.graphs.back().tokens > s.graphs.front().tokens || s.graphs.front().tokens > s.context) __builtin_trap();
  if ((!s.key_scales.empty() && s.key_scales.size() != layers) || s.prefix_tokens.size() >= static_cast<size_t>(s.context))
    __builtin_trap();
  for (const int32_t t : s.prefix_tokens)
    if (t < 0 || t >= s.vocab_size) __builtin_trap();
  for (const StaticGraphInput& i : s.inputs)
    if (i.name.empty() || (i.rows != StaticGraphInput::Rows::kMask && i.table.empty())) __builtin_trap();
  return 0;
}
