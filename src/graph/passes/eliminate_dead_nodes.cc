// eliminate_dead_nodes: drops nodes that the logits do not depend on, then values that no node touches, and renumbers the rest.
// Runs last: ValueIds taken before it are void afterwards.
#include <algorithm>

#include "graph/passes/passes.h"

namespace slm::graph {
namespace {

int DropDeadNodes(Graph& g) {
  std::vector<bool> live(g.values.size(), false);
  live[g.output_logits] = true;
  std::vector<bool> keep(g.nodes.size(), false);
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    keep[i] = std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId id) { return live[id]; });
    if (!keep[i]) continue;
    for (ValueId id : n.inputs)
      if (id != kNoValue) live[id] = true;
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < g.nodes.size(); ++i)
    if (keep[i]) nodes.push_back(std::move(g.nodes[i]));
  const int dropped = static_cast<int>(g.nodes.size() - nodes.size());
  g.nodes = std::move(nodes);
  return dropped;
}

int DropUntouchedValues(Graph& g) {
  std::vector<ValueId> new_id(g.values.size(), kNoValue);
  auto touch = [&](ValueId id) {
    if (id != kNoValue) new_id[id] = 0;
  };
  for (ValueId id : {g.input_ids, g.input_positions, g.output_logits}) touch(id);
  for (const Node& n : g.nodes) {
    for (ValueId id : n.inputs) touch(id);
    for (ValueId id : n.outputs) touch(id);
  }
  std::vector<Value> values;
  for (size_t i = 0; i < g.values.size(); ++i) {
    if (new_id[i] == kNoValue) continue;
    new_id[i] = static_cast<ValueId>(values.size());
    values.push_back(std::move(g.values[i]));
  }
  const int dropped = static_cast<int>(g.values.size() - values.size());
  g.values = std::move(values);
  auto renumber = [&](ValueId& id) {
    if (id != kNoValue) id = new_id[id];
  };
  for (ValueId* id : {&g.input_ids, &g.input_positions, &g.output_logits}) renumber(*id);
  for (Node& n : g.nodes) {
    for (ValueId& id : n.inputs) renumber(id);
    for (ValueId& id : n.outputs) renumber(id);
  }
  return dropped;
}

}  // namespace

int EliminateDeadNodes(Graph& g) {
  const int nodes = DropDeadNodes(g);
  return nodes + DropUntouchedValues(g);
}

}  // namespace slm::graph
