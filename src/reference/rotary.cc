// RotaryEmbedding, of ONNX and of com.microsoft. See heads.h.
#include "reference/call.h"
#include "reference/heads.h"

namespace slm::reference {
namespace {

// Rows of the tables: position ids [B, T], or one [1] from which the positions of every sequence count on.
Result<std::vector<int64_t>> RowsOf(const std::vector<int64_t>& ids, const Heads& h) {
  const int64_t n = h.batch * h.tokens;
  if (static_cast<int64_t>(ids.size()) == n && n != 1) return ids;
  if (ids.size() != 1) return Wrong("as many positions as tokens are needed, or one");
  std::vector<int64_t> rows;
  for (int64_t k = 0; k < n; ++k) rows.push_back(ids[0] + k % h.tokens);
  return rows;
}

Result<Rotation> RotationOf(const Call& c, const Array* cos, const Array* sin, const Heads& h) {
  Rotation r{cos, sin, c.Int("rotary_embedding_dim", 0), c.Int("interleaved", 0) != 0};
  if (r.rotated == 0) r.rotated = h.width;
  if (r.rotated < 0 || r.rotated > h.width || r.rotated % 2 != 0) return Wrong("rotary_embedding_dim");
  return r;
}

}  // namespace

Result<Heads> HeadsOf(const Array& x, int64_t n_heads) {
  constexpr int64_t kMostHeads = 65536;
  if (x.dims.size() == 4) return Heads{Order::kHeadsFirst, x.dims[0], x.dims[1], x.dims[2], x.dims[3]};
  if (x.dims.size() != 3 || n_heads < 1 || n_heads > kMostHeads || x.dims[2] == 0 || x.dims[2] % n_heads != 0)
    return Wrong(fmt::format("shape {} with {} heads", onnx::ShapeText(x.dims), n_heads));
  return Heads{Order::kTokensFirst, x.dims[0], n_heads, x.dims[1], x.dims[2] / n_heads};
}

Status Rotate(Array& x, const Heads& h, const Rotation& r, const std::vector<int64_t>& rows) {
  const int64_t half = r.rotated / 2;
  if (half < 1 || !IsFloat(r.cos->type) || r.cos->dims != r.sin->dims || r.cos->type != r.sin->type || r.cos->dims.empty() ||
      r.cos->dims.back() != half)
    return Wrong("the tables of cosines and sines do not fit the rotated width");
  const int64_t n_rows = r.cos->size() / half;
  for (const int64_t row : rows)
    if (row < 0 || row >= n_rows) return Wrong(fmt::format("position {}; the tables have {}", row, n_rows));
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t t = 0; t < h.tokens; ++t)
      for (int64_t k = 0; k < half; ++k) {
        const int64_t row = rows[static_cast<size_t>(b * h.tokens + t)];
        const double cos = Number(*r.cos, row * half + k), sin = Number(*r.sin, row * half + k);
        for (int64_t head = 0; head < h.heads; ++head) {
          const int64_t first = h.At(b, head, t, r.interleaved ? 2 * k : k),
                        second = h.At(b, head, t, r.interleaved ? 2 * k + 1 : k + half);
          const double u = Number(x, first), v = Number(x, second);
          Set(x, first, cos * u - sin * v);
          Set(x, second, sin * u + cos * v);
        }
      }
  return Ok();
}

// x, cos, sin, position_ids; without positions the tables are [B, T, …] themselves.
Result<Arrays> RotaryEmbedding(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* cos, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* sin, c.In(2, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Heads h, HeadsOf(*x, c.Int("num_heads", 0)));
  SLM_ASSIGN_OR_RETURN(const Rotation r, RotationOf(c, cos, sin, h));
  std::vector<int64_t> rows;
  for (int64_t k = 0; k < h.batch * h.tokens; ++k) rows.push_back(k);
  if (c.Optional(3)) {
    SLM_ASSIGN_OR_RETURN(rows, c.Ints(3));
    if (static_cast<int64_t>(rows.size()) != h.batch * h.tokens) return Wrong("as many positions as tokens are needed");
  }
  Array y = *x;
  SLM_RETURN_IF_ERROR(Rotate(y, h, r, rows));
  return One(std::move(y));
}

namespace {

// Of com.microsoft's two operators: x, position_ids, cos, sin.
struct MsRotary {
  const Array *x = nullptr, *cos = nullptr, *sin = nullptr;
  std::vector<int64_t> ids;
  Heads h;
  Rotation r;
};

Result<MsRotary> MsRotaryOf(const Call& c) {
  MsRotary m;
  SLM_ASSIGN_OR_RETURN(m.x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(m.ids, c.Ints(1));
  SLM_ASSIGN_OR_RETURN(m.cos, c.In(2, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(m.sin, c.In(3, Accept::kFloat));
  if (c.Int("is_packed_batching", 0) != 0) return Refuse("packed batches");
  if (c.Float("scale", 1) != 1) return Refuse("a scale, which ONNX Runtime does not apply on every device");
  int64_t n_heads = c.Int("num_heads", 0);
  // Without a number of heads the tables tell the width of a head.
  if (n_heads == 0 && m.x->dims.size() == 3 && m.cos->dims.size() == 2 && m.cos->dims[1] > 0) n_heads = m.x->dims[2] / (2 * m.cos->dims[1]);
  SLM_ASSIGN_OR_RETURN(m.h, HeadsOf(*m.x, n_heads));
  SLM_ASSIGN_OR_RETURN(m.r, RotationOf(c, m.cos, m.sin, m.h));
  return m;
}

}  // namespace

Result<Arrays> RotaryEmbeddingMs(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const MsRotary m, MsRotaryOf(c));
  SLM_ASSIGN_OR_RETURN(const auto rows, RowsOf(m.ids, m.h));
  Array y = *m.x;
  SLM_RETURN_IF_ERROR(Rotate(y, m.h, m.r, rows));
  return One(std::move(y));
}

// com.microsoft: three positions a token (time, height, width), each for its section of the angles. position_ids [3, B, T].
Result<Arrays> MRotaryEmbedding(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const MsRotary m, MsRotaryOf(c));
  const Array *x = m.x, *cos = m.cos, *sin = m.sin;
  const auto& ids = m.ids;
  const Heads& h = m.h;
  Rotation r = m.r;
  const int64_t half = r.rotated / 2, n = h.batch * h.tokens, layout = c.Int("mrope_layout", 0);
  const Dims sections = c.IntList("mrope_section");
  if (layout != 0 && layout != 1) return Refuse(fmt::format("mrope_layout {}", layout));
  if (sections.size() != 3 || sections[0] < 0 || sections[1] < 0 || sections[2] < 0 || sections[0] > half || sections[1] > half ||
      sections[2] > half || sections[0] + sections[1] + sections[2] != half)
    return Wrong("mrope_section is not three parts of the angles");
  if (static_cast<int64_t>(ids.size()) != 3 * n || cos->dims.size() != 2 || cos->dims[1] != half || sin->dims != cos->dims ||
      sin->type != cos->type)
    return Wrong("three positions a token are needed, and tables of the rotated width");
  SLM_ASSIGN_OR_RETURN(Array own_cos, Zeros(cos->type, {n, half}));
  Array own_sin = own_cos;
  for (int64_t k = 0; k < own_cos.size(); ++k) {
    const int64_t angle = k % half;
    int64_t stream = angle < sections[0] ? 0 : angle < sections[0] + sections[1] ? 1 : 2;
    if (layout == 1) stream = angle % 3 != 0 && angle < 3 * sections[static_cast<size_t>(angle % 3)] ? angle % 3 : 0;
    const int64_t row = ids[static_cast<size_t>(stream * n + k / half)];
    if (row < 0 || row >= cos->dims[0]) return Wrong(fmt::format("position {}; the tables have {}", row, cos->dims[0]));
    CopyValue(*cos, row * half + angle, own_cos, k);
    CopyValue(*sin, row * half + angle, own_sin, k);
  }
  r.cos = &own_cos, r.sin = &own_sin;
  std::vector<int64_t> rows;
  for (int64_t k = 0; k < n; ++k) rows.push_back(k);
  Array y = *x;
  SLM_RETURN_IF_ERROR(Rotate(y, h, r, rows));
  return One(std::move(y));
}

}  // namespace slm::reference
