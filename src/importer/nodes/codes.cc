// Activations that a graph rounds to whole numbers and turns back at once: own kernels compute with what they were before. What is rounded
// and then computed with as whole numbers is refused, since no operator takes such a value but the one that turns it back.
#include "importer/walk.h"

namespace slm::importer {
namespace {

// Scales, or zero points.
bool IsSame(const ValuePtr& a, const ValuePtr& b) {
  if (a == b) return true;
  if (!a || !b) return false;
  const auto x = ArrayOfFixed(*a), y = ArrayOfFixed(*b);
  return x.ok() && y.ok() && x.value()->dims == y.value()->dims && x.value()->f == y.value()->f && x.value()->i == y.value()->i;
}

}  // namespace

Result<Values> QuantizeNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr scale, c.In(1));
  const ValuePtr zero = c.Optional(2);
  if (v->kind == Kind::kIds || v->kind == Kind::kPast || v->kind == Kind::kCodes) return c.Refuse("of something that is no activation");
  if (scale->kind != Kind::kFixed || (zero && zero->kind != Kind::kFixed)) return c.Refuse("a scale that depends on the call");
  ValuePtr out = c.Make(Kind::kCodes, v->axes);
  out->of = v;
  out->quantized_by = {scale, zero};
  return Single(std::move(out));
}

Result<Values> DequantizeNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr scale, c.In(1));
  if (v->kind != Kind::kCodes || scale->kind != Kind::kFixed || (c.Optional(2) && c.in[2]->kind != Kind::kFixed))
    return c.Refuse("of something that the graph did not quantize: tokens, or a cache of whole numbers");
  if (!IsSame(scale, v->quantized_by[0]) || !IsSame(c.Optional(2), v->quantized_by[1]))
    return c.Refuse("a scale or zero point other than that of the QuantizeLinear");
  return Single(v->of);
}

}  // namespace slm::importer
