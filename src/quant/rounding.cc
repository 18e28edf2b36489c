#include "quant/rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/model.h"
#include "quant/ggml_blocks.h"
#include "quant/gptq.h"
#include "quant/schemes.h"
#include "quant/signround.h"

namespace slm::quant {
namespace {

constexpr int64_t kPartRows = 512;    // of the change that is in work at a time
constexpr int64_t kJudgedRows = 256;  // of a matrix that its ways are judged on: products of all rows take as long as choosing the codes

// tr(D M D^T) for rows that `row(i, out)` gives, M packed in `second`.
template <class F>
double Trace(const Machine& machine, const Multiplier& second, int64_t rows, int64_t width, const F& row) {
  Matrix part(std::min(kPartRows, rows), width), product(std::min(kPartRows, rows), width);
  double sum = 0;
  for (int64_t at = 0; at < rows; at += kPartRows) {
    const int64_t n = std::min(kPartRows, rows - at);
    part.Shorten(n);
    product.Shorten(n);
    auto fill = [&](int t, int n_threads) {
      const Range mine = SplitRange(n, 1, t, n_threads);
      for (int64_t i = mine.begin; i < mine.end; ++i) row(at + i, part.Row(i));
    };
    machine.team->Run(fill);
    second.Multiply(part, product);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < width; ++j) sum += static_cast<double>(part.Row(i)[j]) * static_cast<double>(product.Row(i)[j]);
  }
  return sum;
}

// The trace of what `value` gives for each place of `t`, its columns divided by the fold.
template <class F>
double TraceOf(const Machine& machine, const Multiplier& second, const LayerTensor& t, const F& value) {
  return Trace(machine, second, t.rows, t.width, [&](int64_t r, float* out) {
    const size_t at = static_cast<size_t>(r * t.width);
    for (size_t j = 0; j < static_cast<size_t>(t.width); ++j) out[j] = t.fold.empty() ? value(at + j) : value(at + j) / t.fold[j];
  });
}

// What an error of a weight of the stored matrix counts: E[x^2], in units after the fold.
std::vector<float> ErrorWeightsOf(const LayerTensor& t, const InputStatistics& input) {
  std::vector<float> u = input.mean_square();
  for (size_t j = 0; j < t.fold.size(); ++j) u[j] /= t.fold[j] * t.fold[j];
  return u;
}

void Encode(const Machine& machine, const LayerTensor& t, DType dtype, Search search, const float* u, Rounded* out) {
  const auto width = static_cast<size_t>(t.width);
  const size_t row_bytes = RowBytes(dtype, width);
  out->bytes.resize(row_bytes * static_cast<size_t>(t.rows));
  out->values.resize(t.values.size());
  auto work = [&](int thread, int n_threads) {
    std::vector<float> own;
    const Range mine = SplitRange(t.rows, 1, thread, n_threads);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
      const std::span<const float> w(t.values.data() + static_cast<size_t>(r) * width, width);
      const std::span<std::byte> to(out->bytes.data() + static_cast<size_t>(r) * row_bytes, row_bytes);
      EncodeRow(dtype, search, w, u ? u : PlainErrorWeights(dtype, w, &own), to.data());
      model::Dequantize(dtype, to, 0, t.width, out->values.data() + static_cast<size_t>(r) * width);
    }
  };
  machine.team->Run(work);
}

// Rows of codes as they are stored: blocks of a ggml type, or the codes themselves.
Rounded Stored(const StoredForm& form, CodedRows coded) {
  Rounded r;
  r.values.resize(static_cast<size_t>(coded.rows * coded.width));
  const size_t row_bytes = form.grid ? 0 : RowBytes(form.dtype, static_cast<uint64_t>(coded.width));
  r.bytes.resize(row_bytes * static_cast<size_t>(coded.rows));
  for (int64_t i = 0; i < coded.rows; ++i) {
    float* values = r.values.data() + i * coded.width;
    if (form.grid) {
      coded.Values(i, values);
      continue;
    }
    std::byte* to = r.bytes.data() + static_cast<size_t>(i) * row_bytes;
    EncodeCoded(form.dtype, coded, i, to);
    model::Dequantize(form.dtype, {to, row_bytes}, 0, coded.width, values);
  }
  if (form.grid) r.coded = std::move(coded);
  return r;
}

Status CheckRange(const LayerTensor& t, const StoredForm& form, const Rounded& r) {
  for (size_t i = 0; i < r.values.size(); ++i)
    if (!std::isfinite(r.values[i]))
      return Error(Code::kUnsupported,
                   fmt::format("{}: row {} is beyond the range of the f16 scales of {}", t.tensor->name, static_cast<int64_t>(i) / t.width,
                               form.name()),
                   "no type with f16 scales can hold it");
  return Ok();
}

double RelativeError(const std::vector<float>& from, const std::vector<float>& to) {
  double lost = 0, power = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const double d = static_cast<double>(from[i]) - static_cast<double>(to[i]);
    lost += d * d;
    power += static_cast<double>(from[i]) * static_cast<double>(from[i]);
  }
  return power > 0 ? std::sqrt(lost / power) : 0;
}

}  // namespace

ProductError::ProductError(const Machine& machine, const InputStatistics& input) : machine_(machine), second_(machine, input.second()) {}

double ProductError::Power(const LayerTensor& t) const {
  return TraceOf(machine_, second_, t, [&](size_t i) { return t.values[i]; });
}
double ProductError::Of(const LayerTensor& t, std::span<const float> values) const {
  return TraceOf(machine_, second_, t, [&](size_t i) { return values[i] - t.values[i]; });
}

const ProductError& Rounder::Products() {
  if (!products_) products_.emplace(machine_, input_);
  return *products_;
}

SecondMoments Rounder::MomentsFor(const LayerTensor& t) const {
  return {input_.second().Row(0), t.width, input_.second().stride(), t.fold};
}

Result<CodedRows> Rounder::SolveGptq(const LayerTensor& t, const BlockForm& block) {
  const std::pair<int, int> key(block.group, block.groups);
  if (!curvatures_.contains(key)) {
    products_.reset();  // made again afterwards: here is where most memory is needed
    auto made = Curvature::Create(MomentsFor(t), block, {.damping = options_.damping}, machine_.isa, *machine_.team);
    if (!made.ok()) return made.error().At(t.tensor->name);
    curvatures_.emplace(key, made.Take());
  }
  CodedRows coded;
  quant::SolveGptq(curvatures_.at(key), block, t.values.data(), t.rows, {.search = options_.search}, *machine_.team, &coded);
  return coded;
}

void Rounder::MoveCodes(const LayerTensor& t, CodedRows* coded) {
  if (!damped_) {
    const SecondMoments moments = MomentsFor(t);
    Matrix h(t.width, t.width);
    double mean = 0;
    for (int64_t i = 0; i < t.width; ++i) {
      for (int64_t j = 0; j < t.width; ++j) h.Row(i)[j] = moments.At(i, j);
      mean += static_cast<double>(h.Row(i)[i]) / static_cast<double>(t.width);
    }
    for (int64_t i = 0; i < t.width; ++i) h.Row(i)[i] += static_cast<float>(options_.damping * mean);
    damped_.emplace(machine_, h);
  }
  SolveSignRound(machine_, *damped_, t.values.data(), {.steps = options_.signround_steps}, coded);
}

Rounder::Rounder(const Machine& machine, const InputStatistics& input, const RoundingOptions& options)
    : machine_(machine), input_(input), options_(options) {}

Rounded Rounder::RoundPlainly(const LayerTensor& t, const StoredForm& form, const float* u) const {
  Rounded r;
  if (form.grid) return Stored(form, QuantizeStored(form, options_.search, t.values.data(), t.rows, t.width, u, *machine_.team));
  Encode(machine_, t, form.dtype, options_.search, u, &r);
  return r;
}

Result<Rounded> Rounder::Round(const LayerTensor& t, const StoredForm& form, Codes codes) {
  SLM_ASSERT(t.width == input_.width());
  const bool is_sampled = t.rows > kJudgedRows, moves = codes == Codes::kMoved && form.has_codes();
  const LayerTensor some = is_sampled ? SomeRows(t, kJudgedRows) : LayerTensor();
  const LayerTensor& judged = is_sampled ? some : t;
  const double whole = Products().Power(judged);
  const std::vector<float> weighted = ErrorWeightsOf(t, input_);
  Rounded best;
  best.error = std::numeric_limits<double>::infinity();
  const float* best_u = nullptr;
  // `r`: of all rows, or of the judged ones with error weights `u`. NaN or infinity is for the check of all rows to find.
  const auto offer = [&](Rounded r, const char* way, const float* u) {
    const bool is_whole = r.values.size() == t.values.size();
    const double lost =
        Products().Of(judged, is_whole && is_sampled ? SomeRows(r.values, t.rows, t.width, kJudgedRows) : std::as_const(r.values));
    r.error = whole > 0 ? lost / whole : 0;
    if (!best.values.empty() && !(r.error < best.error)) return;
    r.way = way;
    best_u = u;
    best = std::move(r);
  };
  offer(RoundPlainly(judged, form, nullptr), "plain", nullptr);
  if (options_.weighted) offer(RoundPlainly(judged, form, weighted.data()), "weighted", weighted.data());
  if (options_.gptq && moves) {
    SLM_ASSIGN_OR_RETURN(CodedRows coded, SolveGptq(t, form.block()));
    CodedRows moved = options_.signround ? coded : CodedRows();
    offer(Stored(form, std::move(coded)), "gptq", nullptr);
    if (options_.signround) {
      MoveCodes(t, &moved);
      offer(Stored(form, std::move(moved)), "gptq signround", nullptr);
    }
  }
  if (options_.signround && moves) {
    CodedRows coded = QuantizeGrid(form.block(), options_.search, t.values.data(), t.rows, t.width, weighted.data(), *machine_.team);
    MoveCodes(t, &coded);
    offer(Stored(form, std::move(coded)), "signround", nullptr);
  }
  if (best.values.size() != t.values.size()) {  // only judged so far
    Rounded all = RoundPlainly(t, form, best_u);
    all.error = best.error;
    all.way = best.way;
    best = std::move(all);
  }
  SLM_RETURN_IF_ERROR(CheckRange(t, form, best));
  best.relative_error = RelativeError(t.values, best.values);
  return best;
}

}  // namespace slm::quant
