// RotaryEmbedding of com.microsoft and of ONNX (operator set 23): the one as the other, or as slices, products and a join.
#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {
namespace {

// Inputs of both operators under one name, and what their attributes say.
struct Rotary {
  std::string x, cos, sin, positions;  // positions "": the tables have a row for each token
  size_t x_at = 0, cos_at = 1;         // inputs
  int64_t batch = -1, tokens = -1, heads = 0, width = 0, rotated = 0;
  bool heads_first = false, interleaved = false;
};

std::optional<Rotary> RotaryOf(const Site& s, size_t positions_at, size_t cos_at) {
  const auto& in = s.node().inputs;
  const auto rank = s.Rank(0);
  const targets::Value *x = s.In(0), *cos = s.In(cos_at);
  if (!rank || *rank == 0 || !x || !cos || !cos->has_shape || cos->shape.empty() || !s.Given(cos_at + 1) || !IsFloating(s.Type(0)))
    return std::nullopt;
  Rotary r{
      .x = in[0], .cos = in[cos_at], .sin = in[cos_at + 1], .positions = s.Given(positions_at) ? in[positions_at] : "", .cos_at = cos_at};
  r.interleaved = s.node().Int("interleaved", 0) != 0;
  r.rotated = s.node().Int("rotary_embedding_dim", 0);
  r.heads = s.node().Int("num_heads", 0);
  const int64_t last = x->shape.back().value, table = cos->shape.back().value;
  if (*rank == 4) {
    r.heads_first = true;
    r.batch = x->shape[0].value, r.heads = x->shape[1].value, r.tokens = x->shape[2].value, r.width = last;
  } else if (*rank == 3 && last > 0) {
    // Without a number of heads the tables tell the width of a head.
    if (r.heads == 0 && table > 0) r.heads = last / (2 * table);
    if (r.heads < 1 || last % r.heads != 0) return std::nullopt;
    r.batch = x->shape[0].value, r.tokens = x->shape[1].value, r.width = last / r.heads;
  } else {
    return std::nullopt;
  }
  if (r.rotated == 0) r.rotated = r.width;
  if (r.width < 2 || r.rotated < 2 || r.rotated > r.width || r.rotated % 2 != 0 || table != r.rotated / 2) return std::nullopt;
  return r;
}

// A row of the tables for each token: the positions' range for the comparison.
void RowsExist(const Site& s, const Rotary& r, Piece& piece) {
  const targets::Value* cos = s.In(r.cos_at);
  if (!r.positions.empty() && cos->shape.size() == 2 && cos->shape[0].value > 0) piece.between[r.positions] = {0, cos->shape[0].value - 1};
}

std::optional<Rotary> ContribRotary(const Site& s) {
  const auto ids = s.Rank(1);
  if (s.Float("scale", 1) != 1 || s.node().Int("is_packed_batching", 0) != 0 || !ids || *ids != 2) return std::nullopt;
  return RotaryOf(s, 1, 2);
}

std::optional<Piece> Pieces(const Site& s, const Rotary& r) {
  if (!r.heads_first && (r.heads < 1 || r.width < 1)) return std::nullopt;
  Builder b(s);
  std::string cos = r.cos, sin = r.sin;
  if (!r.positions.empty()) {
    cos = b.Op("Gather", {cos, r.positions}, {IntAttribute("axis", 0)});
    sin = b.Op("Gather", {sin, r.positions}, {IntAttribute("axis", 0)});
  }
  const Dims broadcast{r.heads_first ? 1 : 2};
  const std::string one = b.Ints(broadcast);
  cos = b.Op("Unsqueeze", {cos, one}), sin = b.Op("Unsqueeze", {sin, one});
  std::string x = r.x;
  if (!r.heads_first) x = b.Reshape(x, {0, 0, r.heads, r.width});
  const Dims shape = r.heads_first ? Dims{r.batch, r.heads, r.tokens, r.width} : Dims{r.batch, r.tokens, r.heads, r.width};
  const std::string y = RotateInPieces(b, x, cos, sin, {.x = shape, .rotated = r.rotated, .interleaved = r.interleaved});
  if (r.heads_first) b.CallLast(s.node().outputs[0]);
  else b.To(0, "Reshape", {y, b.Ints({0, 0, r.heads * r.width})});
  RowsExist(s, r, b.piece());
  return b.Take();
}

}  // namespace

std::string RotateInPieces(Builder& b, const std::string& x, const std::string& cos, const std::string& sin, const RotationInPieces& r) {
  const int64_t half = r.rotated / 2, width = r.x.back(), axis = static_cast<int64_t>(r.x.size()) - 1;
  const std::string turned = r.rotated == width ? x : b.Slice(x, axis, 0, r.rotated);
  std::string first, second;
  const Dims apart{0, 0, 0, half};
  if (r.interleaved) {
    const std::string pairs = b.Reshape(turned, {0, 0, 0, half, 2});
    first = b.Reshape(b.Slice(pairs, axis + 1, 0, 1), apart);
    second = b.Reshape(b.Slice(pairs, axis + 1, 1, 2), apart);
  } else {
    first = b.Slice(turned, axis, 0, half);
    second = b.Slice(turned, axis, half, r.rotated);
  }
  std::string real = b.Op("Mul", {first, cos}), other = b.Op("Mul", {second, sin});
  real = b.Op("Sub", {real, other});
  std::string imaginary = b.Op("Mul", {first, sin});
  other = b.Op("Mul", {second, cos});
  imaginary = b.Op("Add", {imaginary, other});
  Names parts{real, imaginary};
  if (r.interleaved) {
    const std::string last = b.Ints({axis + 1});
    for (std::string& part : parts) part = b.Op("Unsqueeze", {part, last});
    parts = {b.Reshape(b.Concat(parts, axis + 1), {0, 0, 0, r.rotated})};
  }
  if (r.rotated < width) parts.push_back(b.Slice(x, axis, r.rotated, width));
  return parts.size() == 1 ? parts[0] : b.Concat(parts, axis);
}

std::optional<Piece> RotaryAsStandard(const Site& s) {
  const auto r = ContribRotary(s);
  if (!r) return std::nullopt;
  Builder b(s);
  std::vector<onnx::Attribute> attributes{IntAttribute("interleaved", r->interleaved ? 1 : 0)};
  if (r->rotated < r->width) attributes.push_back(IntAttribute("rotary_embedding_dim", r->rotated));
  if (!r->heads_first) attributes.push_back(IntAttribute("num_heads", r->heads));
  b.To(0, "RotaryEmbedding", {r->x, r->cos, r->sin, r->positions}, std::move(attributes));
  b.piece().least_opset = 23;
  RowsExist(s, *r, b.piece());
  return b.Take();
}

std::optional<Piece> ContribRotaryInPieces(const Site& s) {
  const auto r = ContribRotary(s);
  return r ? Pieces(s, *r) : std::nullopt;
}

std::optional<Piece> RotaryInPieces(const Site& s) {
  const auto r = RotaryOf(s, 3, 1);
  return r ? Pieces(s, *r) : std::nullopt;
}

}  // namespace slm::legalize
