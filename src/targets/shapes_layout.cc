// Shapes of operators that move values, and of those that make values from a shape. See shape_rules.h.
#include "targets/shape_rules.h"

namespace slm::targets::shapes {

namespace {
Dim Product(const Shape& s, size_t from, size_t to) {
  int64_t n = 1;
  for (size_t i = from; i < to; ++i)
    if (s[i].value < 0 || __builtin_mul_overflow(n, s[i].value, &n)) return {-1, ""};
  return Fixed(n);
}
}  // namespace

bool Transpose(Call& c) {
  if (!c.In(0)) return false;
  const Shape& in = c.In(0)->shape;
  Shape s;
  const onnx::Attribute* perm = c.n.node.Find("perm");
  if (perm && perm->ints.size() != in.size()) return false;
  for (size_t i = 0; i < in.size(); ++i) {
    size_t axis = in.size() - 1 - i;
    if (perm && !Axis(perm->ints[i], in.size(), axis)) return false;
    s.push_back(in[axis]);
  }
  return c.All(s);
}

bool Reshape(Call& c) {
  std::vector<int64_t> target;
  if (!c.List(1, "shape", target)) return false;
  Shape s;
  int rest = -1;
  int64_t known = 1;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && c.Int("allowzero", 0) == 0) {
      if (!c.In(0) || i >= c.In(0)->shape.size()) return false;
      s.push_back(c.In(0)->shape[i]);
    } else {
      s.push_back(target[i] < 0 ? Dim{-1, ""} : Fixed(target[i]));
    }
    if (target[i] < 0) rest = static_cast<int>(i);
    else if (s.back().value < 0 || __builtin_mul_overflow(known, s.back().value, &known)) known = 0;
  }
  if (rest >= 0 && c.In(0)) {
    const int64_t all = c.In(0)->n_values();
    if (all >= 0 && known > 0) s[static_cast<size_t>(rest)] = Fixed(all / known);
    // Open dimensions that are copied cancel out.
    Shape in = c.In(0)->shape;
    if (all < 0) {
      int64_t fixed_in = 1, fixed_out = 1;
      bool same = true;
      for (size_t i = 0; i < s.size(); ++i) {
        if (static_cast<int>(i) == rest) continue;
        if (s[i].value < 0) same &= i < in.size() && in[i].value < 0 && target[i] == 0;
        else if (__builtin_mul_overflow(fixed_out, s[i].value, &fixed_out)) same = false;
      }
      size_t open_in = 0, open_out = 0;
      for (const Dim& d : in) {
        if (d.value < 0) ++open_in;
        else if (__builtin_mul_overflow(fixed_in, d.value, &fixed_in)) same = false;
      }
      for (size_t i = 0; i < s.size(); ++i) open_out += static_cast<int>(i) != rest && s[i].value < 0;
      if (same && open_in == open_out && fixed_out > 0) s[static_cast<size_t>(rest)] = Fixed(fixed_in / fixed_out);
    }
  }
  return c.All(s);
}

bool Flatten(Call& c) {
  if (!c.In(0)) return false;
  const Shape& in = c.In(0)->shape;
  int64_t axis = c.Int("axis", 1);
  if (axis < 0) axis += static_cast<int64_t>(in.size());
  if (axis < 0 || axis > static_cast<int64_t>(in.size())) return false;
  return c.All({Product(in, 0, static_cast<size_t>(axis)), Product(in, static_cast<size_t>(axis), in.size())});
}

bool Squeeze(Call& c) {
  if (!c.In(0)) return false;
  const Shape& in = c.In(0)->shape;
  std::vector<int64_t> axes;
  const bool given = c.List(1, "axes", axes);
  if (!given && c.n.node.inputs.size() > 1) return false;
  Shape s;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool named = std::any_of(axes.begin(), axes.end(), [&](int64_t a) {
      size_t axis = 0;
      return Axis(a, in.size(), axis) && axis == i;
    });
    if (given ? !named : in[i].value != 1) s.push_back(in[i]);
  }
  return c.All(s);
}

bool Unsqueeze(Call& c) {
  std::vector<int64_t> axes;
  if (!c.In(0) || !c.List(1, "axes", axes)) return false;
  const size_t rank = c.In(0)->shape.size() + axes.size();
  std::vector<bool> added(rank);
  for (const int64_t a : axes) {
    size_t axis = 0;
    if (!Axis(a, rank, axis)) return false;
    added[axis] = true;
  }
  Shape s;
  size_t from = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (!added[i] && from >= c.In(0)->shape.size()) return false;
    s.push_back(added[i] ? Fixed(1) : c.In(0)->shape[from++]);
  }
  return c.All(s);
}

bool Concat(Call& c) {
  if (!c.In(0)) return false;
  Shape s = c.In(0)->shape;
  size_t axis = 0;
  if (!Axis(c.Int("axis", 0), s.size(), axis) || s.empty()) return false;
  for (size_t i = 1; i < c.n.node.inputs.size(); ++i) {
    const Value* v = c.In(i);
    if (!v || v->shape.size() != s.size()) return false;
    Dim& d = s[axis];
    if (d.value < 0 || v->shape[axis].value < 0 || __builtin_add_overflow(d.value, v->shape[axis].value, &d.value)) d = {-1, ""};
  }
  return c.All(s);
}

bool Split(Call& c) {
  if (!c.In(0) || c.In(0)->shape.empty()) return false;
  const Shape& in = c.In(0)->shape;
  size_t axis = 0;
  if (!Axis(c.Int("axis", 0), in.size(), axis)) return false;
  std::vector<int64_t> sizes;
  const bool given = c.List(1, "split", sizes);
  const int64_t n = static_cast<int64_t>(c.n.node.outputs.size());
  if (given && static_cast<int64_t>(sizes.size()) != n) return false;
  const int64_t each = n > 0 ? (in[axis].value + n - 1) / n : 0;
  for (int64_t i = 0; i < n; ++i) {
    Shape s = in;
    if (given) s[axis] = Fixed(sizes[static_cast<size_t>(i)]);
    else if (in[axis].value >= 0) s[axis] = Fixed(std::max<int64_t>(0, std::min(each, in[axis].value - i * each)));
    c.out.push_back(std::move(s));
  }
  return true;
}

bool Slice(Call& c) {
  if (!c.In(0)) return false;
  Shape s = c.In(0)->shape;
  std::vector<int64_t> starts, ends, axes, steps;
  if (!c.List(1, "starts", starts) || !c.List(2, "ends", ends) || starts.size() != ends.size()) return false;
  const bool some = c.List(3, "axes", axes);
  if (!some && c.n.node.inputs.size() > 3 && !c.n.node.inputs[3].empty()) return false;
  if (c.n.node.inputs.size() > 4 && !c.n.node.inputs[4].empty() && !c.Ints(4, steps)) return false;
  for (size_t i = 0; i < starts.size(); ++i) {
    size_t axis = i;
    if ((some && (i >= axes.size() || !Axis(axes[i], s.size(), axis))) || axis >= s.size()) return false;
    const int64_t step = i < steps.size() ? steps[i] : 1, size = s[axis].value;
    if (size < 0 || step == 0) {
      s[axis] = {-1, ""};
      continue;
    }
    const auto bound = [&](int64_t at) {
      if (at < 0) at = at < -size ? -1 : at + size;
      return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
    };
    const int64_t from = bound(starts[i]), to = bound(ends[i]), span = step > 0 ? to - from : from - to;
    const int64_t stride = step > 0 ? step : (step == INT64_MIN ? INT64_MAX : -step);
    s[axis] = Fixed(span <= 0 ? 0 : (span - 1) / stride + 1);
  }
  return c.All(s);
}

bool Expand(Call& c) {
  std::vector<int64_t> target;
  if (!c.In(0) || !c.Ints(1, target)) return false;
  Shape s = c.In(0)->shape;
  while (s.size() < target.size()) s.insert(s.begin(), Fixed(1));
  for (size_t k = 0; k < target.size(); ++k)
    if (const int64_t t = target[target.size() - 1 - k]; t != 1) s[s.size() - 1 - k] = Fixed(t);
  return c.All(s);
}

bool Tile(Call& c) {
  std::vector<int64_t> times;
  if (!c.In(0) || !c.Ints(1, times) || times.size() != c.In(0)->shape.size()) return false;
  Shape s = c.In(0)->shape;
  for (size_t i = 0; i < s.size(); ++i)
    if (s[i].value >= 0 && __builtin_mul_overflow(s[i].value, times[i], &s[i].value)) return false;
  return c.All(s);
}

bool Pad(Call& c) {
  std::vector<int64_t> pads, axes;
  if (!c.In(0) || !c.List(1, "pads", pads)) return false;
  Shape s = c.In(0)->shape;
  const bool some = c.n.node.inputs.size() > 3 && !c.n.node.inputs[3].empty();
  if (some ? !c.Ints(3, axes) : pads.size() != 2 * s.size()) return false;
  const size_t n = pads.size() / 2;
  for (size_t i = 0; i < n; ++i) {
    size_t axis = i;
    if (some && (i >= axes.size() || !Axis(axes[i], s.size(), axis))) return false;
    if (axis >= s.size()) return false;
    if (s[axis].value >= 0 && (__builtin_add_overflow(s[axis].value, pads[i], &s[axis].value) ||
                               __builtin_add_overflow(s[axis].value, pads[n + i], &s[axis].value)))
      return false;
  }
  return c.All(s);
}

bool Gather(Call& c) {
  if (!c.In(0) || !c.In(1)) return false;
  const Shape &data = c.In(0)->shape, &ids = c.In(1)->shape;
  size_t axis = 0;
  if (data.empty() || !Axis(c.Int(c.n.node.op_type == "Gather" ? "axis" : "gather_axis", 0), data.size(), axis)) return false;
  Shape s(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(axis));
  s.insert(s.end(), ids.begin(), ids.end());
  s.insert(s.end(), data.begin() + static_cast<std::ptrdiff_t>(axis) + 1, data.end());
  // Several codes in a byte stand in the last axis.
  if (c.n.node.op_type == "GatherBlockQuantized" && c.In(0)->type == onnx::ElementType::kUint8 && !s.empty() && s.back().value >= 0) {
    const int64_t bits = c.Int("bits", 4);
    if (bits < 1 || bits > 8 || __builtin_mul_overflow(s.back().value, 8 / bits, &s.back().value)) return false;
  }
  return c.All(s);
}

bool SameAsSecond(Call& c) { return c.In(1) && c.All(c.In(1)->shape); }

bool GatherNd(Call& c) {
  if (!c.In(0) || !c.In(1)) return false;
  const Shape &data = c.In(0)->shape, &ids = c.In(1)->shape;
  const int64_t batch = c.Int("batch_dims", 0);
  if (ids.empty() || ids.back().value < 0 || batch < 0 || batch > 64 || batch + ids.back().value > static_cast<int64_t>(data.size()))
    return false;
  Shape s(ids.begin(), ids.end() - 1);
  s.insert(s.end(), data.begin() + static_cast<std::ptrdiff_t>(batch + ids.back().value), data.end());
  return c.All(s);
}

bool ShapeOf(Call& c) {
  if (!c.In(0)) return false;
  return c.All({Fixed(reference::ShapeContent(c.n.node, c.In(0)->Dims()).size())});
}

bool Scalar(Call& c) { return c.All({}); }

bool ConstantOfShape(Call& c) {
  std::vector<int64_t> target;
  if (!c.Ints(0, target)) return false;
  Shape s;
  for (const int64_t d : target) s.push_back(Fixed(d));
  return c.All(s);
}

bool ConstantShape(Call& c) {
  const onnx::Attribute* v = c.n.node.Find("value");
  if (v && !v->tensors.empty()) {
    Shape s;
    for (const int64_t d : v->tensors[0].dims) s.push_back(Fixed(d));
    return c.All(s);
  }
  for (const char* list : {"value_ints", "value_floats"})
    if (const onnx::Attribute* a = c.n.node.Find(list)) return c.All({Fixed(static_cast<int64_t>(a->ints.size() + a->floats.size()))});
  return c.All({});
}

}  // namespace slm::targets::shapes
