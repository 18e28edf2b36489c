// Attention and its cache in standard operators with fixed sizes: com.microsoft's GroupQueryAttention, ONNX's Attention and TensorScatter.
// Contracts: onnxruntime's docs/ContribOperators.md, ONNX's Operators.md. Where a query sees no key at all, ONNX's Attention gives zeros
// and this the mean of the values; no decoder asks for that.
#include <algorithm>
#include <cmath>

#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {
namespace {

// Stands for a score that is not seen: its exponential is 0 beside any score that is, and f16 has it.
constexpr double kUnseen = -60000;
constexpr int64_t kMostKeys = int64_t{1} << 20, kMostHeads = 65536, kMostCache = int64_t{1} << 28, kMostZeros = int64_t{1} << 24;

reference::Array* Find(Inputs& inputs, const std::string& name) {
  const auto at = inputs.find(name);
  return at == inputs.end() ? nullptr : &at->second;
}

struct GroupedQueries {
  std::string q, k, v;
  int64_t batch = 0, tokens = 0, q_heads = 0, kv_heads = 0, width = 0, past = 0, keys = 0, rotated = 0;
  ElementType type = ElementType::kFloat;
};

// What the node asks for, as far as the rewrite knows it.
std::optional<GroupedQueries> GroupedQueriesOf(const Site& s) {
  const onnx::Node& n = s.node();
  for (size_t k = 9; k < n.inputs.size(); ++k)
    if (s.Given(k)) return std::nullopt;
  if (n.Int("smooth_softmax", 0) == 1 || n.Int("qk_output", 0) != 0 || n.Int("kv_cache_bit_width", 0) != 0 || n.Int("causal", 1) == 0 ||
      n.Int("sliding_window_cache", 0) != 0 || n.outputs.size() > 3)
    return std::nullopt;
  GroupedQueries g{.q = n.inputs[0], .k = s.Given(1) ? n.inputs[1] : "", .v = s.Given(2) ? n.inputs[2] : ""};
  const auto q = s.Shape(0), past = s.Shape(3);
  g.type = s.Type(0);
  g.q_heads = n.Int("num_heads", 0), g.kv_heads = n.Int("kv_num_heads", 0);
  if (!q || q->size() != 3 || !IsFloating(g.type) || !s.Given(5) || s.Given(3) != s.Given(4) || (s.Given(3) && !past)) return std::nullopt;
  if (g.kv_heads < 1 || g.q_heads < g.kv_heads || g.q_heads > kMostHeads || g.q_heads % g.kv_heads != 0) return std::nullopt;
  g.batch = (*q)[0], g.tokens = (*q)[1];
  const int64_t parts = g.k.empty() ? g.q_heads + 2 * g.kv_heads : g.q_heads;
  g.width = (*q)[2] / parts;
  if (g.width < 1 || g.width * parts != (*q)[2] || g.k.empty() != g.v.empty()) return std::nullopt;
  if (past && (past->size() != 4 || s.Type(3) != g.type)) return std::nullopt;
  g.past = past ? (*past)[2] : 0;
  // The present is as long as the call says, where that is fixed; else as it is declared, if only as long as the buffer of the past.
  Dims total;
  const targets::Value* present = n.outputs.size() > 1 ? s.flat.Find(n.outputs[1]) : nullptr;
  if (s.Ints(6, total) && total.size() == 1) g.keys = std::max(g.past, total[0]);
  else if (present && present->IsStatic() && present->shape.size() == 4 && present->shape[2].value == g.past) g.keys = g.past;
  else return std::nullopt;
  if (g.batch < 1 || g.tokens < 1 || g.keys < g.tokens || g.keys > kMostKeys || g.batch > kMostHeads || g.width > kMostKeys ||
      g.batch * g.kv_heads > kMostCache / (g.keys * g.width))
    return std::nullopt;
  if (g.keys > g.past && g.batch * g.kv_heads > kMostZeros / ((g.keys - g.past) * g.width)) return std::nullopt;  // a constant
  if (n.Int("do_rotary", 0) != 0) {
    const targets::Value* cos = s.In(7);
    if (!cos || !cos->has_shape || cos->shape.size() != 2 || !s.Given(8)) return std::nullopt;
    g.rotated = 2 * cos->shape[1].value;
    if (g.rotated < 2 || g.rotated > g.width) return std::nullopt;
  }
  return g;
}

std::string HeadsFirst(Builder& b, const std::string& x, int64_t batch, int64_t tokens, int64_t heads, int64_t width) {
  return b.Transpose(b.Reshape(x, {batch, tokens, heads, width}), {0, 2, 1, 3});
}

enum class RotateBy : uint8_t { kOperator, kPieces };

// Queries and keys [B, H, T, D] turned by the rows `places` [B, T] of the tables.
void RotateBoth(const Site& s, Builder& b, const GroupedQueries& g, const std::string& places, RotateBy by, std::string& q,
                std::string& k) {
  const onnx::Node& n = s.node();
  std::string cos = b.Op("Gather", {n.inputs[7], places}, {IntAttribute("axis", 0)});
  std::string sin = b.Op("Gather", {n.inputs[8], places}, {IntAttribute("axis", 0)});
  const bool interleaved = n.Int("rotary_interleaved", 0) != 0;
  if (by == RotateBy::kOperator) {
    std::vector<onnx::Attribute> attributes{IntAttribute("interleaved", interleaved ? 1 : 0)};
    if (g.rotated < g.width) attributes.push_back(IntAttribute("rotary_embedding_dim", g.rotated));
    for (std::string* x : {&q, &k}) *x = b.Op("RotaryEmbedding", {*x, cos, sin}, attributes);
    b.piece().least_opset = 23;
    return;
  }
  const Dims rows{g.batch, 1, g.tokens, g.rotated / 2};
  cos = b.Reshape(cos, rows), sin = b.Reshape(sin, rows);
  for (std::string* x : {&q, &k})
    *x = RotateInPieces(b, *x, cos, sin, {.x = {-1, -1, -1, g.width}, .rotated = g.rotated, .interleaved = interleaved});
}

// The past with room for the new rows, which are written to their places: keys (side 0) or values.
std::string Present(const Site& s, Builder& b, const GroupedQueries& g, size_t side, const std::string& fresh, const std::string& places) {
  const onnx::Node& n = s.node();
  std::string buffer = s.Given(3) ? n.inputs[3 + side] : "";
  if (g.keys > g.past) {
    const std::string more = b.Zero(g.type, {g.batch, g.kv_heads, g.keys - g.past, g.width});
    buffer = buffer.empty() ? more : b.Concat({buffer, more}, 2);
  }
  const std::string made = WriteRows(b, buffer, fresh, places, {g.batch, g.kv_heads, g.tokens, g.width}, 2);
  const bool named = n.outputs.size() > 1 + side && !n.outputs[1 + side].empty();
  return named ? b.CallLast(n.outputs[1 + side]) : made;
}

// Key s is seen from position p when s <= p, and p - window < s.
std::string Unseen(const Site& s, Builder& b, const GroupedQueries& g, const std::string& places) {
  Dims range;
  for (int64_t key = 0; key < g.keys; ++key) range.push_back(key);
  const std::string keys = b.Int32s(range, {g.keys}), positions = b.Reshape(places, {g.batch, 1, g.tokens, 1});
  const std::string later = b.Op("Greater", {keys, positions});
  const int64_t window = s.node().Int("local_window_size", -1);
  if (window < 1 || window >= g.keys) return later;
  const std::string oldest = b.Op("Sub", {positions, b.Int32s({window - 1}, {1})});
  return b.Op("Or", {later, b.Op("Less", {keys, oldest})});
}

// Compared with a full cache, and one with unused rows: what the operator leaves in those is not said, so they are zeros.
void CompareBothCaches(const Site& s, const GroupedQueries& g, Piece& piece) {
  const onnx::Node& n = s.node();
  const Names pasts = s.Given(3) ? Names{n.inputs[3], n.inputs[4]} : Names{};
  piece.trials = g.keys == g.past && g.keys > g.tokens ? 2 : 1;
  piece.settle = [g, lengths = n.inputs[5], pasts](Inputs& in, int trial) {
    const int64_t total = trial == 0 ? g.keys : (g.keys + g.tokens) / 2;
    if (reference::Array* a = Find(in, lengths)) std::fill(a->i.begin(), a->i.end(), total - 1);
    for (const std::string& name : pasts)
      if (reference::Array* a = Find(in, name))
        for (size_t i = 0; i < a->f.size(); ++i)
          if (static_cast<int64_t>(i) / g.width % g.past >= total - g.tokens) a->f[i] = 0;
  };
}

std::optional<Piece> Grouped(const Site& s, RotateBy by) {
  auto found = GroupedQueriesOf(s);
  if (!found || (by == RotateBy::kPieces && found->rotated == 0)) return std::nullopt;  // the other form has no operator then
  GroupedQueries& g = *found;
  const onnx::Node& n = s.node();
  Builder b(s);
  if (g.k.empty()) {
    const std::string all = g.q;
    const int64_t wide = g.q_heads * g.width, narrow = g.kv_heads * g.width;
    g.q = b.Slice(all, 2, 0, wide);
    g.k = b.Slice(all, 2, wide, wide + narrow);
    g.v = b.Slice(all, 2, wide + narrow, wide + 2 * narrow);
  }
  std::string q = HeadsFirst(b, g.q, g.batch, g.tokens, g.q_heads, g.width);
  std::string k = HeadsFirst(b, g.k, g.batch, g.tokens, g.kv_heads, g.width);
  const std::string v = HeadsFirst(b, g.v, g.batch, g.tokens, g.kv_heads, g.width);
  // The new tokens are the last ones of each sequence: rows seqlens_k - T + 1 … seqlens_k.
  Dims steps;
  for (int64_t t = 0; t < g.tokens; ++t) steps.push_back(t - g.tokens + 1);
  const std::string last = b.Reshape(n.inputs[5], {g.batch, 1});
  const std::string places = b.Op("Add", {last, b.Int32s(steps, {g.tokens})});  // [B, T]
  if (g.rotated > 0) RotateBoth(s, b, g, places, by, q, k);
  AttentionInPieces a{.q = q, .type = g.type, .hidden = "", .added = ""};
  a.k = Present(s, b, g, 0, k, places);
  a.v = Present(s, b, g, 1, v, places);
  a.batch = g.batch, a.q_heads = g.q_heads, a.kv_heads = g.kv_heads;
  a.tokens = g.tokens, a.keys = g.keys, a.value_width = g.width;
  a.hidden = Unseen(s, b, g, places);
  a.scale = s.Float("scale", 0);
  if (a.scale == 0) a.scale = 1 / std::sqrt(static_cast<double>(g.width));
  a.softcap = s.Float("softcap", 0);
  const std::string y = b.Transpose(AttendInPieces(b, a), {0, 2, 1, 3});
  b.To(0, "Reshape", {y, b.Ints({g.batch, g.tokens, g.q_heads * g.width})});
  CompareBothCaches(s, g, b.piece());
  return b.Take();
}

}  // namespace

std::string WriteRows(Builder& b, const std::string& buffer, const std::string& update, const std::string& places, const Dims& dims,
                      size_t axis) {
  Dims rows(dims.size(), 1);
  rows[0] = dims[0], rows[axis] = dims[axis];
  const std::string spread = b.Op("Expand", {b.Reshape(places, rows), b.Ints(dims)});
  return b.Op("ScatterElements", {buffer, spread, update}, {IntAttribute("axis", static_cast<int64_t>(axis))});
}

std::string AttendInPieces(Builder& b, const AttentionInPieces& a) {
  const int64_t rows = a.q_heads / a.kv_heads * a.tokens;
  const Dims whole{a.batch, a.q_heads, a.tokens, a.keys}, grouped{a.batch, a.kv_heads, rows, a.keys};
  const bool same = a.q_heads == a.kv_heads;
  const std::string q = same ? a.q : b.Reshape(a.q, {a.batch, a.kv_heads, rows, -1});
  std::string scores = b.Op("MatMul", {q, b.Transpose(a.k, {0, 1, 3, 2})});
  scores = b.Op("Mul", {scores, b.Number(a.type, a.scale)});
  if (a.softcap > 0) {
    const std::string cap = b.Number(a.type, a.softcap);
    scores = b.Op("Mul", {b.Op("Tanh", {b.Op("Div", {scores, cap})}), cap});
  }
  if (!same) scores = b.Reshape(scores, whole);
  if (!a.added.empty()) scores = b.Op("Add", {scores, a.added});
  if (!a.hidden.empty()) scores = b.Op("Where", {a.hidden, b.Number(a.type, kUnseen), scores});
  std::string weights = b.Op("Softmax", {scores}, {IntAttribute("axis", -1)});
  if (!same) weights = b.Reshape(weights, grouped);
  const std::string y = b.Op("MatMul", {weights, a.v});
  return same ? y : b.Reshape(y, {a.batch, a.q_heads, a.tokens, a.value_width});
}

std::optional<Piece> GroupQueryWithOperator(const Site& s) { return Grouped(s, RotateBy::kOperator); }
std::optional<Piece> GroupQueryInPieces(const Site& s) { return Grouped(s, RotateBy::kPieces); }

std::optional<Piece> AttentionAsPieces(const Site& s) {
  const onnx::Node& n = s.node();
  const auto q = s.Shape(0), k = s.Shape(1), v = s.Shape(2), past_k = s.Shape(4), past_v = s.Shape(5);
  const ElementType type = s.Type(0);
  if (!q || !k || !v || !IsFloating(type) || s.Type(1) != type || s.Type(2) != type || s.Given(6) || s.Wanted(3)) return std::nullopt;
  const auto is_cache = [](const std::optional<Dims>& dims) { return dims && dims->size() == 4; };
  if (s.Given(4) != s.Given(5) || (s.Given(4) && (!is_cache(past_k) || !is_cache(past_v))) || q->size() != k->size() ||
      q->size() != v->size())
    return std::nullopt;
  if (n.Int("left_window_size", -1) >= 0 || n.Int("right_window_size", -1) >= 0 || n.Int("softmax_precision", 0) != 0) return std::nullopt;
  Builder b(s);
  const bool flat = q->size() == 3;
  if (!flat && q->size() != 4) return std::nullopt;
  AttentionInPieces a{.q = n.inputs[0], .k = n.inputs[1], .v = n.inputs[2], .type = type, .hidden = "", .added = ""};
  a.batch = (*q)[0];
  a.q_heads = flat ? n.Int("q_num_heads", 0) : (*q)[1];
  a.kv_heads = flat ? n.Int("kv_num_heads", 0) : (*k)[1];
  a.tokens = (*q)[flat ? 1 : 2];
  const int64_t fresh = (*k)[flat ? 1 : 2], past = past_k ? (*past_k)[2] : 0;
  if (a.kv_heads < 1 || a.q_heads < a.kv_heads || a.q_heads > kMostHeads || a.q_heads % a.kv_heads != 0 || a.tokens < 1 || fresh < 1 ||
      past < 0 || past > kMostKeys || fresh > kMostKeys || a.tokens > kMostKeys)
    return std::nullopt;
  const int64_t width = flat ? (*q)[2] / a.q_heads : (*q)[3];
  a.value_width = flat ? (*v)[2] / a.kv_heads : (*v)[3];
  a.keys = past + fresh;
  if (width < 1 || a.value_width < 1 || width > kMostKeys || a.value_width > kMostKeys) return std::nullopt;
  if (flat) {
    a.q = HeadsFirst(b, a.q, a.batch, a.tokens, a.q_heads, width);
    a.k = HeadsFirst(b, a.k, a.batch, fresh, a.kv_heads, width);
    a.v = HeadsFirst(b, a.v, a.batch, fresh, a.kv_heads, a.value_width);
  }
  std::string* sides[] = {&a.k, &a.v};
  for (size_t side = 0; side < 2; ++side) {
    const bool named = n.outputs.size() > 1 + side && !n.outputs[1 + side].empty();
    if (past > 0) *sides[side] = b.Concat({n.inputs[4 + side], *sides[side]}, 2);
    else if (named) *sides[side] = b.Op("Identity", {*sides[side]});
    if (!named) continue;
    *sides[side] = b.CallLast(n.outputs[1 + side]);
  }
  if (s.Given(3)) {
    const auto mask = s.Shape(3);
    if (!mask || mask->empty() || mask->back() != a.keys) return std::nullopt;
    if (s.Type(3) == ElementType::kBool) a.hidden = b.Op("Not", {n.inputs[3]});
    else if (s.Type(3) == type) a.added = n.inputs[3];
    else return std::nullopt;
  }
  // A query at `past + t` sees no later key.
  if (n.Int("is_causal", 0) != 0 && fresh > 1) {
    Dims later;
    if (a.tokens > kMostKeys / a.keys) return std::nullopt;
    for (int64_t t = 0; t < a.tokens; ++t)
      for (int64_t key = 0; key < a.keys; ++key) later.push_back(key > past + t ? 1 : 0);
    const std::string causal = b.Bools(std::move(later), {a.tokens, a.keys});
    a.hidden = a.hidden.empty() ? causal : b.Op("Or", {a.hidden, causal});
  }
  const double scale = s.Float("scale", 1 / std::sqrt(static_cast<double>(width)));
  a.scale = scale;
  a.softcap = s.Float("softcap", 0);
  if (flat) {
    const std::string y = b.Transpose(AttendInPieces(b, a), {0, 2, 1, 3});
    b.To(0, "Reshape", {y, b.Ints({a.batch, a.tokens, a.q_heads * a.value_width})});
  } else {
    AttendInPieces(b, a);
    b.CallLast(n.outputs[0]);
  }
  // Every query sees the first key.
  if (s.Given(3))
    b.piece().settle = [mask = n.inputs[3], keys = a.keys](Inputs& in, int) {
      if (reference::Array* m = Find(in, mask))
        for (size_t i = 0; i < m->i.size(); i += static_cast<size_t>(keys)) m->i[i] = 1;
    };
  return b.Take();
}

std::optional<Piece> TensorScatterAsElements(const Site& s) {
  const onnx::Node& n = s.node();
  const auto past = s.Shape(0), update = s.Shape(1);
  if (!past || !update || past->size() != update->size() || past->size() < 2 || s.Text("mode", "linear") != "linear") return std::nullopt;
  const auto found = FromFront(n.Int("axis", -2), static_cast<int64_t>(past->size()));
  if (!found || *found < 1) return std::nullopt;
  const auto axis = static_cast<size_t>(*found);
  const int64_t batch = (*past)[0], lines = (*update)[axis], room = (*past)[axis];
  if (batch < 1 || lines < 1 || lines > room || room > kMostKeys) return std::nullopt;
  Builder b(s);
  Dims steps;
  for (int64_t k = 0; k < lines; ++k) steps.push_back(k);
  std::string places = b.Ints(steps);
  if (s.Given(2)) {
    const std::string first = b.Reshape(n.inputs[2], {batch, 1});
    places = b.Op("Add", {first, places});  // [B, T]
    b.piece().between[n.inputs[2]] = {0, room - lines};
  } else if (batch != 1) {
    return std::nullopt;
  }
  WriteRows(b, n.inputs[0], n.inputs[1], places, *update, axis);
  b.CallLast(n.outputs[0]);
  return b.Take();
}

}  // namespace slm::legalize
