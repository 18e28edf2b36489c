// libFuzzer: any bytes as an ONNX decoder. What is taken has a graph that holds together, and every weight can be read.
#include "graph/graph.h"
#include "importer/decoder.h"
#include "onnx/onnx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm;
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data), reinterpret_cast<const std::byte*>(data) + size);
  auto m = onnx::ParseModel(bytes, "");
  if (!m.ok()) return 0;
  auto decoder = importer::InterpretDecoder(std::make_shared<const onnx::Model>(m.Take()), {.naming = {}, .longest = 16});
  if (!decoder.ok()) return 0;
  if (!graph::Verify(decoder.value().decoder.graph).ok()) __builtin_trap();
  float sum = 0;
  for (const model::Tensor& t : decoder.value().weights.Take())
    for (const float x : model::DequantizeAll(t)) sum += x;
  volatile float sink = sum;
  (void)sink;
  return 0;
}
