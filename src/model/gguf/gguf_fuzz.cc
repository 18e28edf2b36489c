// libFuzzer: any bytes as a GGUF file, through the container, the config, the vocabulary and the roles, and the first block
// row of every tensor that can be read.
#include <algorithm>
#include <vector>

#include "model/gguf/load.h"

using namespace slm::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data), reinterpret_cast<const std::byte*>(data) + size);
  for (const LoadWhat what : {LoadWhat::kContainer, LoadWhat::kTokenizerOnly, LoadWhat::kAll}) {
    auto file = gguf::Parse(bytes);
    if (!file.ok()) return 0;
    auto model = gguf::MakeModel(file.Take(), "fuzz", what);
    if (!model.ok()) continue;
    for (const Tensor& t : model.value()->tensors) {
      if (!t.foreign_type.empty() || t.packed_bytes > 0) continue;
      std::vector<float> out(std::min<size_t>(static_cast<size_t>(t.n_values()), 256));
      const int64_t n = static_cast<int64_t>(out.size()) / slm::Info(t.dtype).block * slm::Info(t.dtype).block;
      Dequantize(t.dtype, t.data, 0, n, out.data());
    }
  }
  return 0;
}
