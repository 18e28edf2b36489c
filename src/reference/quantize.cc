// QuantizeLinear, DequantizeLinear (per tensor, per axis, in blocks) and DynamicQuantizeLinear.
#include <cmath>

#include "reference/call.h"

namespace slm::reference {
namespace {

// Where the scale of a value lies.
struct Groups {
  Dims strides;       // over the values of x, into the scale
  int64_t axis = -1;  // -1: one scale for all
  int64_t block = 1;  // values along the axis that share a scale
};

Result<Groups> GroupsOf(const Call& c, const Array& x, const Array& scale) {
  Groups g;
  g.strides.assign(x.dims.size(), 0);
  const int64_t block = c.Int("block_size", 0);
  if (scale.size() == 1 && block == 0) return g;
  SLM_ASSIGN_OR_RETURN(g.axis, Axis(c.Int("axis", 1), x.dims.size()));
  const size_t axis = static_cast<size_t>(g.axis);
  if (block == 0) {
    if (scale.dims != Dims{x.dims[axis]}) return Wrong("the scale does not have one value for each place of the axis");
    g.strides[axis] = 1;
    return g;
  }
  Dims want = x.dims;
  if (block < 0) return Wrong("a negative block size");
  want[axis] = x.dims[axis] / block + (x.dims[axis] % block != 0);
  if (scale.dims != want) return Wrong("the scale does not have one value for each block");
  g.strides = Strides(want);
  g.block = block;
  return g;
}

// f(value, place of its scale)
template <class F>
void WalkGroups(const Array& x, const Groups& g, F f) {
  const Dims own = Strides(x.dims);
  for (int64_t k = 0; k < x.size(); ++k) {
    int64_t at = 0;
    for (size_t d = 0; d < x.dims.size(); ++d) {
      const int64_t index = k / own[d] % x.dims[d];
      at += (static_cast<int64_t>(d) == g.axis ? index / g.block : index) * g.strides[d];
    }
    f(k, at);
  }
}

// The nearest code, inside the type.
void SetCode(Array& y, int64_t at, double x, Saturate saturate) {
  if (IsFloat(y.type)) y.f[static_cast<size_t>(at)] = RoundTo(y.type, x, saturate);
  else Set(y, at, std::fmin(std::fmax(std::nearbyint(x), static_cast<double>(LowestOf(y.type))), static_cast<double>(HighestOf(y.type))));
}

}  // namespace

Result<Arrays> QuantizeLinear(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const Array* scale, c.In(1, Accept::kNumber));
  const Array* zero = c.Optional(2);
  SLM_ASSIGN_OR_RETURN(ElementType type, c.Type("output_dtype", zero ? zero->type : ElementType::kUint8));
  if (onnx::Info(type).bits > 16 || IsBool(type) || IsString(type)) return Refuse("codes of type " + std::string(onnx::Info(type).name));
  if (zero && (zero->size() != scale->size() || zero->type != type)) return Wrong("the zero point does not fit the scale");
  SLM_ASSIGN_OR_RETURN(const Groups g, GroupsOf(c, *x, *scale));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(type, x->dims));
  // The quotient is rounded to the type in which it is computed: that of the scale, unless "precision" says another.
  SLM_ASSIGN_OR_RETURN(ElementType precision, c.Type("precision", scale->type));
  if (!IsFloat(precision)) precision = ElementType::kFloat;
  const Saturate saturate = c.Int("saturate", 1) != 0 ? Saturate::kYes : Saturate::kNo;
  WalkGroups(*x, g, [&](int64_t k, int64_t at) {
    const double q = RoundTo(precision, Number(*x, k) / Number(*scale, at));
    SetCode(y, k, IsFloat(type) ? q : std::nearbyint(q) + (zero ? Number(*zero, at) : 0), saturate);
  });
  return One(std::move(y));
}

Result<Arrays> DequantizeLinear(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const Array* scale, c.In(1, Accept::kFloat));
  const Array* zero = c.Optional(2);
  if (zero && (zero->size() != scale->size() || zero->type != x->type)) return Wrong("the zero point does not fit");
  SLM_ASSIGN_OR_RETURN(const Groups g, GroupsOf(c, *x, *scale));
  SLM_ASSIGN_OR_RETURN(ElementType type, c.Type("output_dtype", scale->type));
  if (!IsFloat(type)) return Refuse("values of type " + std::string(onnx::Info(type).name));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(type, x->dims));
  WalkGroups(*x, g, [&](int64_t k, int64_t at) { Set(y, k, (Number(*x, k) - (zero ? Number(*zero, at) : 0)) * Number(*scale, at)); });
  return One(std::move(y));
}

Result<Arrays> DynamicQuantizeLinear(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  double low = 0, high = 0;  // the range always has zero
  for (const double v : x->f) low = std::min(low, v), high = std::max(high, v);
  const double scale = RoundTo(x->type, (high - low) / 255);
  const double zero = scale > 0 ? std::fmin(std::fmax(std::nearbyint(RoundTo(x->type, -low / scale)), 0), 255) : 0;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kUint8, x->dims));
  for (int64_t k = 0; k < x->size(); ++k)
    SetCode(y, k, scale > 0 ? std::nearbyint(RoundTo(x->type, x->f[static_cast<size_t>(k)] / scale)) + zero : zero, Saturate::kYes);
  return Arrays{std::move(y), Scalar(x->type, scale), Scalar(ElementType::kUint8, zero)};
}

}  // namespace slm::reference
