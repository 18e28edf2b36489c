// libFuzzer: any bytes as a model; each of its nodes is run alone on the constants that it reads. The answer is outputs that hold together,
// or an error. Sizes between some and very many are left out: they cost time and are no other case.
#include <algorithm>
#include <map>

#include "reference/reference.h"

namespace {

constexpr int64_t kSome = 64, kVeryMany = int64_t{1} << 40;

bool CostsTime(const std::vector<int64_t>& values) {
  return std::any_of(values.begin(), values.end(), [](int64_t v) { return (v > kSome || v < -kSome) && v < kVeryMany && v > -kVeryMany; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm;
  const auto m = onnx::ParseModel(std::as_bytes(std::span(data, size)), "");
  if (!m.ok()) return 0;
  std::map<std::string, reference::Array> constants;
  for (const onnx::Tensor& t : m.value().graph.initializers) {
    auto a = reference::FromTensor(t);
    if (!a.ok() || (onnx::Info(t.type).bits == 64 && CostsTime(a.value().i))) return 0;
    constants.insert_or_assign(t.name, a.Take());
  }
  for (const onnx::Node& n : m.value().graph.nodes) {
    if (std::any_of(n.attributes.begin(), n.attributes.end(), [](const onnx::Attribute& a) { return CostsTime(a.ints); })) continue;
    std::vector<const reference::Array*> inputs;
    for (const std::string& name : n.inputs) {
      const auto at = constants.find(name);
      inputs.push_back(name.empty() || at == constants.end() ? nullptr : &at->second);
    }
    const auto made = reference::RunNode(n, m.value().opsets, inputs);
    if (!made.ok()) continue;
    for (const reference::Array& a : made.value()) {
      if (a.type == onnx::ElementType::kUndefined) continue;
      int64_t values = 1;
      for (const int64_t d : a.dims) values *= d;
      if (values != a.size()) __builtin_trap();
    }
  }
  return 0;
}
