// See golden.h.
#include "eval/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "eval/log_sum_exp.h"

namespace slm::eval {
namespace {

GoldenStep StepOf(std::span<const float> row, int n_top) {
  const size_t n = std::min(static_cast<size_t>(n_top), row.size());
  GoldenStep step;
  step.ids.resize(row.size());
  std::iota(step.ids.begin(), step.ids.end(), 0);
  const auto logit = [&](int32_t id) { return row[static_cast<size_t>(id)]; };
  std::partial_sort(step.ids.begin(), step.ids.begin() + static_cast<std::ptrdiff_t>(n), step.ids.end(),
                    [&](int32_t a, int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  step.ids.resize(n);
  const double all = LogSumExp(row);
  for (const int32_t id : step.ids) step.log_probs.push_back(logit(id) - all);
  return step;
}

// What is left of 1; rounding may leave less than nothing.
double Rest(double sum) { return std::max(0.0, 1 - sum); }

double DivergenceOf(const GoldenStep& step, std::span<const float> row) {
  const double all = LogSumExp(row);
  double kld = 0, ours = 0, recorded = 0;
  for (size_t i = 0; i < step.ids.size(); ++i) {
    const double p = std::exp(step.log_probs[i]), log_q = row[static_cast<size_t>(step.ids[i])] - all;
    kld += p * (step.log_probs[i] - log_q);
    recorded += p;
    ours += std::exp(log_q);
  }
  constexpr double kLeast = 1e-12;  // a rest below this is rounding
  const double p = Rest(recorded), q = std::max(Rest(ours), kLeast);
  if (p > kLeast) kld += p * std::log(p / q);
  return std::max(0.0, kld);
}

Status CheckRoom(const backend::Capabilities& c, size_t prompt, size_t steps) {
  if (prompt == 0 || steps == 0) return Error(Code::kInvalidArgument, "a golden answer needs a prompt and a step", "give both");
  if (prompt + steps <= static_cast<size_t>(c.max_context)) return Ok();
  return Error(Code::kInvalidArgument,
               fmt::format("a prompt of {} tokens and {} steps do not fit the context of {} tokens", prompt, steps, c.max_context),
               "give a shorter prompt, or fewer steps");
}

Status CheckIds(const GoldenAnswer& a, int vocab_size) {
  const auto outside = [&](const std::vector<int32_t>& ids) {
    return std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
  };
  bool bad = outside(a.prompt) || outside(a.answer) || a.steps.size() != a.answer.size();
  for (const GoldenStep& s : a.steps) bad = bad || s.ids.empty() || s.ids.size() != s.log_probs.size() || outside(s.ids);
  return bad ? Status(Error(Code::kInvalidArgument, fmt::format("an answer does not fit a vocabulary of {} tokens", vocab_size),
                            "record it again with this model"))
             : Ok();
}

Status Proceed(const GoldenProgress& progress) { return !progress || progress() ? Ok() : Status(Error(Code::kCancelled, "interrupted")); }

Result<backend::Logits> Prefill(backend::Backend& b, std::span<const int32_t> prompt) {
  SLM_RETURN_IF_ERROR(b.Rewind(0));
  backend::Logits logits;
  for (size_t at = 0; at < prompt.size();) {
    const size_t n = std::min(prompt.size() - at, static_cast<size_t>(b.capabilities().max_tokens));
    SLM_ASSIGN_OR_RETURN(logits, b.Forward(prompt.subspan(at, n), backend::LogitsOf::kLastToken));
    at += n;
  }
  return logits;
}

}  // namespace

Result<GoldenAnswer> RecordGolden(backend::Backend& backend, std::span<const int32_t> prompt, int n_steps, int n_top,
                                  const GoldenProgress& progress) {
  SLM_RETURN_IF_ERROR(CheckRoom(backend.capabilities(), prompt.size(), static_cast<size_t>(std::max(0, n_steps))));
  GoldenAnswer golden;
  golden.prompt.assign(prompt.begin(), prompt.end());
  SLM_ASSIGN_OR_RETURN(backend::Logits logits, Prefill(backend, prompt));
  for (int i = 0; i < n_steps; ++i) {
    SLM_RETURN_IF_ERROR(Proceed(progress));
    golden.steps.push_back(StepOf(logits.Row(0), n_top));
    golden.answer.push_back(golden.steps.back().ids[0]);
    if (i + 1 == n_steps) break;
    SLM_ASSIGN_OR_RETURN(logits, backend.Forward({&golden.answer.back(), 1}, backend::LogitsOf::kLastToken));
  }
  return golden;
}

Result<GoldenMatch> CompareGolden(backend::Backend& backend, std::span<const GoldenAnswer> answers, const GoldenProgress& progress) {
  GoldenMatch match;
  double sum = 0;
  for (const GoldenAnswer& a : answers) {
    SLM_RETURN_IF_ERROR(CheckIds(a, backend.capabilities().vocab_size));
    SLM_RETURN_IF_ERROR(CheckRoom(backend.capabilities(), a.prompt.size(), a.answer.size()));
    SLM_ASSIGN_OR_RETURN(backend::Logits logits, Prefill(backend, a.prompt));
    for (size_t i = 0; i < a.steps.size(); ++i) {
      SLM_RETURN_IF_ERROR(Proceed(progress));
      const auto row = logits.Row(0);
      const double kld = DivergenceOf(a.steps[i], row);
      sum += kld;
      match.max_kld = std::max(match.max_kld, kld);
      match.same_top += std::max_element(row.begin(), row.end()) - row.begin() == a.steps[i].ids[0] ? 1 : 0;
      ++match.steps;
      if (i + 1 == a.steps.size()) break;
      const int64_t start_ns = NowNs();
      SLM_ASSIGN_OR_RETURN(logits, backend.Forward({&a.answer[i], 1}, backend::LogitsOf::kLastToken));
      match.step_ns.push_back(NowNs() - start_ns);
    }
  }
  match.mean_kld = match.steps > 0 ? sum / static_cast<double>(match.steps) : 0;
  return match;
}

int64_t NearestRank(std::vector<int64_t> times, double share) {
  if (times.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(times.size())));
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(std::clamp<size_t>(rank, 1, times.size()) - 1);
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

}  // namespace slm::eval
