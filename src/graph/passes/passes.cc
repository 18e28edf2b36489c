// RunPasses: each pass named, timed, optional, and verified after it ran (the manner of DuckDB's optimizer).
#include "graph/passes/passes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"

namespace slm::graph {
namespace {

constexpr Pass kPasses[] = {
#define SLM_PASS(function, name) {name, function},
#include "graph/passes/passes.inc"
#undef SLM_PASS
};

Status CheckNames(std::span<const std::string> off) {
  for (const std::string& name : off) {
    const bool known = name == "all" || std::any_of(std::begin(kPasses), std::end(kPasses), [&](const Pass& p) { return name == p.name; });
    if (known) continue;
    std::string list = "all";
    for (const Pass& p : kPasses) list += std::string(", ") + p.name;
    return Error(Code::kInvalidArgument, fmt::format("graph: no pass is named \"{}\"", name), "known: " + list);
  }
  return Ok();
}

}  // namespace

std::span<const Pass> AllPasses() { return kPasses; }

Status RunPasses(Graph& g, std::span<const std::string> off, const PassObserver& observer) {
  SLM_RETURN_IF_ERROR(CheckNames(off));
  for (const Pass& pass : kPasses) {
    const bool is_off = std::any_of(off.begin(), off.end(), [&](const std::string& name) { return name == "all" || name == pass.name; });
    PassReport report{pass.name, 0, 0, is_off ? PassReport::State::kOff : PassReport::State::kRan};
    if (!is_off) {
      const int64_t start = NowNs();
      report.applied = pass.run(g);
      report.ns = NowNs() - start;
      for (const Status& s : {InferShapes(g), Verify(g)})
        if (!s.ok())
          return Error(Code::kInternal, s.error().message(), fmt::format("switch the pass \"{}\" off and report this", pass.name))
              .At(pass.name);
    }
    if (observer) observer(report, g);
  }
  return Ok();
}

void Rewrite::Replace(std::span<const int> nodes, int at, std::vector<Node> with) {
  SLM_ASSERT(std::find(nodes.begin(), nodes.end(), at) != nodes.end());
  for (int n : nodes) SLM_ASSERT(removed_.insert(n).second);
  inserted_[at] = std::move(with);
}

int Rewrite::Apply() {
  if (inserted_.empty()) return 0;
  std::vector<Node> nodes;
  nodes.reserve(g_.nodes.size());
  for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
    if (auto it = inserted_.find(i); it != inserted_.end())
      for (Node& n : it->second) nodes.push_back(std::move(n));
    if (!removed_.count(i)) nodes.push_back(std::move(g_.nodes[i]));
  }
  g_.nodes = std::move(nodes);
  return static_cast<int>(inserted_.size());
}

int SoleConsumer(const Graph& g, ValueId id) {
  if (id == g.output_logits) return -1;
  const std::vector<int> users = g.ConsumersOf(id);
  return users.size() == 1 ? users[0] : -1;
}

}  // namespace slm::graph
