// Operators on the bits of integers.
#include "reference/call.h"

namespace slm::reference {
namespace {

// f(x, y) of 64-bit integers, broadcast.
template <class F>
Result<Arrays> OfPairs(const Call& c, F f) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kInteger));
  if (a->type != b->type) return Wrong("inputs of different types");
  SLM_ASSIGN_OR_RETURN(const Dims dims, BroadcastShape(a->dims, b->dims));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(a->type, dims));
  Walk(dims, {BroadcastStrides(a->dims, dims), BroadcastStrides(b->dims, dims)}, [&](int64_t at, const Dims& from) {
    y.i[static_cast<size_t>(at)] = WrapTo(a->type, f(a->i[static_cast<size_t>(from[0])], b->i[static_cast<size_t>(from[1])]));
  });
  return One(std::move(y));
}

}  // namespace

Result<Arrays> BitwiseAnd(const Call& c) {
  return OfPairs(c, [](int64_t x, int64_t y) { return x & y; });
}
Result<Arrays> BitwiseOr(const Call& c) {
  return OfPairs(c, [](int64_t x, int64_t y) { return x | y; });
}
Result<Arrays> BitwiseXor(const Call& c) {
  return OfPairs(c, [](int64_t x, int64_t y) { return x ^ y; });
}

Result<Arrays> BitwiseNot(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kInteger));
  Array y = *x;
  for (int64_t& v : y.i) v = WrapTo(y.type, ~v);
  return One(std::move(y));
}

// A shift by less than nothing, or by all bits, leaves what the sign alone would.
Result<Arrays> BitShift(const Call& c) {
  const std::string direction = c.Text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") return Wrong("direction '" + direction + "'");
  const ElementType type = c.Optional(0) ? c.Optional(0)->type : ElementType::kUint8;
  const int bits = onnx::Info(type).bits;
  const bool is_signed = onnx::Info(type).kind == onnx::ElementKind::kSigned, left = direction == "LEFT";
  return OfPairs(c, [=](int64_t x, int64_t y) {
    const int64_t gone = is_signed && !left && x < 0 ? -1 : 0;
    const uint64_t by = static_cast<uint64_t>(y);
    if (by >= static_cast<uint64_t>(bits)) return gone;  // a negative one is large as well
    if (left) return static_cast<int64_t>(static_cast<uint64_t>(x) << by);
    return is_signed ? x >> by : static_cast<int64_t>(static_cast<uint64_t>(x) >> by);
  });
}

}  // namespace slm::reference
