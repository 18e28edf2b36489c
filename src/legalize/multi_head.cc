// com.microsoft's MultiHeadAttention and Attention in standard operators with fixed sizes. Contract: onnxruntime's
// docs/ContribOperators.md.
#include <cmath>

#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {
namespace {

constexpr int64_t kMostKeys = int64_t{1} << 20, kMostHeads = 65536;

// What both become: heads first, biases added.
struct Heads {
  std::string q, k, v;  // [B, H, T, D], [B, H, new, D], [B, H, new, value_width]
  int64_t batch = 0, heads = 0, tokens = 0, fresh = 0, past = 0, width = 0, value_width = 0;
  size_t mask = 0, added = 0;                        // inputs
  std::string past_key, past_value;                  // ""
  std::string present_key_name, present_value_name;  // ""
};

bool Sensible(const Heads& h) {
  for (const int64_t n : {h.batch, h.heads, h.tokens, h.fresh, h.width, h.value_width})
    if (n < 1 || n > kMostKeys) return false;
  return h.heads <= kMostHeads && h.past >= 0 && h.past <= kMostKeys && h.tokens <= kMostKeys / (h.past + h.fresh);
}

// The mask as values that are added to scores: 0 where a key is seen.
std::optional<std::string> AddedMask(const Site& s, Builder& b, const Heads& h, ElementType type) {
  const int64_t keys = h.past + h.fresh;
  const auto dims = s.Shape(h.mask);
  const ElementType kind = s.Type(h.mask);
  if (!dims || (kind != ElementType::kInt32 && kind != ElementType::kInt64)) return std::nullopt;
  const std::string& mask = s.node().inputs[h.mask];
  std::string seen;
  const auto number = [&](int64_t x) { return b.Constant({.type = kind, .dims = {}, .f = {}, .i = {x}, .s = {}}); };
  if (*dims == Dims{h.batch}) {  // lengths
    reference::Array range{.type = kind, .dims = {keys}, .f = {}, .i = {}, .s = {}};
    for (int64_t key = 0; key < keys; ++key) range.i.push_back(key);
    seen = b.Op("Less", {b.Constant(std::move(range)), b.Reshape(mask, {h.batch, 1, 1, 1})});
    b.piece().between[mask] = {1, keys};
  } else if (*dims == Dims{h.batch, keys}) {
    seen = b.Op("Greater", {b.Reshape(mask, {h.batch, 1, 1, keys}), number(0)});
  } else if (*dims == Dims{h.batch, h.tokens, keys}) {
    seen = b.Op("Greater", {b.Reshape(mask, {h.batch, 1, h.tokens, keys}), number(0)});
  } else {
    return std::nullopt;
  }
  // Compared where each query sees the first key: hidden ones only keep what rounding leaves of their scores beside the filter.
  b.piece().settle = [mask, lengths = dims->size() == 1, keys](Inputs& in, int) {
    const auto at = in.find(mask);
    if (at == in.end() || lengths) return;
    for (size_t i = 0; i < at->second.i.size(); i += static_cast<size_t>(keys)) at->second.i[i] = 1;
  };
  return b.Op("Where", {seen, b.Number(type, 0), b.Number(type, s.Float("mask_filter_value", -10000))});
}

std::optional<Piece> Attended(const Site& s, Builder& b, Heads& h, ElementType type) {
  const onnx::Node& n = s.node();
  const int64_t keys = h.past + h.fresh;
  AttentionInPieces a{.q = h.q, .k = h.k, .v = h.v, .type = type, .hidden = "", .added = ""};
  std::string* sides[] = {&a.k, &a.v};
  const std::string* pasts[] = {&h.past_key, &h.past_value};
  const std::string* names[] = {&h.present_key_name, &h.present_value_name};
  for (size_t side = 0; side < 2; ++side) {
    if (h.past > 0) *sides[side] = b.Concat({*pasts[side], *sides[side]}, 2);
    else if (!names[side]->empty()) *sides[side] = b.Op("Identity", {*sides[side]});
    if (!names[side]->empty()) *sides[side] = b.CallLast(*names[side]);
  }
  if (s.Given(h.mask)) {
    const auto mask = AddedMask(s, b, h, type);
    if (!mask) return std::nullopt;
    a.added = *mask;
  }
  if (s.Given(h.added)) {
    if (s.Type(h.added) != type) return std::nullopt;
    a.added = a.added.empty() ? n.inputs[h.added] : b.Op("Add", {a.added, n.inputs[h.added]});
  }
  if (n.Int("unidirectional", 0) == 1) {  // any other number: not causal
    if (h.fresh != h.tokens) return std::nullopt;
    Dims later;
    for (int64_t t = 0; t < h.tokens; ++t)
      for (int64_t key = 0; key < keys; ++key) later.push_back(key > h.past + t ? 1 : 0);
    a.hidden = b.Bools(std::move(later), {h.tokens, keys});
  }
  a.batch = h.batch, a.q_heads = a.kv_heads = h.heads, a.tokens = h.tokens, a.keys = keys, a.value_width = h.value_width;
  a.scale = s.Float("scale", 0);
  if (a.scale == 0) a.scale = 1 / std::sqrt(static_cast<double>(h.width));
  const std::string y = b.Transpose(AttendInPieces(b, a), {0, 2, 1, 3});
  b.To(0, "Reshape", {y, b.Ints({h.batch, h.tokens, h.heads * h.value_width})});
  return b.Take();
}

// Part `at` of packed [B, T, H, parts, D], as [B, H, T, D].
std::string Unpacked(Builder& b, const std::string& x, int64_t at, const Dims& dims) {
  return b.Transpose(b.Reshape(b.Slice(x, 3, at, at + 1), {dims[0], dims[1], dims[2], dims[4]}), {0, 2, 1, 3});
}

// x [B, T, D] with its part of the bias.
std::string Biased(const Site& s, Builder& b, const std::string& x, int64_t begin, int64_t width) {
  return s.Given(3) ? b.Op("Add", {x, b.Slice(s.node().inputs[3], 0, begin, begin + width)}) : x;
}

}  // namespace

// query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value
std::optional<Piece> MultiHeadAsPieces(const Site& s) {
  const onnx::Node& n = s.node();
  const auto q = s.Shape(0), k = s.Shape(1), v = s.Shape(2), past_key = s.Shape(6), past_value = s.Shape(7);
  const ElementType type = s.Type(0);
  if (!q || q->empty() || !IsFloating(type) || s.Given(8) || s.Given(9) || s.Wanted(3) || s.Given(6) != s.Given(7)) return std::nullopt;
  Builder b(s);
  Heads h;
  h.heads = n.Int("num_heads", 0), h.mask = 4, h.added = 5;
  if (h.heads < 1 || h.heads > kMostHeads) return std::nullopt;
  h.batch = (*q)[0];
  if (q->size() == 5) {
    if (s.Given(1) || s.Given(2) || s.Given(3) || (*q)[2] != h.heads || (*q)[3] != 3) return std::nullopt;
    h.tokens = h.fresh = (*q)[1], h.width = h.value_width = (*q)[4];
    if (!Sensible(h)) return std::nullopt;
    h.q = Unpacked(b, n.inputs[0], 0, *q), h.k = Unpacked(b, n.inputs[0], 1, *q), h.v = Unpacked(b, n.inputs[0], 2, *q);
  } else {
    if (q->size() != 3 || !k || s.Type(1) != type || (s.Given(2) && (!v || v->size() != k->size() || s.Type(2) != type)))
      return std::nullopt;
    h.tokens = (*q)[1], h.width = (*q)[2] / h.heads;
    const bool apart = k->size() == 3 && v, cross = k->size() == 4 && v;
    if (apart) h.fresh = (*k)[1], h.value_width = (*v)[2] / h.heads;
    else if (cross) h.fresh = (*k)[2], h.value_width = (*v)[3];
    else if (k->size() == 5 && !v && !s.Given(3) && (*k)[2] == h.heads && (*k)[3] == 2) h.fresh = (*k)[1], h.value_width = (*k)[4];
    else return std::nullopt;
    if (!Sensible(h)) return std::nullopt;
    const int64_t wide = h.heads * h.width;
    h.q = HeadsFirst(b, Biased(s, b, n.inputs[0], 0, wide), h.batch, h.tokens, h.heads, h.width);
    if (apart) {
      h.k = HeadsFirst(b, Biased(s, b, n.inputs[1], wide, wide), h.batch, h.fresh, h.heads, h.width);
      h.v = HeadsFirst(b, Biased(s, b, n.inputs[2], 2 * wide, h.heads * h.value_width), h.batch, h.fresh, h.heads, h.value_width);
    } else if (cross) {
      h.k = n.inputs[1], h.v = n.inputs[2];
    } else {
      h.k = Unpacked(b, n.inputs[1], 0, *k), h.v = Unpacked(b, n.inputs[1], 1, *k);
    }
  }
  if (s.Given(6)) {
    if (!past_key || past_key->size() != 4 || !past_value || past_value->size() != 4 || s.Type(6) != type) return std::nullopt;
    h.past = (*past_key)[2], h.past_key = n.inputs[6], h.past_value = n.inputs[7];
    if (!Sensible(h)) return std::nullopt;
  }
  if (n.outputs.size() > 1) h.present_key_name = n.outputs[1];
  if (n.outputs.size() > 2) h.present_value_name = n.outputs[2];
  return Attended(s, b, h, type);
}

// input, weights, bias, mask_index, past, attention_bias
std::optional<Piece> PackedAttentionAsPieces(const Site& s) {
  const onnx::Node& n = s.node();
  const auto x = s.Shape(0), w = s.Shape(1);
  const ElementType type = s.Type(0);
  if (!x || x->size() != 3 || !w || w->size() != 2 || !IsFloating(type) || s.Given(4) || s.Given(6) || s.Wanted(1) ||
      n.Int("do_rotary", 0) != 0)
    return std::nullopt;
  const onnx::Attribute* given = n.Find("qkv_hidden_sizes");
  const Dims widths = given && given->ints.size() == 3 ? given->ints : Dims(3, (*w)[1] / 3);
  Heads h;
  h.heads = n.Int("num_heads", 0), h.mask = 3, h.added = 5;
  if (h.heads < 1 || h.heads > kMostHeads || widths[0] != widths[1]) return std::nullopt;
  h.batch = (*x)[0], h.tokens = h.fresh = (*x)[1], h.width = widths[0] / h.heads, h.value_width = widths[2] / h.heads;
  if (!Sensible(h) || h.width * h.heads != widths[0] || h.value_width * h.heads != widths[2] || 2 * widths[0] + widths[2] != (*w)[1])
    return std::nullopt;
  Builder b(s);
  std::string all = b.Op("MatMul", {n.inputs[0], n.inputs[1]});
  if (s.Given(2)) all = b.Op("Add", {all, n.inputs[2]});
  const int64_t wide = widths[0];
  h.q = HeadsFirst(b, b.Slice(all, 2, 0, wide), h.batch, h.tokens, h.heads, h.width);
  h.k = HeadsFirst(b, b.Slice(all, 2, wide, 2 * wide), h.batch, h.tokens, h.heads, h.width);
  h.v = HeadsFirst(b, b.Slice(all, 2, 2 * wide, 2 * wide + widths[2]), h.batch, h.tokens, h.heads, h.value_width);
  return Attended(s, b, h, type);
}

}  // namespace slm::legalize
