// Small functions of the door. See onnx.h.
#include "onnx/onnx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace slm::onnx {

int64_t Tensor::n_values() const {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

uint64_t StoredBytes(ElementType type, int64_t n) {
  const uint64_t bits = static_cast<uint64_t>(Info(type).bits), count = static_cast<uint64_t>(n);
  return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

const Attribute* Node::Find(std::string_view attribute) const {
  for (const Attribute& a : attributes)
    if (a.name == attribute) return &a;
  return nullptr;
}

int64_t Node::Int(std::string_view attribute, int64_t otherwise) const {
  const Attribute* a = Find(attribute);
  return a && a->ints.size() == 1 ? a->ints[0] : otherwise;
}

int64_t OpsetVersion(std::span<const Opset> opsets, std::string_view domain) {
  for (const Opset& o : opsets)
    if (o.domain == domain) return o.version;
  return 0;
}

std::string ShapeText(const std::vector<Dim>& shape) {
  std::vector<std::string> words;
  for (const Dim& d : shape) words.push_back(d.value >= 0 ? std::to_string(d.value) : d.symbol.empty() ? "?" : d.symbol);
  return fmt::format("[{}]", fmt::join(words, ", "));
}

std::string ShapeText(std::span<const int64_t> dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

}  // namespace slm::onnx
