// See legalize_report.h.
#include "legalize_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

namespace slm::cli {
namespace {

using legalize::Comparison;
using legalize::Report;
using nlohmann::ordered_json;

const char* OutcomeName(Comparison::Outcome o) {
  switch (o) {
    case Comparison::Outcome::kEqual: return "equal";
    case Comparison::Outcome::kDiffers: return "differs";
    case Comparison::Outcome::kTooLarge: return "too large";
    case Comparison::Outcome::kNoRun: return "not run";
  }
  return "";
}

ordered_json ComparisonJson(const Comparison& c) {
  const bool known = c.outcome == Comparison::Outcome::kEqual || c.outcome == Comparison::Outcome::kDiffers;
  return {{"outcome", OutcomeName(c.outcome)},
          {"largest", known ? ordered_json(c.largest) : ordered_json(nullptr)},
          {"allowed", known ? ordered_json(c.allowed) : ordered_json(nullptr)},
          {"why", c.why.empty() ? ordered_json(nullptr) : ordered_json(c.why)}};
}

ordered_json CountsJson(const legalize::Counts& c) {
  return {{"native", c.native}, {"fallback", c.fallback}, {"blocked", c.blocked}, {"folded", c.folded}};
}
std::string CountsText(const legalize::Counts& c) {
  return fmt::format("{} native, {} fall back, {} blocked, {} folded at load", c.native, c.fallback, c.blocked, c.folded);
}

std::string ComparisonText(const Comparison& c) {
  if (c.outcome == Comparison::Outcome::kEqual) return fmt::format("largest difference {:.2g} of {:.2g} allowed", c.largest, c.allowed);
  return std::string("not verified, ") + OutcomeName(c.outcome) + ": " + c.why;
}

std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  return names.size() > kShown ? fmt::format("{}, … ({} in all)", fmt::join(first, ", "), names.size())
                               : fmt::format("{}", fmt::join(first, ", "));
}

// Rewrites of one kind together: the worst comparison, all nodes.
struct Kind {
  Comparison worst;
  std::vector<std::string> nodes, unverified;
};

}  // namespace

ordered_json LegalizeJson(const std::string& model, const Report& r) {
  ordered_json rewritten = ordered_json::array(), refused = ordered_json::array(), left = ordered_json::array();
  for (const legalize::Rewritten& w : r.rewritten)
    rewritten.push_back(
        {{"node", w.node}, {"op", w.op}, {"rewrites", w.rewrites}, {"made", w.made}, {"comparison", ComparisonJson(w.comparison)}});
  for (const legalize::Refused& w : r.refused) refused.push_back({{"node", w.node}, {"op", w.op}, {"rewrites", w.rewrite}, {"why", w.why}});
  for (const legalize::Left& l : r.left)
    left.push_back({{"node", l.node},
                    {"op", l.op},
                    {"verdict", targets::VerdictName(l.verdict)},
                    {"reason", l.reason},
                    {"tried", l.tried.empty() ? ordered_json(nullptr) : ordered_json(l.tried)}});
  return {{"target", r.target},
          {"title", r.title},
          {"model", model},
          {"before", CountsJson(r.before)},
          {"after", CountsJson(r.after)},
          {"all_native", r.all_native()},
          {"computed", r.n_folded},
          {"opset", {{"before", r.opset_before}, {"after", r.opset}}},
          {"rewritten", rewritten},
          {"refused", refused},
          {"left", left},
          {"open_dims", r.open_dims},
          {"whole", ComparisonJson(r.whole)},
          {"notes", r.notes}};
}

std::string LegalizeText(const std::string& model, const Report& r) {
  std::string out = fmt::format("{} for {} ({})\n", model, r.target, r.title);
  out += fmt::format("before: {}\n", CountsText(r.before));
  out += fmt::format("after:  {}\n", CountsText(r.after));
  if (r.n_folded > 0) out += fmt::format("{} nodes computed, their inputs are fixed\n", r.n_folded);
  if (r.opset != r.opset_before) out += fmt::format("operator set {} instead of {}\n", r.opset, r.opset_before);
  using Key = std::tuple<std::string, std::string>;  // operator, rewrites
  std::map<Key, Kind> kinds;
  std::vector<Key> order;
  for (const legalize::Rewritten& w : r.rewritten) {
    const Key key{w.op, fmt::format("{}", fmt::join(w.rewrites, " + "))};
    if (!kinds.contains(key)) order.push_back(key);
    Kind& k = kinds[key];
    const bool known = w.comparison.outcome == Comparison::Outcome::kEqual;
    (known ? k.nodes : k.unverified).push_back(w.node);
    if (!known || w.comparison.largest >= k.worst.largest || k.nodes.size() == 1) k.worst = w.comparison;
  }
  for (const Key& key : order) {
    const Kind& k = kinds[key];
    out += fmt::format("  {:5} x {}: {}; {}\n", k.nodes.size() + k.unverified.size(), std::get<0>(key), std::get<1>(key),
                       ComparisonText(k.worst));
    if (!k.nodes.empty()) out += fmt::format("          at {}\n", Some(k.nodes));
    if (!k.unverified.empty()) out += fmt::format("          too large to verify: {}\n", Some(k.unverified));
  }
  for (const legalize::Refused& w : r.refused) out += fmt::format("  not rewritten: {} ({}) by {}: {}\n", w.node, w.op, w.rewrite, w.why);
  for (const legalize::Left& l : r.left)
    out += fmt::format("  {}: {} ({}): {}; {}\n", targets::VerdictName(l.verdict), l.node, l.op, l.reason,
                       l.tried.empty() ? "no rewrite" : l.tried);
  if (!r.open_dims.empty()) out += fmt::format("open dimensions: {}; --dim NAME=N fixes them\n", fmt::join(r.open_dims, ", "));
  out += fmt::format("whole graph: {}\n", ComparisonText(r.whole));
  for (const std::string& n : r.notes) out += n + "\n";
  return out;
}

}  // namespace slm::cli
