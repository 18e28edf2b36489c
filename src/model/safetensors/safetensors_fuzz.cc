// libFuzzer: any bytes as a safetensors file; every tensor's bytes are touched at both ends.
#include <vector>

#include "model/safetensors/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data), reinterpret_cast<const std::byte*>(data) + size);
  const auto file = slm::model::safetensors::Parse(bytes);
  if (!file.ok()) return 0;
  unsigned sum = 0;
  for (const auto& t : file.value().tensors)
    if (!t.data.empty()) sum += static_cast<unsigned>(t.data.front()) + static_cast<unsigned>(t.data.back());
  volatile unsigned sink = sum;
  (void)sink;
  return 0;
}
