// See quantize_types.h.
#include "quantize_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "quantize_json.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

// Of what is asked for, when nothing was measured yet: half of the files would miss a budget that is spent to the last.
constexpr double kFirstShare = 0.85;
// After a miss. More than proportion asks for, and more each time: a part of what was measured (embedding, head, the text) does not shrink
// with the layers' loss, and the last try is by far the largest file.
constexpr double kSecondShare = 0.75, kThirdShare = 0.5;
constexpr double kStep = 0.9;  // to the next larger file, where a budget gives the one before

std::map<DType, int> CountsOf(const quant::Plan& plan) {
  std::map<DType, int> counts;
  for (const quant::Choice& c : plan.choices)
    if (c.is_body) ++counts[c.dtype];
  return counts;
}

// Embedding and head where their types were chosen, too.
std::map<std::string, DType> VocabularyOf(const quant::Plan& plan) {
  std::map<std::string, DType> types;
  for (const quant::Choice& c : plan.choices)
    if (c.is_vocabulary && plan.recipe.measures_vocabulary) types[c.tensor->name] = c.dtype;
  return types;
}

ordered_json PointJson(const quant::ExpectedPoint& p) { return {{"body_bpw", p.body_bpw}, {"bytes", p.bytes}, {"kld", p.kld}}; }

}  // namespace

std::optional<double> NextBudget(std::span<const Try> tries, double most_kld) {
  if (tries.empty()) return kFirstShare * most_kld;
  if (tries.size() + 1 >= kMostTries) return std::nullopt;
  const Try& before = tries.back();
  return (tries.size() == 1 ? kSecondShare : kThirdShare) * before.expected.kld * std::min(1.0, most_kld / before.kld);
}

Result<Try> ChooseTypes(const quant::Sensitivities& sensitivities, std::span<const Try> tries, quant::Plan* plan) {
  const quant::Recipe& r = plan->recipe;
  Try next;
  if (!r.most_kld) {
    const auto kind = r.bpw <= 0 && r.body_bpw_is_wish ? quant::BudgetKind::kWish : quant::BudgetKind::kFirm;
    SLM_ASSIGN_OR_RETURN(next.expected, quant::AllocateTypes(sensitivities, {.body_bpw = r.body_bpw, .bpw = r.bpw, .kind = kind}, plan));
    return next;
  }
  quant::Plan best = *plan;
  SLM_ASSIGN_OR_RETURN(const quant::ExpectedPoint least, quant::AllocateTypes(sensitivities, {}, &best));
  for (std::optional<double> budget = NextBudget(tries, *r.most_kld); budget && *budget > least.kld; *budget *= kStep) {
    SLM_ASSIGN_OR_RETURN(next.expected, quant::AllocateTypes(sensitivities, {.kld = *budget}, plan));
    if (next.expected.kld <= least.kld) break;
    if (tries.empty() || next.expected.bytes > tries.back().expected.bytes) return next;
  }
  *plan = std::move(best);
  next.expected = least;
  next.last = true;
  return next;
}

std::vector<std::string> GridNotes(const quant::Sensitivities& s) {
  const auto bits = [](DType t) { return static_cast<double>(Info(t).block_bytes) / Info(t).block; };
  std::vector<std::string> notes;
  for (size_t t = 0; t < s.types.size(); ++t) {
    // Fewer bits that lose less than half of what more bits do; nothing at all, but for how the source stores its values.
    const auto lies = [&](const quant::MatrixSensitivity& one) {
      for (size_t more = 0; more < s.types.size(); ++more)
        if (bits(s.types[more]) > bits(s.types[t]) && one.errors[t] >= 0 && one.errors[t] < 0.5 * one.errors[more]) return true;
      return false;
    };
    if (const auto n = std::count_if(s.matrices.begin(), s.matrices.end(), lies); n > 0)
      notes.push_back(
          fmt::format("{} matrices lie on the grid of {}, as after dequantizing: it loses nothing of them; --types leaves it out", n,
                      LowerName(s.types[t])));
  }
  return notes;
}

std::string TypesText(const quant::Plan& plan, const Try& chosen) {
  std::string text;
  for (const auto& [dtype, n] : CountsOf(plan)) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, LowerName(dtype));
  const auto vocabulary = VocabularyOf(plan);
  for (const auto& [name, dtype] : vocabulary) text += fmt::format("; {} {}", name, LowerName(dtype));
  return fmt::format("types by sensitivity: {}; expected KLD{} {:.6f}", text, vocabulary.empty() ? " of the layers" : "",
                     chosen.expected.kld);
}

std::string TryText(size_t number, const Try& one, double most_kld) {
  return fmt::format("try {}: {:.3f} bits in the layers, expected KLD {:.6f}, measured {:.6f}: {} {}", number, one.expected.body_bpw,
                     one.expected.kld, one.kld, one.kld <= most_kld ? "keeps to" : "misses", most_kld) +
         (one.last && one.kld > most_kld ? "; nothing loses less" : "");
}

ordered_json AllocationJson(const quant::Sensitivities& s, const quant::Plan& plan, std::span<const Try> tries) {
  ordered_json j;
  j["types"] = ordered_json::object();
  for (const auto& [dtype, n] : CountsOf(plan)) j["types"][LowerName(dtype)] = n;
  j["vocabulary"] = ordered_json::object();
  for (const auto& [name, dtype] : VocabularyOf(plan)) j["vocabulary"][name] = LowerName(dtype);
  j["together"] = s.together;
  j["tokens"] = s.tokens;
  j["expected"] = PointJson(tries.back().expected);
  j["curve"] = ordered_json::array();
  for (const quant::ExpectedPoint& p : quant::ExpectedCurve(s, plan)) j["curve"].push_back(PointJson(p));
  j["tries"] = ordered_json::array();
  for (const Try& t : tries) {
    j["tries"].push_back(PointJson(t.expected));
    j["tries"].back()["measured"] = t.kld > 0 ? ordered_json(t.kld) : ordered_json(nullptr);
  }
  return j;
}

ordered_json SensitivityJson(const quant::Sensitivities& s, const quant::Choice& choice) {
  const auto one =
      std::find_if(s.matrices.begin(), s.matrices.end(), [&](const quant::MatrixSensitivity& m) { return m.tensor == choice.tensor; });
  if (one == s.matrices.end()) return nullptr;
  ordered_json errors = ordered_json::object();
  double loss = 0;
  for (size_t t = 0; t < s.types.size(); ++t) {
    if (one->errors[t] < 0) continue;
    errors[LowerName(s.types[t])] = one->errors[t];
    if (s.types[t] == choice.dtype) loss = one->Loss(t);
  }
  return {{"kld", one->kld}, {"errors", errors}, {"loss", loss}};
}

}  // namespace slm::cli
