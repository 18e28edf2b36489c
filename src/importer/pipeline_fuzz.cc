// libFuzzer: a genai_config.json and the graphs of its stages, parts of `data` with a length of four bytes before each. What is taken has a
// graph that holds together.
#include <cstring>

#include "graph/graph.h"
#include "importer/compose.h"
#include "importer/decoder.h"

namespace {

std::span<const std::byte> Next(std::span<const std::byte>& data) {
  uint32_t n = 0;
  if (data.size() < sizeof n) return {};
  std::memcpy(&n, data.data(), sizeof n);
  data = data.subspan(sizeof n);
  const std::span<const std::byte> part = data.first(std::min<size_t>(n, data.size()));
  data = data.subspan(part.size());
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace slm;
  std::span<const std::byte> data = std::as_bytes(std::span(bytes, size));
  const std::span<const std::byte> text = Next(data);
  const auto config = onnx::ParseGenAiConfig({reinterpret_cast<const char*>(text.data()), text.size()});
  if (!config.ok()) return 0;
  std::vector<importer::StageGraph> stages;
  for (const onnx::GenAiStage& stage : config.value().stages) {
    auto m = onnx::ParseModel(Next(data), "");
    if (!m.ok()) return 0;
    if (stage.on_token) stages.push_back({stage, std::make_shared<onnx::Model>(m.Take())});
  }
  const auto composed = importer::Compose(stages, config.value().names);
  if (!composed.ok()) return 0;
  const importer::Stated stated{
      .naming = config.value().names, .longest = 16, .n_kv_heads = 0, .head_dim = 0, .form = composed.value().form};
  const auto decoder = importer::InterpretDecoder(composed.value().model, stated);
  if (decoder.ok() && !graph::Verify(decoder.value().decoder.graph).ok()) __builtin_trap();
  return 0;
}
