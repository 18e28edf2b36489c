// Shape rules of one node, shared by InferShapes (which writes them) and Verify (which compares). Not a door.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/ir.h"

namespace slm::graph {

// How many inputs (trailing optional ones may be left out or kNoValue) and outputs an operator takes. 0 max_outputs: any.
struct Arity {
  int min_inputs, max_inputs, min_outputs, max_outputs;
};
Arity ArityOf(Op op);

// Shapes of the outputs of `node` from its inputs' shapes; Reshape and Split read the shapes their outputs already carry.
// Errors: kCorrupt naming the rule (not the node: the caller does).
Result<std::vector<Shape>> InferNode(const Graph& g, const Node& node);

// Product of the dimensions with T counted as 1: values per token, or of the whole when there is no T.
int64_t ValuesPerToken(const Shape& shape);

// "[T, 576]"
std::string ShapeText(const Shape& shape);

}  // namespace slm::graph
