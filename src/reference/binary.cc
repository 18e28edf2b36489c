// Operators of two or more inputs that are broadcast to each other.
#include <cmath>

#include "reference/call.h"

namespace slm::reference {
namespace {

struct Pair {
  const Array *a, *b;
  Dims dims;
};

Result<Pair> Pairs(const Call& c, Accept accept) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, accept));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, accept));
  SLM_ASSIGN_OR_RETURN(Dims dims, BroadcastShape(a->dims, b->dims));
  return Pair{a, b, std::move(dims)};
}

// floats(x, y) of doubles, ints(x, y) of 64-bit integers; both inputs of one type.
template <class Floats, class Ints>
Result<Array> Each(const Array& a, const Array& b, const Dims& dims, Floats floats, Ints ints) {
  if (a.type != b.type) return Wrong("inputs of different types");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(a.type, dims));
  Walk(dims, {BroadcastStrides(a.dims, dims), BroadcastStrides(b.dims, dims)}, [&](int64_t at, const Dims& from) {
    const size_t k = static_cast<size_t>(at), p = static_cast<size_t>(from[0]), q = static_cast<size_t>(from[1]);
    if (IsFloat(a.type)) y.f[k] = RoundTo(a.type, floats(a.f[p], b.f[q]));
    else y.i[k] = WrapTo(a.type, ints(a.i[p], b.i[q]));
  });
  return y;
}

template <class Floats, class Ints>
Result<Arrays> Arithmetic(const Call& c, Floats floats, Ints ints) {
  SLM_ASSIGN_OR_RETURN(const Pair p, Pairs(c, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(Array y, Each(*p.a, *p.b, p.dims, floats, ints));
  return One(std::move(y));
}

template <class Test>  // test(a, p, b, q): values of two arrays
Result<Arrays> Comparison(const Call& c, Accept accept, Test test) {
  SLM_ASSIGN_OR_RETURN(const Pair p, Pairs(c, accept));
  if (p.a->type != p.b->type) return Wrong("inputs of different types");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kBool, p.dims));
  Walk(p.dims, {BroadcastStrides(p.a->dims, p.dims), BroadcastStrides(p.b->dims, p.dims)}, [&](int64_t at, const Dims& from) {
    y.i[static_cast<size_t>(at)] = test(*p.a, static_cast<size_t>(from[0]), *p.b, static_cast<size_t>(from[1])) ? 1 : 0;
  });
  return One(std::move(y));
}

bool LessThan(const Array& a, size_t p, const Array& b, size_t q) {
  return IsFloat(a.type) ? a.f[p] < b.f[q] : Less64(a.type, a.i[p], b.i[q]);
}

bool EqualTo(const Array& a, size_t p, const Array& b, size_t q) {
  return IsFloat(a.type) ? a.f[p] == b.f[q] : IsString(a.type) ? a.s[p] == b.s[q] : a.i[p] == b.i[q];
}

bool HasZero(const Array& a) {
  for (const int64_t v : a.i)
    if (v == 0) return true;
  return false;
}

// The quotient's magnitude is cut, as in C; the type is unsigned where the 64 bits are.
int64_t Quotient(ElementType t, int64_t x, int64_t y) {
  if (t == ElementType::kUint64) return static_cast<int64_t>(static_cast<uint64_t>(x) / static_cast<uint64_t>(y));
  return y == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(x)) : x / y;
}

int64_t Remainder(ElementType t, int64_t x, int64_t y) {
  if (t == ElementType::kUint64) return static_cast<int64_t>(static_cast<uint64_t>(x) % static_cast<uint64_t>(y));
  return y == -1 ? 0 : x % y;
}

int64_t IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1, b = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e > 0; e >>= 1, b *= b)
    if (e & 1) result *= b;
  return static_cast<int64_t>(result);
}

// Any number of inputs, folded from the left.
template <class Floats, class Ints>
Result<Arrays> Fold(const Call& c, Accept accept, Floats floats, Ints ints) {
  SLM_ASSIGN_OR_RETURN(const Array* first, c.In(0, accept));
  Array sum = *first;
  for (size_t k = 1; k < c.n_inputs(); ++k) {
    SLM_ASSIGN_OR_RETURN(const Array* next, c.In(k, accept));
    SLM_ASSIGN_OR_RETURN(const Dims dims, BroadcastShape(sum.dims, next->dims));
    SLM_ASSIGN_OR_RETURN(Array joined, Each(sum, *next, dims, floats, ints));
    sum = std::move(joined);
  }
  return One(std::move(sum));
}

template <class F>  // f(values, t) of 64-bit integers
auto Typed(const Call& c, F f) {
  const ElementType t = c.Optional(0) ? c.Optional(0)->type : ElementType::kUndefined;
  return [t, f](int64_t x, int64_t y) { return f(t, x, y); };
}

double NanOr(double x, double y, double otherwise) { return std::isnan(x) ? x : std::isnan(y) ? y : otherwise; }

int64_t Sum64(int64_t x, int64_t y) { return static_cast<int64_t>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y)); }

}  // namespace

Result<Arrays> Add(const Call& c) {
  return Arithmetic(
      c, [](double x, double y) { return x + y; }, Sum64);
}

Result<Arrays> Sub(const Call& c) {
  return Arithmetic(
      c, [](double x, double y) { return x - y; },
      [](int64_t x, int64_t y) { return static_cast<int64_t>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y)); });
}

Result<Arrays> Mul(const Call& c) {
  return Arithmetic(
      c, [](double x, double y) { return x * y; },
      [](int64_t x, int64_t y) { return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y)); });
}

Result<Arrays> Div(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kNumber));
  if (HasZero(*b)) return Wrong("integer division by zero");
  return Arithmetic(
      c, [](double x, double y) { return x / y; }, Typed(c, Quotient));
}

Result<Arrays> Mod(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kNumber));
  if (HasZero(*b)) return Wrong("integer division by zero");
  if (c.Int("fmod", 0) == 1)
    return Arithmetic(
        c, [](double x, double y) { return std::fmod(x, y); }, Typed(c, Remainder));
  // The remainder has the sign of the divisor, as in Python.
  const auto floats = [](double x, double y) {
    const double r = std::fmod(x, y);
    return r == 0 ? std::copysign(0.0, y) : (r < 0) != (y < 0) ? r + y : r;
  };
  const auto ints = [](ElementType t, int64_t x, int64_t y) {
    const int64_t r = Remainder(t, x, y);
    return t != ElementType::kUint64 && r != 0 && (r < 0) != (y < 0) ? r + y : r;
  };
  return Arithmetic(c, floats, Typed(c, ints));
}

Result<Arrays> Pow(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Pair p, Pairs(c, Accept::kNumber));  // the result has the type of the base
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(p.a->type, p.dims));
  const bool whole = !IsFloat(p.a->type) && !IsFloat(p.b->type);
  Walk(p.dims, {BroadcastStrides(p.a->dims, p.dims), BroadcastStrides(p.b->dims, p.dims)}, [&](int64_t at, const Dims& from) {
    if (whole)
      y.i[static_cast<size_t>(at)] =
          WrapTo(y.type, IntegerPower(p.a->i[static_cast<size_t>(from[0])], p.b->i[static_cast<size_t>(from[1])]));
    else Set(y, at, std::pow(Number(*p.a, from[0]), Number(*p.b, from[1])));
  });
  return One(std::move(y));
}

Result<Arrays> Max(const Call& c) {
  return Fold(
      c, Accept::kNumber, [](double x, double y) { return NanOr(x, y, x < y ? y : x); },
      Typed(c, [](ElementType t, int64_t x, int64_t y) { return Less64(t, x, y) ? y : x; }));
}

Result<Arrays> Min(const Call& c) {
  return Fold(
      c, Accept::kNumber, [](double x, double y) { return NanOr(x, y, y < x ? y : x); },
      Typed(c, [](ElementType t, int64_t x, int64_t y) { return Less64(t, y, x) ? y : x; }));
}

Result<Arrays> Sum(const Call& c) {
  return Fold(
      c, Accept::kFloat, [](double x, double y) { return x + y; }, Sum64);
}

Result<Arrays> Mean(const Call& c) {
  SLM_ASSIGN_OR_RETURN(Arrays sum, Sum(c));
  for (double& v : sum[0].f) v = RoundTo(sum[0].type, v / static_cast<double>(c.n_inputs()));
  return sum;
}

Result<Arrays> Clip(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  Array y = *x;
  // Bounds were attributes before operator set 11.
  for (int64_t k = 0; k < y.size() && (c.Has("min") || c.Has("max")); ++k) {
    if (c.Has("min") && Number(y, k) < c.Float("min", 0)) Set(y, k, c.Float("min", 0));
    if (c.Has("max") && Number(y, k) > c.Float("max", 0)) Set(y, k, c.Float("max", 0));
  }
  for (const size_t bound : {size_t{1}, size_t{2}}) {  // the upper bound wins
    const Array* b = c.Optional(bound);
    if (!b) continue;
    if (b->type != x->type || b->size() != 1) return Wrong("a bound that is not one value of the input's type");
    for (int64_t k = 0; k < y.size(); ++k) {
      const bool beyond = bound == 1 ? LessThan(y, static_cast<size_t>(k), *b, 0) : LessThan(*b, 0, y, static_cast<size_t>(k));
      if (beyond) CopyValue(*b, 0, y, k);
    }
  }
  return One(std::move(y));
}

Result<Arrays> And(const Call& c) {
  return Comparison(c, Accept::kBool, [](const Array& a, size_t p, const Array& b, size_t q) { return (a.i[p] & b.i[q]) != 0; });
}
Result<Arrays> Or(const Call& c) {
  return Comparison(c, Accept::kBool, [](const Array& a, size_t p, const Array& b, size_t q) { return (a.i[p] | b.i[q]) != 0; });
}
Result<Arrays> Xor(const Call& c) {
  return Comparison(c, Accept::kBool, [](const Array& a, size_t p, const Array& b, size_t q) { return a.i[p] != b.i[q]; });
}
Result<Arrays> Equal(const Call& c) { return Comparison(c, Accept::kAny, EqualTo); }
Result<Arrays> Less(const Call& c) { return Comparison(c, Accept::kNumber, LessThan); }
Result<Arrays> Greater(const Call& c) {
  return Comparison(c, Accept::kNumber, [](const Array& a, size_t p, const Array& b, size_t q) { return LessThan(b, q, a, p); });
}
Result<Arrays> LessOrEqual(const Call& c) {
  return Comparison(c, Accept::kNumber,
                    [](const Array& a, size_t p, const Array& b, size_t q) { return LessThan(a, p, b, q) || EqualTo(a, p, b, q); });
}
Result<Arrays> GreaterOrEqual(const Call& c) {
  return Comparison(c, Accept::kNumber,
                    [](const Array& a, size_t p, const Array& b, size_t q) { return LessThan(b, q, a, p) || EqualTo(a, p, b, q); });
}

Result<Arrays> Where(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* condition, c.In(0, Accept::kBool));
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(1));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(2));
  if (a->type != b->type) return Wrong("inputs of different types");
  SLM_ASSIGN_OR_RETURN(Dims dims, BroadcastShape(a->dims, b->dims));
  SLM_ASSIGN_OR_RETURN(dims, BroadcastShape(dims, condition->dims));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(a->type, dims));
  Walk(dims, {BroadcastStrides(condition->dims, dims), BroadcastStrides(a->dims, dims), BroadcastStrides(b->dims, dims)},
       [&](int64_t at, const Dims& from) {
         const bool first = condition->i[static_cast<size_t>(from[0])] != 0;
         CopyValue(first ? *a : *b, first ? from[1] : from[2], y, at);
       });
  return One(std::move(y));
}

}  // namespace slm::reference
