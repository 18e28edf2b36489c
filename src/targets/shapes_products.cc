// Shapes of operators that compute: element by element, products, reductions, attention. See shape_rules.h.
#include "targets/shape_rules.h"

namespace slm::targets::shapes {

bool Same(Call& c) { return c.In(0) && c.All(c.In(0)->shape); }

bool Broadcast(Call& c) {
  Shape s;
  for (size_t i = 0; i < c.n.node.inputs.size(); ++i) {
    const Value* v = c.In(i);
    if (!v) return false;
    Shape t = v->shape;
    if (t.size() > s.size()) std::swap(s, t);
    for (size_t k = 0; k < t.size(); ++k) {
      Dim& a = s[s.size() - 1 - k];
      const Dim& b = t[t.size() - 1 - k];
      if (a.value == 1 || (a.value < 0 && b.value > 1)) a = b;
    }
  }
  return c.All(s);
}

namespace {

bool Product(const Shape& a, const Shape& b, Shape& s) {
  if (a.size() < 2 || b.size() < 2) return false;
  s = a.size() >= b.size() ? a : b;
  const Shape& other = a.size() >= b.size() ? b : a;
  for (size_t k = 2; k < other.size(); ++k)
    if (Dim& d = s[s.size() - 1 - k]; d.value == 1) d = other[other.size() - 1 - k];
  s[s.size() - 2] = a[a.size() - 2];
  s[s.size() - 1] = b[b.size() - 1];
  return true;
}

}  // namespace

bool MatMul(Call& c) {
  Shape s;
  return c.In(0) && c.In(1) && Product(c.In(0)->shape, c.In(1)->shape, s) && c.All(s);
}

bool FusedMatMul(Call& c) {
  if (!c.In(0) || !c.In(1) || c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0) return false;
  Shape a = c.In(0)->shape, b = c.In(1)->shape;
  for (auto [shape, name] : {std::pair{&a, "transA"}, std::pair{&b, "transB"}})
    if (shape->size() > 1 && c.Int(name, 0) != 0) std::swap((*shape)[shape->size() - 1], (*shape)[shape->size() - 2]);
  Shape s;
  return Product(a, b, s) && c.All(s);
}

bool Gemm(Call& c) {
  if (!c.In(0) || !c.In(1) || c.In(0)->shape.size() != 2 || c.In(1)->shape.size() != 2) return false;
  return c.All({c.In(0)->shape[c.Int("transA", 0) != 0 ? 1 : 0], c.In(1)->shape[c.Int("transB", 0) != 0 ? 0 : 1]});
}

bool MatMulNBits(Call& c) {
  if (!c.In(0) || c.In(0)->shape.empty()) return false;
  Shape s = c.In(0)->shape;
  s.back() = Fixed(c.Int("N", -1));
  return c.All(s);
}

bool Reduce(Call& c) {
  if (!c.In(0)) return false;
  const Shape& in = c.In(0)->shape;
  std::vector<int64_t> axes;
  const bool arg = c.n.node.op_type.starts_with("Arg");
  if (arg) axes = {c.Int("axis", 0)};
  else if (!c.List(1, "axes", axes) && c.n.node.inputs.size() > 1 && !c.n.node.inputs[1].empty()) return false;
  if (axes.empty() && c.Int("noop_with_empty_axes", 0) != 0) return c.All(in);
  std::vector<bool> gone(in.size(), axes.empty());
  for (const int64_t a : axes) {
    size_t axis = 0;
    if (in.empty() || !Axis(a, in.size(), axis)) return false;
    gone[axis] = true;
  }
  Shape s;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!gone[i]) s.push_back(in[i]);
    else if (c.Int("keepdims", 1) != 0) s.push_back(Fixed(1));
  }
  return c.All(s);
}

bool TopK(Call& c) {
  std::vector<int64_t> k;
  if (!c.In(0) || !c.Ints(1, k) || k.size() != 1) return false;
  Shape s = c.In(0)->shape;
  size_t axis = 0;
  if (s.empty() || !Axis(c.Int("axis", -1), s.size(), axis)) return false;
  s[axis] = Fixed(k[0]);
  return c.All(s);
}

// com.microsoft's Attention: input [B, T, D], the weights of queries, keys and values side by side.
bool PackedAttention(Call& c) {
  if (!c.In(0) || !c.In(1) || c.In(0)->shape.size() != 3 || c.In(1)->shape.size() != 2) return false;
  const Shape& x = c.In(0)->shape;
  const onnx::Attribute* widths = c.n.node.Find("qkv_hidden_sizes");
  const Dim& all = c.In(1)->shape[1];
  const Dim width = widths && widths->ints.size() == 3 ? Fixed(widths->ints[2]) : all.value < 0 ? Dim{-1, ""} : Fixed(all.value / 3);
  c.out = {{x[0], x[1], width}};
  return true;
}

bool Attention(Call& c) {  // ONNX: 3-D [B, T, H * D] or 4-D [B, H, T, D]
  if (!c.n.node.domain.empty()) return PackedAttention(c);
  if (!c.In(0) || !c.In(1) || !c.In(2)) return false;
  const Shape &q = c.In(0)->shape, &k = c.In(1)->shape, &v = c.In(2)->shape;
  Shape y = q;
  const int64_t heads = c.Int("q_num_heads", 0), kv_heads = c.Int("kv_num_heads", 0);
  const auto present = [&](const Shape& x, size_t past) {
    Shape s = x;
    if (x.size() == 3 && kv_heads > 0) s = {x[0], Fixed(kv_heads), x[1], x[2].value < 0 ? Dim{-1, ""} : Fixed(x[2].value / kv_heads)};
    if (s.size() == 4 && c.In(past) && c.In(past)->shape.size() == 4) {
      const Dim& before = c.In(past)->shape[2];
      if (s[2].value < 0 || before.value < 0 || __builtin_add_overflow(s[2].value, before.value, &s[2].value)) s[2] = {-1, ""};
    }
    return s;
  };
  if (q.size() == 3 && heads > 0 && kv_heads > 0 && v.size() == 3 && v[2].value >= 0) {
    if (__builtin_mul_overflow(v[2].value / kv_heads, heads, &y[2].value)) return false;
  } else if (q.size() == 4 && v.size() == 4) {
    y[3] = v[3];
  }
  c.out = {y, present(k, 4), present(v, 5)};
  return true;
}

// Queries [B, T, H * D] or packed [B, T, H, 3, D]; keys and values apart, packed, or [B, H, S, D]; a past before them, or a buffer.
bool MultiHeadAttention(Call& c) {
  if (!c.In(0)) return false;
  const Shape& q = c.In(0)->shape;
  const int64_t heads = c.Int("num_heads", 0);
  if (heads < 1 || heads > (1 << 20)) return false;
  const auto times = [heads](const Dim& d) {
    return d.value < 0 || d.value > (int64_t{1} << 40) / heads ? Dim{-1, ""} : Fixed(d.value * heads);
  };
  const auto over = [heads](const Dim& d) { return d.value < 0 ? Dim{-1, ""} : Fixed(d.value / heads); };
  if (q.size() == 5) {
    c.out = {{q[0], q[1], times(q[4])}};
    return true;
  }
  if (q.size() != 3 || !c.In(1)) return q.size() == 3 && c.All(q);
  Shape k = c.In(1)->shape, v = c.In(2) ? c.In(2)->shape : k;
  if ((k.size() != 3 && k.size() != 4 && k.size() != 5) || v.size() != k.size()) return false;
  for (Shape* s : {&k, &v}) {  // as [B, H, S, D]
    if (s->size() == 5) *s = {(*s)[0], (*s)[2], (*s)[1], (*s)[4]};
    else if (s->size() == 3) *s = {(*s)[0], Fixed(heads), (*s)[1], over((*s)[2])};
  }
  c.out = {{q[0], q[1], times(v[3])}};
  const bool is_buffer = c.In(8) != nullptr;
  for (const auto& [s, past] : {std::pair{&k, size_t{6}}, std::pair{&v, size_t{7}}}) {
    Shape present = *s;
    if (const Value* before = c.In(past); before && before->shape.size() == 4) {
      Dim& rows = present[2];
      const Dim& room = before->shape[2];
      if (is_buffer) rows = room;
      else if (rows.value < 0 || room.value < 0 || __builtin_add_overflow(rows.value, room.value, &rows.value)) rows = {-1, ""};
    }
    c.out.push_back(std::move(present));
  }
  return true;
}

bool EmbedLayerNormalization(Call& c) {
  if (!c.In(0) || !c.In(2) || c.In(0)->shape.size() != 2 || c.In(2)->shape.size() != 2) return false;
  const Shape& ids = c.In(0)->shape;
  const Shape y{ids[0], ids[1], c.In(2)->shape[1]};
  c.out = {y, {ids[0]}, y};
  return true;
}

bool GroupQueryAttention(Call& c) {
  if (!c.In(0)) return false;
  const bool packed = c.n.node.inputs.size() > 1 && c.n.node.inputs[1].empty();
  Shape y = c.In(0)->shape;
  if (packed && y.size() == 3 && y[2].value >= 0) {
    const int64_t heads = c.Int("num_heads", 0), kv = c.Int("kv_num_heads", 0);
    if (heads <= 0 || kv <= 0 || heads > (1 << 20) || kv > (1 << 20)) return false;
    y[2] = Fixed(y[2].value / (heads + 2 * kv) * heads);
  }
  c.out = {y};
  for (const size_t past : {size_t{3}, size_t{4}})
    if (const Value* v = c.In(past)) {
      Shape s = v->shape;
      // An open length grows by the new tokens; a fixed one is a buffer.
      if (s.size() == 4 && s[2].value < 0) s[2] = {-1, "total_sequence_length"};
      c.out.push_back(std::move(s));
    }
  return true;
}

}  // namespace slm::targets::shapes
