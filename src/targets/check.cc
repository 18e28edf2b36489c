// Check: the nodes' verdicts, grouped, and the audits. See targets.h.
#include <algorithm>
#include <tuple>

#include "targets/audit.h"
#include "targets/flat.h"
#include "targets/match.h"

namespace slm::targets {
namespace {

void Group(const Flat& flat, const std::vector<NodeVerdict>& verdicts, Report& report) {
  using Key = std::tuple<std::string, std::string, Verdict, std::string, std::string>;
  std::map<Key, size_t> known;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const NodeVerdict& v = verdicts[i];
    const onnx::Node& n = flat.nodes[i].node;
    int64_t* counts[] = {&report.n_native, &report.n_fallback, &report.n_blocked, &report.n_folded};
    ++*counts[static_cast<size_t>(v.verdict)];
    const auto [at, fresh] = known.try_emplace({n.domain, n.op_type, v.verdict, v.reason, v.warning}, report.ops.size());
    if (fresh)
      report.ops.push_back({n.op_type, n.domain, 0, v.verdict, v.reason, v.replacement, v.applied_by, v.kernel, v.warning, v.source, {}});
    OpFinding& f = report.ops[at->second];
    ++f.count;
    f.nodes.push_back(flat.nodes[i].label);
  }
  const auto rank = [](const OpFinding& f) {
    static constexpr int kOrder[] = {2, 1, 0, 3};  // blocked, fallback, native, folded
    return std::tuple(kOrder[static_cast<size_t>(f.verdict)], -f.count);
  };
  std::stable_sort(report.ops.begin(), report.ops.end(), [&](const OpFinding& a, const OpFinding& b) { return rank(a) < rank(b); });
}

// Only the sources that the report names.
void Sources(const Description& d, Report& report) {
  const auto add = [&](const std::string& key) {
    if (const auto at = d.sources.find(key); at != d.sources.end()) report.sources[key] = at->second;
  };
  for (const OpFinding& f : report.ops) add(f.source);
  for (const Fusion& f : report.fusions) add(f.source);
  for (const Bound& b : report.bounds) add(b.source);
  for (const auto* list : {&report.target_weights, &report.target_activations})
    for (const StoredAs& s : *list) add(s.source);
}

}  // namespace

Result<Report> Check(const onnx::Model& model, const Target& target, const CheckOptions& options) {
  const Description& d = target.description();
  SLM_ASSIGN_OR_RETURN(const Flat flat, Flatten(model, options));
  Placement placed = Place(flat, d);
  Report report;
  report.target = d.name;
  report.title = d.title;
  report.runtime = d.runtime;
  report.static_only = d.static_only;
  report.open_dims = flat.open_dims;
  report.unknown_dims = flat.unknown_dims;
  Group(flat, placed.verdicts, report);
  report.fusions = std::move(placed.fusions);
  report.copies = FindCopies(flat);
  Measure(flat, d, options.context, report);
  for (const auto& [name, v] : flat.values) report.n_unknown_shapes += !v.has_shape && (v.producer >= 0 || v.graph_input);
  Sources(d, report);
  return report;
}

}  // namespace slm::targets
