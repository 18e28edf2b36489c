// See check_report.h.
#include "check_report.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

namespace slm::cli {
namespace {

using nlohmann::ordered_json;
using targets::Fusion;
using targets::OpFinding;
using targets::Report;
using targets::Verdict;

ordered_json OrNull(const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); }
ordered_json OrNull(int64_t n) { return n < 0 ? ordered_json(nullptr) : ordered_json(n); }

const char* FormName(Fusion::Form form) {
  switch (form) {
    case Fusion::Form::kOperator: return "operator";
    case Fusion::Form::kInside: return "inside";
    case Fusion::Form::kDecomposed: return "decomposed";
  }
  return "";
}

void AddOps(const CheckedGraph& g, ordered_json& out) {
  for (const OpFinding& f : g.report.ops)
    out.push_back({{"op", f.op},
                   {"domain", f.domain},
                   {"count", f.count},
                   {"verdict", targets::VerdictName(f.verdict)},
                   {"reason", OrNull(f.reason)},
                   {"replacement", OrNull(f.replacement)},
                   {"applied_by", OrNull(f.applied_by)},
                   {"kernel", OrNull(f.kernel)},
                   {"warning", OrNull(f.warning)},
                   {"source", OrNull(f.source)},
                   {"graph", g.name},
                   {"nodes", f.nodes}});
}
void AddFusions(const CheckedGraph& g, ordered_json& out) {
  for (const Fusion& f : g.report.fusions)
    out.push_back({{"what", f.what},
                   {"form", FormName(f.form)},
                   {"one_kernel", f.one_kernel},
                   {"kernel", OrNull(f.kernel)},
                   {"note", OrNull(f.note)},
                   {"source", OrNull(f.source)},
                   {"graph", g.name},
                   {"nodes", f.nodes}});
}
void AddCopies(const CheckedGraph& g, ordered_json& out) {
  for (const targets::Copy& c : g.report.copies)
    out.push_back(
        {{"what", c.what}, {"count", c.count}, {"bytes", c.bytes}, {"unknown", c.n_unknown}, {"graph", g.name}, {"nodes", c.nodes}});
}
void AddBounds(const CheckedGraph& g, ordered_json& out) {
  for (const targets::Bound& b : g.report.bounds)
    out.push_back({{"what", b.what},
                   {"most", b.most},
                   {"is", OrNull(b.is)},
                   {"kept", b.kept()},
                   {"note", OrNull(b.note)},
                   {"source", b.source},
                   {"graph", g.name}});
}

ordered_json Schemes(const std::vector<targets::StoredAs>& list) {
  ordered_json out = ordered_json::array();
  for (const targets::StoredAs& s : list) out.push_back({{"scheme", s.scheme}, {"note", OrNull(s.note)}, {"source", OrNull(s.source)}});
  return out;
}
void AddWeights(const CheckedGraph& g, ordered_json& out) {
  for (const targets::StoredAs& s : g.report.weights) out.push_back({{"scheme", s.scheme}, {"count", s.count}, {"graph", g.name}});
}

std::string OpName(const OpFinding& f) { return f.domain.empty() ? f.op : f.domain + "." + f.op; }

std::string Mega(int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

std::string Names(const std::vector<std::string>& nodes, int64_t count) {
  std::string out;
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < nodes.size() && i < kShown; ++i) out += (i ? ", " : "") + nodes[i];
  return count > static_cast<int64_t>(kShown) ? out + fmt::format(", … ({} in all)", count) : out;
}

std::string OpsText(const Report& r) {
  std::string out;
  for (const OpFinding& f : r.ops) {
    out +=
        fmt::format("  {:8}  {:5} x {}{}\n", targets::VerdictName(f.verdict), f.count, OpName(f), f.reason.empty() ? "" : ": " + f.reason);
    const std::string indent(20, ' ');
    if (!f.replacement.empty())
      out += fmt::format("{}instead: {} ({})\n", indent, f.replacement,
                         f.applied_by.empty() ? "no verb of slm does that yet" : f.applied_by + " does that");
    if (!f.warning.empty()) out += fmt::format("{}note: {}\n", indent, f.warning);
    if (f.verdict == Verdict::kFallback || f.verdict == Verdict::kBlocked)
      out += fmt::format("{}at {}; source: {}\n", indent, Names(f.nodes, f.count), f.source);
  }
  return out;
}

std::string FusionsText(const Report& r) {
  std::string out;
  std::map<std::string, std::pair<int, int>> kept;  // what -> in one kernel, all
  for (const Fusion& f : r.fusions) {
    kept[f.what].first += f.one_kernel;
    ++kept[f.what].second;
  }
  for (const auto& [what, n] : kept) out += fmt::format("  {}: {} of {} in one kernel\n", what, n.first, n.second);
  constexpr int kShown = 12;
  int shown = 0, left = 0;
  for (const Fusion& f : r.fusions) {
    if (f.one_kernel) continue;
    if (++shown > kShown) {
      ++left;
      continue;
    }
    out += fmt::format("    {} {}: {} ({})\n", f.what, FormName(f.form), f.note, Names(f.nodes, static_cast<int64_t>(f.nodes.size())));
  }
  return left > 0 ? out + fmt::format("    and {} more (--json lists them)\n", left) : out;
}

std::string GraphText(const CheckedGraph& g) {
  const Report& r = g.report;
  std::string out = fmt::format("{}: {} native, {} fall back, {} blocked, {} folded at load\n", g.name, r.n_native, r.n_fallback,
                                r.n_blocked, r.n_folded);
  out += OpsText(r);
  if (!r.fusions.empty()) out += "fusion\n" + FusionsText(r);
  if (!r.copies.empty()) out += "copies\n";
  for (const targets::Copy& c : r.copies)
    out += fmt::format("  {:5} x {}: {}{}, at {}\n", c.count, c.what, Mega(c.bytes),
                       c.n_unknown > 0 ? fmt::format(" and {} of unknown size", c.n_unknown) : "", Names(c.nodes, c.count));
  out += "memory and shapes\n";
  out += fmt::format("  weights {}, KV cache {}\n", Mega(r.weights_bytes),
                     r.kv_bytes < 0 ? "unknown (--ctx gives its length)" : Mega(r.kv_bytes));
  for (const targets::StoredAs& s : r.weights) out += fmt::format("  {:5} x weights of {}\n", s.count, s.scheme);
  for (const targets::StoredAs& s : r.target_weights)
    out += fmt::format("  the target takes {}{}\n", s.scheme, s.note.empty() ? "" : " (" + s.note + ")");
  for (const targets::Bound& b : r.bounds)
    out += fmt::format("  {}: {} of {}{}{}\n", b.what, b.is < 0 ? "unknown" : Mega(b.is), Mega(b.most), b.kept() ? "" : ", TOO MUCH",
                       b.note.empty() ? "" : "; " + b.note);
  if (!r.open_dims.empty()) {
    std::string dims;
    for (const std::string& d : r.open_dims) dims += (dims.empty() ? "" : ", ") + d;
    out += fmt::format("  open dimensions: {}{}\n", dims,
                       r.static_only ? "; this target takes none: --dim NAME=N tells what a fixed graph would be" : "");
  }
  if (r.n_unknown_shapes > 0)
    out += fmt::format("  {} values of unknown shape: their ranks and sizes were not checked\n", r.n_unknown_shapes);
  return out;
}

}  // namespace

ordered_json CheckJson(const std::string& model, const std::vector<CheckedGraph>& graphs) {
  ordered_json ops = ordered_json::array(), fusions = ordered_json::array(), copies = ordered_json::array(), bounds = ordered_json::array();
  ordered_json sources = ordered_json::object(), shapes = ordered_json::array(), notes = ordered_json::array();
  ordered_json stored = ordered_json::array();
  int64_t counts[4] = {}, weights = 0, kv = -1;
  bool fits = true;
  for (const CheckedGraph& g : graphs) {
    const Report& r = g.report;
    counts[0] += r.n_native, counts[1] += r.n_fallback, counts[2] += r.n_blocked, counts[3] += r.n_folded;
    weights += r.weights_bytes;
    if (r.kv_bytes >= 0) kv = std::max<int64_t>(kv, 0) + r.kv_bytes;
    fits &= !r.blocked();
    AddOps(g, ops), AddFusions(g, fusions), AddCopies(g, copies), AddBounds(g, bounds), AddWeights(g, stored);
    for (const auto& [key, text] : r.sources) sources[key] = text;
    for (const std::string& n : r.notes) notes.push_back(n);
    shapes.push_back({{"graph", g.name}, {"static_only", r.static_only}, {"open_dims", r.open_dims}, {"unknown", r.n_unknown_shapes}});
  }
  const Report& first = graphs.front().report;
  const ordered_json schemes = {
      {"model", stored}, {"target_weights", Schemes(first.target_weights)}, {"target_activations", Schemes(first.target_activations)}};
  return {{"target", first.target},
          {"title", first.title},
          {"runtime", first.runtime},
          {"model", model},
          {"supported", counts[0]},
          {"fallback", counts[1]},
          {"blocked", counts[2]},
          {"folded", counts[3]},
          {"fits", fits},
          {"ops", ops},
          {"fusions", fusions},
          {"copies", copies},
          {"memory", {{"weights_bytes", weights}, {"kv_bytes", OrNull(kv)}}},
          {"bounds", bounds},
          {"schemes", schemes},
          {"shapes", shapes},
          {"notes", notes},
          {"sources", sources}};
}

std::string CheckText(const std::string& model, const std::vector<CheckedGraph>& graphs) {
  const Report& first = graphs.front().report;
  std::string out = fmt::format("{} on {} ({}; {})\n", model, first.target, first.title, first.runtime);
  std::map<std::string, std::string> sources;
  for (const CheckedGraph& g : graphs) {
    out += GraphText(g);
    for (const std::string& n : g.report.notes) out += "  " + n + "\n";
    sources.insert(g.report.sources.begin(), g.report.sources.end());
  }
  out += "sources\n";
  for (const auto& [key, text] : sources) out += fmt::format("  {}: {}\n", key, text);
  return out;
}

}  // namespace slm::cli
