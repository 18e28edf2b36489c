// libFuzzer: any bytes as an ONNX model and as a tensor; each tensor's bytes are touched at both ends, and what was read is written again.
#include <vector>

#include "onnx/onnx.h"

namespace {

unsigned Touch(const slm::onnx::Tensor& t) {
  return t.data.empty() ? 0u : static_cast<unsigned>(t.data.front()) + static_cast<unsigned>(t.data.back());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm;
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data), reinterpret_cast<const std::byte*>(data) + size);
  unsigned sum = 0;
  if (const auto t = onnx::ParseTensor(bytes); t.ok()) sum += Touch(t.value().tensor);
  if (const auto m = onnx::ParseModel(bytes, ""); m.ok()) {
    for (const onnx::Tensor& t : m.value().graph.initializers) sum += Touch(t);
    const auto count = [&](std::span<const std::byte> part) {
      sum += static_cast<unsigned>(part.size());
      return Ok();
    };
    // What was read whole can be written and read again.
    std::vector<std::byte> message;
    const auto keep = [&](std::span<const std::byte> part) {
      message.insert(message.end(), part.begin(), part.end());
      return Ok();
    };
    if (!onnx::WriteModel(m.value(), {.external_from_bytes = UINT64_MAX, .data_name = "d"}, keep, count).ok()) __builtin_trap();
    if (!onnx::ParseModel(message, "").ok()) __builtin_trap();
  }
  volatile unsigned sink = sum;
  (void)sink;
  return 0;
}
