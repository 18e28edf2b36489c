// Declarations of the passes in passes.inc, one file each, and what they share. Not a door: callers use AllPasses, RunPasses.
// Every pass returns how often it applied, keeps the topological order, and leaves values that nothing uses for the last pass.
#pragma once
#include <map>
#include <set>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace slm::graph {

#define SLM_PASS(function, name) int function(Graph& g);
#include "graph/passes/passes.inc"
#undef SLM_PASS

// Collects the matches of one scan over an unchanged graph, then rebuilds the node list once. A node belongs to at most one match.
class Rewrite {
 public:
  explicit Rewrite(Graph& g) : g_(g) {}
  bool Touched(int node) const { return removed_.count(node) > 0; }
  // Removes `nodes` and puts `with` where node `at` was (which is one of `nodes`).
  void Replace(std::span<const int> nodes, int at, std::vector<Node> with);
  // Applies all; returns how many Replace calls there were.
  int Apply();

 private:
  Graph& g_;
  std::set<int> removed_;
  std::map<int, std::vector<Node>> inserted_;
};

// The only consumer of a value, or -1 when it has none, several, or is the graph's output.
int SoleConsumer(const Graph& g, ValueId id);

// Whether these Gemms can become one: the same x, weights and biases that are file tensors used nowhere else, one storage type for
// all weights (a consumer packs a constant in one kind), biases on all or on none.
bool CanStackGemms(const Graph& g, std::span<const int> gemms);

// The stacked Gemm of such nodes: one constant with all parts, output [T, sum of N]. `name` names the node and its output.
Node StackGemms(Graph& g, std::span<const int> gemms, const std::string& name);

}  // namespace slm::graph
