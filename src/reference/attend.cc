// See attend.h.
#include "reference/attend.h"

#include <cmath>
#include <limits>

namespace slm::reference {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// Weights of one row of scores; what the sink takes is lost.
void Weigh(std::vector<double>& row, const double* sink) {
  if (sink) row.push_back(*sink);
  SoftmaxRow(row.data(), static_cast<int64_t>(row.size()));
  if (sink) row.pop_back();
}

}  // namespace

Result<Attended> Attend(const Call& c, const Attending& a, ElementType type, Dims dims) {
  const Heads &hq = a.hq, &hy = a.hy;
  Attended out;
  SLM_ASSIGN_OR_RETURN(out.y, Zeros(type, std::move(dims)));
  SLM_ASSIGN_OR_RETURN(const int64_t scores, Count({hq.batch, hq.heads, hq.tokens, a.n_keys}));
  SLM_RETURN_IF_ERROR(c.Count(scores, hq.width + hy.width));
  if (a.show != Attending::Show::kNothing) {
    SLM_ASSIGN_OR_RETURN(out.shown, Zeros(type, {hq.batch, hq.heads, hq.tokens, a.n_keys}));
  }
  const int64_t group = hq.heads / std::max<int64_t>(1, a.hk.heads);
  std::vector<double> row;
  for (int64_t line = 0; line < hq.batch * hq.heads * hq.tokens; ++line) {
    const int64_t b = line / hq.tokens / hq.heads, head = line / hq.tokens % hq.heads, t = line % hq.tokens, kv_head = head / group;
    row.assign(static_cast<size_t>(a.n_keys), kHidden);
    for (int64_t s = 0; s < a.n_keys; ++s) {
      const double bias = a.bias ? a.bias(b, head, t, s) : 0;
      if (bias == kHidden) continue;  // what is not seen may be anything
      double score = 0;
      for (int64_t d = 0; d < hq.width; ++d) score += Number(*a.q, hq.At(b, head, t, d)) * Number(*a.k, a.hk.At(b, kv_head, s, d));
      score *= a.scale;
      if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
      // Beside -10000 the scores of a row that is hidden as a whole keep what a float holds of them.
      score = bias == 0 ? score : RoundTo(ElementType::kFloat, score + bias);
      row[static_cast<size_t>(s)] = score;
      if (a.show == Attending::Show::kScores) Set(out.shown, line * a.n_keys + s, score);
    }
    const double sink = a.sink ? a.sink(head) : 0;
    Weigh(row, a.sink ? &sink : nullptr);
    if (a.show == Attending::Show::kWeights)
      for (int64_t s = 0; s < a.n_keys; ++s) Set(out.shown, line * a.n_keys + s, row[static_cast<size_t>(s)]);
    for (int64_t d = 0; d < hy.width; ++d) {
      double sum = 0;
      for (int64_t s = 0; s < a.n_keys; ++s)
        if (const double weight = row[static_cast<size_t>(s)]; weight != 0) sum += weight * Number(*a.v, a.hv.At(b, kv_head, s, d));
      Set(out.y, hy.At(b, head, t, d), sum);
    }
  }
  return out;
}

Result<Array> JoinPast(const Array& x, const Heads& h, const Array* past, int64_t before) {
  const int64_t room = past && past->dims.size() == 4 ? past->dims[2] : 0;
  if ((past && (past->dims != Dims{h.batch, h.heads, room, h.width} || past->type != x.type)) || before < 0 || before > room)
    return Wrong("the past does not fit");
  const int64_t rows = std::max(room, before + h.tokens);
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x.type, {h.batch, h.heads, rows, h.width}));
  for (int64_t k = 0; k < y.size(); ++k) {
    const int64_t d = k % h.width, t = k / h.width % rows, lane = k / h.width / rows;
    if (t >= before && t < before + h.tokens) CopyValue(x, h.At(lane / h.heads, lane % h.heads, t - before, d), y, k);
    else CopyValue(*past, (lane * room + t) * h.width + d, y, k);
  }
  return y;
}

Result<Array> UnpackHeads(const Array& x, int64_t at, int64_t parts) {
  if (x.dims.size() != 5 || x.dims[3] != parts) return Wrong("a packed input of shape " + onnx::ShapeText(x.dims));
  const int64_t heads = x.dims[2], width = x.dims[4];
  SLM_ASSIGN_OR_RETURN(const int64_t wide, Count({heads, width}));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x.type, {x.dims[0], x.dims[1], wide}));
  for (int64_t k = 0; k < y.size(); ++k) CopyValue(x, (k / width * parts + at) * width + k % width, y, k);
  return y;
}

Result<Array> Columns(const Array& x, int64_t begin, int64_t width) {
  if (x.dims.empty() || begin < 0 || width < 0 || begin > x.dims.back() || width > x.dims.back() - begin)
    return Wrong("columns that are not there");
  Dims dims = x.dims;
  dims.back() = width;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x.type, dims));
  for (int64_t k = 0; k < y.size(); ++k) CopyValue(x, k / width * x.dims.back() + begin + k % width, y, k);
  return y;
}

Status AddColumns(Array& x, const Array& bias, int64_t begin) {
  const int64_t width = x.dims.empty() ? 0 : x.dims.back();
  if (bias.dims.size() != 1 || bias.type != x.type || begin > bias.dims[0] || width > bias.dims[0] - begin)
    return Wrong("the bias does not fit");
  for (int64_t k = 0; k < x.size(); ++k) Set(x, k, Number(x, k) + Number(bias, begin + k % width));
  return Ok();
}

Status CheckKeyMask(const KeyMask& m) {
  if (const Array* a = m.added) {
    const Dims& d = a->dims;
    if (!IsFloat(a->type) || d.size() != 4 || (d[0] != 1 && d[0] != m.batch) || (d[1] != 1 && d[1] != m.heads) || d[2] != m.tokens ||
        d[3] != m.keys)
      return Wrong("attention_bias of shape " + onnx::ShapeText(d) + " does not fit the scores");
  }
  if (!m.mask) return Ok();
  const Dims& d = m.mask->dims;
  if (m.mask->type != ElementType::kInt32 && m.mask->type != ElementType::kInt64) return Refuse("a mask that is not of whole numbers");
  const bool fits = d.size() == 1   ? d[0] == m.batch || d[0] == 2 * m.batch || d[0] == 3 * m.batch + 2
                    : d.size() == 2 ? d[0] == m.batch && d[1] == m.keys
                    : d.size() == 3
                        ? d[0] == m.batch && d[1] == m.tokens && d[2] == m.keys
                        : d.size() == 4 && d[0] == m.batch && d[1] == 1 && d[2] == d[3] && d[2] >= m.past + m.tokens && d[3] >= m.keys;
  return fits ? Ok() : Status(Wrong("a mask of shape " + onnx::ShapeText(d)));
}

double KeyBias(const KeyMask& m, int64_t b, int64_t head, int64_t t, int64_t s) {
  if (m.causal && s > m.past + t) return kHidden;
  double bias = 0;
  if (m.mask) {
    const Dims& d = m.mask->dims;
    const auto at = [&](int64_t k) { return m.mask->i[static_cast<size_t>(k)]; };
    bool seen = true;
    if (d.size() == 1) seen = s < at(b) && (d[0] != 2 * m.batch || s >= at(m.batch + b));
    else if (d.size() == 2) seen = at(b * m.keys + s) > 0;
    else if (d.size() == 3) seen = at((b * m.tokens + t) * m.keys + s) > 0;
    else seen = at((b * d[2] + m.past + t) * d[3] + s) > 0;
    if (!seen) bias = m.filter;
  }
  if (m.added)
    bias += Number(*m.added,
                   (((m.added->dims[0] == 1 ? 0 : b) * m.added->dims[1] + (m.added->dims[1] == 1 ? 0 : head)) * m.tokens + t) * m.keys + s);
  return bias;
}

}  // namespace slm::reference
