// libFuzzer: any bytes as a model, whose open dimensions are fixed, legalized for two targets, and for one of few operators, which has most
// rewrites tried. What comes out can be written and read again.
#include <string_view>

#include "legalize/legalize.h"

namespace {
constexpr const char* kFew = R"({"schema": 1, "name": "few", "sources": {"fuzz": {"assumed": "few operators"}},
  "unlisted": {"reason": "not listed", "source": "fuzz"}, "operators": [
  {"op": ["Add", "Sub", "Mul", "Sqrt", "MatMul", "Where", "Gather", "Slice", "Concat", "Cast", "Transpose", "Reshape"], "source": "fuzz"}]})";
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm;
  const auto bytes = std::as_bytes(std::span(data, size));
  auto parsed = onnx::ParseModel(bytes, "");
  if (!parsed.ok()) return 0;
  legalize::Options options;
  for (const onnx::ValueInfo& v : parsed.value().graph.inputs)
    for (const onnx::Dim& d : v.type.shape)
      if (d.value < 0 && !d.symbol.empty()) options.dims[d.symbol] = 3;
  const auto model = std::make_shared<const onnx::Model>(parsed.Take());
  for (const std::string_view name : {"qnn-htp-v73", "webnn", "few"}) {
    const auto target = name == "few" ? targets::ParseTarget(kFew, "few") : targets::FindTarget(name);
    if (!target.ok()) __builtin_trap();
    const auto done = legalize::Legalize(model, target.value(), options);
    if (!done.ok()) continue;
    std::vector<std::byte> written;
    const auto keep = [&](std::span<const std::byte> b) {
      written.insert(written.end(), b.begin(), b.end());
      return Ok();
    };
    if (!onnx::WriteModel(done.value().model, {.external_from_bytes = UINT64_MAX, .data_name = "d"}, keep, keep).ok()) __builtin_trap();
    if (const auto again = onnx::ParseModel(written, ""); !again.ok()) __builtin_trap();
  }
  return 0;
}
