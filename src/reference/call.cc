// See call.h.
#include "reference/call.h"

namespace slm::reference {
namespace {

bool Accepts(Accept accept, ElementType t) {
  switch (accept) {
    case Accept::kAny: return true;
    case Accept::kFloat: return IsFloat(t);
    case Accept::kInteger: return IsInteger(t);
    case Accept::kIndex: return t == ElementType::kInt32 || t == ElementType::kInt64;
    case Accept::kNumber: return IsFloat(t) || IsInteger(t);
    case Accept::kOrdered: return IsFloat(t) || IsInteger(t) || IsBool(t);
    case Accept::kBool: return IsBool(t);
  }
  return false;
}

}  // namespace

Result<const Array*> Call::In(size_t at, Accept accept) const {
  const Array* a = Optional(at);
  if (!a) return Wrong(fmt::format("input {} is missing", at));
  if (!Accepts(accept, a->type)) return Refuse(fmt::format("input {} of type {}", at, onnx::Info(a->type).name));
  return a;
}

Result<std::vector<int64_t>> Call::Ints(size_t at) const {
  SLM_ASSIGN_OR_RETURN(const Array* a, In(at, Accept::kIndex));
  return a->i;
}

Result<std::vector<int64_t>> Call::IntsOr(size_t at, std::vector<int64_t> otherwise) const {
  if (!Optional(at)) return otherwise;
  return Ints(at);
}

Status Call::Count(int64_t a, int64_t b) const {
  SLM_RETURN_IF_ERROR(CheckSteps(a, b));
  steps_ += a * b;
  return Ok();
}

double Call::Float(std::string_view name, double otherwise) const {
  const onnx::Attribute* a = node_.Find(name);
  return a && a->floats.size() == 1 ? a->floats[0] : otherwise;
}

std::string Call::Text(std::string_view name, std::string otherwise) const {
  const onnx::Attribute* a = node_.Find(name);
  return a && a->strings.size() == 1 ? a->strings[0] : otherwise;
}

std::vector<int64_t> Call::IntList(std::string_view name) const {
  const onnx::Attribute* a = node_.Find(name);
  return a ? a->ints : std::vector<int64_t>();
}

Result<ElementType> Call::Type(std::string_view name, ElementType otherwise) const {
  if (!Has(name)) return otherwise;
  const int64_t number = Int(name, 0);
  if (number == 0) return otherwise;  // as ONNX's own defaults spell "not given"
  if (!onnx::IsElementType(number)) return Wrong(fmt::format("element type {}", number));
  const auto type = static_cast<ElementType>(number);
  if (onnx::Info(type).kind == onnx::ElementKind::kComplex) return Refuse("type " + std::string(onnx::Info(type).name));
  return type;
}

}  // namespace slm::reference
