// Sampling in the order of SamplingOptions: bias, penalties, temperature, top-k, top-p, min-p, draw.
//
// Sources: CTRL (arXiv 1909.05858) for the repetition penalty, OpenAI's API reference for presence and frequency, nucleus
// sampling (arXiv 1904.09751), min-p (arXiv 2407.01082). Compiled with -ffp-contract=off, so that no platform fuses a multiply
// and an add into another rounding.
#include "decode/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"

namespace slm::decode {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kWeightBits = 40;  // 2^20 tokens of the highest weight still add up below 2^64

// Likelier first, the lower id among equals: a total order, so every selection has one answer.
bool Before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// High 64 bits of a * b.
uint64_t MultiplyHigh(uint64_t a, uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<uint64_t>((static_cast<Wide>(a) * b) >> 64);
}

// Moves the candidates that come before the pivot to the front of [c, c + n), the pivot right after them; returns its index.
int Partition(Candidate* c, int n) {
  Candidate *a = c, *m = c + n / 2, *z = c + n - 1;  // median of three goes last
  if (Before(*m, *a)) std::swap(*m, *a);
  if (Before(*z, *a)) std::swap(*z, *a);
  if (Before(*m, *z)) std::swap(*m, *z);
  const Candidate pivot = *z;
  int front = 0;
  for (int i = 0; i < n - 1; ++i)
    if (Before(c[i], pivot)) std::swap(c[i], c[front++]);
  std::swap(c[front], *z);
  return front;
}

Error BadOption(const char* name, const char* range) { return Error(Code::kInvalidArgument, std::string(name) + " must be " + range); }

}  // namespace

Peak FindPeak(std::span<const float> row) {
  // Sixteen independent lanes, so that the compiler may use vector max: a plain running maximum has an order it must keep.
  constexpr size_t kLanes = 16, kBlock = 1024;
  float best = -kInfinity, poison[kLanes] = {};
  size_t best_block = row.size();
  for (size_t begin = 0; begin < row.size(); begin += kBlock) {
    const float* x = row.data() + begin;
    const size_t n = std::min(kBlock, row.size() - begin);
    float lane[kLanes];
    std::fill_n(lane, kLanes, -kInfinity);
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (size_t l = 0; l < kLanes; ++l) {
        lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
        poison[l] += x[i + l] * 0.0f;  // 0, or NaN for ever after a NaN or an infinity
      }
    for (; i < n; ++i) {
      lane[0] = x[i] > lane[0] ? x[i] : lane[0];
      poison[0] += x[i] * 0.0f;
    }
    const float high = *std::max_element(lane, lane + kLanes);
    if (high > best) best = high, best_block = begin;
  }
  Peak peak;
  peak.value = best;
  peak.finite = std::none_of(poison, poison + kLanes, [](float p) { return std::isnan(p); });
  if (best_block == row.size()) return peak;
  peak.id = static_cast<int32_t>(std::find(row.begin() + best_block, row.end(), best) - row.begin());
  return peak;
}

uint64_t WeightOf(double z) {
  if (!(z > -28.0)) return 0;  // exp(-28) is less than 2^-40
  const double y = z * 1.4426950408889634;
  const int n = static_cast<int>(y);  // truncation goes up for negative numbers: f is in (-1, 0], and z = 0 gives 2^40 exactly
  const double f = y - n;
  // 2^f by the series of exp(f ln 2) to degree 10, the coefficients (ln 2)^k / k!: the rest is below (ln 2)^11 / 11! = 4e-10.
  constexpr double kSeries[] = {7.054911620801121e-9,
                                1.0178086009239696e-7,
                                1.3215486790144305e-6,
                                1.5252733804059838e-5,
                                1.5403530393381606e-4,
                                1.3333558146428441e-3,
                                9.618129107628477e-3,
                                5.550410866482158e-2,
                                2.402265069591007e-1,
                                6.931471805599453e-1,
                                1.0};
  double e = 0;
  for (const double c : kSeries) e = e * f + c;
  const double scale = std::bit_cast<double>(static_cast<uint64_t>(1023 + kWeightBits + n) << 52);
  return static_cast<uint64_t>(e * scale + 0.5);
}

Status CheckSampling(const SamplingOptions& o, int vocab_size) {
  if (!(o.temperature >= 0) || o.temperature == kInfinity) return BadOption("temperature", "0 (greedy) or more");
  if (o.top_k < 0) return BadOption("top_k", "0 (off) or more");
  if (!(o.top_p >= 0 && o.top_p <= 1)) return BadOption("top_p", "between 0 and 1 (off)");
  if (!(o.min_p >= 0 && o.min_p <= 1)) return BadOption("min_p", "between 0 (off) and 1");
  if (!(o.repetition_penalty > 0) || o.repetition_penalty == kInfinity) return BadOption("repetition_penalty", "more than 0 (1: off)");
  if (!std::isfinite(o.presence_penalty)) return BadOption("presence_penalty", "a finite number (0: off)");
  if (!std::isfinite(o.frequency_penalty)) return BadOption("frequency_penalty", "a finite number (0: off)");
  if (o.penalty_window < -1) return BadOption("penalty_window", "-1 (all tokens), 0 (none) or a number of tokens");
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0 || id >= vocab_size)
      return Error(Code::kInvalidArgument, "logit_bias names token " + std::to_string(id) + ", the vocabulary has " +
                                               std::to_string(vocab_size) + " (0 to " + std::to_string(vocab_size - 1) + ")");
    if (std::isnan(bias) || bias == kInfinity) return BadOption("logit_bias", "a finite number, or -inf to ban the token");
  }
  return Ok();
}

Status Sampler::Start(const SamplingOptions& options, std::span<const int32_t> prompt) {
  SLM_RETURN_IF_ERROR(CheckSampling(options, vocab_size_));
  options_ = options;
  random_.seed(options.seed);
  n_ = 0;
  const bool repetition = options.repetition_penalty != 1 && options.penalty_window != 0;
  const bool openai = options.presence_penalty != 0 || options.frequency_penalty != 0;
  const size_t v = static_cast<size_t>(vocab_size_), s = static_cast<size_t>(max_context_) + 1;
  adjusts_ = repetition || openai || !options.logit_bias.empty();
  adjusted_.resize(adjusts_ ? v : 0);
  const bool top_k = options.top_k > 0 && options.top_k < vocab_size_;
  candidates_.resize(options.temperature == 0 ? 0 : top_k ? static_cast<size_t>(options.top_k) : v);

  const size_t window = options.penalty_window < 0 ? s : std::min<size_t>(options.penalty_window, s);
  window_.assign(repetition ? window : 0, 0);
  window_counts_.assign(repetition ? v : 0, 0);
  window_next_ = window_size_ = 0;
  if (repetition)
    for (const int32_t t : prompt)
      if (t >= 0 && t < vocab_size_) CountInWindow(t);
  answer_counts_.assign(openai ? v : 0, 0);
  answer_distinct_.clear();
  answer_distinct_.reserve(openai ? s : 0);
  return Ok();
}

void Sampler::CountInWindow(int32_t token) {
  if (window_size_ == window_.size()) --window_counts_[window_[window_next_]];
  else ++window_size_;
  window_[window_next_] = token;
  window_next_ = (window_next_ + 1) % window_.size();
  ++window_counts_[token];
}

void Sampler::Accept(int32_t token) {
  if (!window_.empty()) CountInWindow(token);
  if (!answer_counts_.empty() && answer_counts_[token]++ == 0) answer_distinct_.push_back(token);
}

void Sampler::PenaliseRepetition() {
  // A token occurs several times in the window but pays once: its count is negative while it has paid.
  for (size_t i = 0; i < window_size_; ++i) {
    const int32_t t = window_[i];
    if (window_counts_[t] < 0) continue;
    window_counts_[t] = -window_counts_[t];
    float& x = adjusted_[t];
    x = x > 0 ? x / options_.repetition_penalty : x * options_.repetition_penalty;
  }
  for (size_t i = 0; i < window_size_; ++i) window_counts_[window_[i]] = std::abs(window_counts_[window_[i]]);
}

void Sampler::Adjust(std::span<const float> logits) {
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const auto& [id, bias] : options_.logit_bias) adjusted_[id] += bias;
  PenaliseRepetition();
  for (const int32_t t : answer_distinct_)
    adjusted_[t] -= static_cast<float>(answer_counts_[t]) * options_.frequency_penalty + options_.presence_penalty;
}

void Sampler::GatherTopK(std::span<const float> x) {
  // A heap with the least likely on top. Ids rise, so an equal logit never displaces an earlier one.
  const int k = options_.top_k;
  Candidate* c = candidates_.data();
  for (int i = 0; i < k; ++i) c[i] = {x[i], i, 0};
  std::make_heap(c, c + k, Before);
  for (int i = k; i < static_cast<int>(x.size()); ++i) {
    if (!(x[i] > c[0].logit)) continue;
    std::pop_heap(c, c + k, Before);
    c[k - 1] = {x[i], i, 0};
    std::push_heap(c, c + k, Before);
  }
  std::sort(c, c + k, Before);  // the heap's own order is up to the standard library
  n_ = k;
}

void Sampler::Gather(std::span<const float> x, float max) {
  const double t = options_.temperature, top = max;
  if (options_.top_k > 0 && options_.top_k < vocab_size_) {
    GatherTopK(x);
    for (int i = 0; i < n_; ++i) candidates_[i].weight = WeightOf((candidates_[i].logit - top) / t);
    return;
  }
  n_ = 0;
  // A weight of 0 cannot be drawn: it need not be carried. A tiny temperature rounds the floor to the maximum, which stays in.
  const double floor = top - 28.0 * t;
  for (int i = 0; i < vocab_size_; ++i)
    if (x[i] >= floor) candidates_[n_++] = {x[i], i, WeightOf((x[i] - top) / t)};
}

void Sampler::KeepNucleus() {
  uint64_t total = 0;
  for (int i = 0; i < n_; ++i) total += candidates_[i].weight;
  // Smallest set of the likeliest tokens with at least top_p of the mass, never empty. Quickselect by mass: [0, lo) is in the
  // set, everything from hi on is out, `need` is still missing.
  uint64_t need = std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(options_.top_p) * static_cast<double>(total)));
  int lo = 0, hi = n_;
  while (lo < hi && need > 0) {
    const int pivot = lo + Partition(candidates_.data() + lo, hi - lo);
    uint64_t before = 0;
    for (int i = lo; i < pivot; ++i) before += candidates_[i].weight;
    if (before >= need) {
      hi = pivot;
      continue;
    }
    const uint64_t with_pivot = before + candidates_[pivot].weight;
    need -= std::min(need, with_pivot);
    lo = pivot + 1;
  }
  n_ = std::max(lo, 1);
}

void Sampler::DropUnlikely() {
  // min_p is relative to the likeliest token, whose weight is 2^40 (it is always kept by the filters before).
  const auto least = static_cast<uint64_t>(static_cast<double>(options_.min_p) * static_cast<double>(uint64_t{1} << kWeightBits));
  Candidate* end = std::remove_if(candidates_.data(), candidates_.data() + n_, [&](const Candidate& c) { return c.weight < least; });
  n_ = static_cast<int>(end - candidates_.data());
}

int32_t Sampler::Draw() {
  SLM_ASSERT(n_ > 0);
  uint64_t total = 0;
  for (int i = 0; i < n_; ++i) total += candidates_[i].weight;
  uint64_t at = MultiplyHigh(random_(), total);  // uniform in [0, total)
  for (int i = 0; i < n_; ++i) {
    if (at < candidates_[i].weight) return candidates_[i].id;
    at -= candidates_[i].weight;
  }
  return candidates_[0].id;  // not reached: at < total
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  if (static_cast<int>(logits.size()) != vocab_size_)
    return Error(Code::kInvalidArgument,
                 "a row of " + std::to_string(logits.size()) + " logits for a vocabulary of " + std::to_string(vocab_size_));
  Peak peak = FindPeak(logits);
  if (!peak.finite)
    return Error(Code::kCorrupt, "logits are NaN or infinite", "the weights may be damaged; check the file's sha256, or try --compute f32");
  std::span<const float> x = logits;
  if (adjusts_) {
    Adjust(logits);
    x = adjusted_;
    peak = FindPeak(x);
  }
  if (peak.value == kInfinity)
    return Error(Code::kInvalidArgument, "logit_bias or a penalty makes a logit infinite", "use smaller numbers");
  if (peak.id < 0) return Error(Code::kInvalidArgument, "logit_bias bans every token", "leave at least one token unbanned");
  if (options_.temperature == 0) return peak.id;
  Gather(x, peak.value);
  if (options_.top_p < 1) KeepNucleus();
  if (options_.min_p > 0) DropUnlikely();
  return Draw();
}

}  // namespace slm::decode
