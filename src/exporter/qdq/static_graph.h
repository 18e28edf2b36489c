// The plain graph with fixed shapes in ONNX's own operators, all float: what QDQ is put around. Not a door.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "exporter/qdq/qdq.h"
#include "graph/graph.h"
#include "onnx/onnx.h"

namespace slm::exporter {

// Rows of heads that the rotation pairs as neighbours (2i, 2i + 1), put in the order in which it pairs halves (i, i + R / 2): the operators
// of the graph then are slices. Scores do not change when queries and keys change alike.
struct HeadOrder {
  int64_t heads = 0, head_dim = 0, rotary_dim = 0;  // heads 0: as they are
  int64_t Source(int64_t row) const;                // of the row `row` after the change
};
// `values` by row, `width` values each, in that order.
std::vector<float> Reordered(const std::vector<float>& values, int64_t width, const HeadOrder& order);

// A matrix [N, K] that an initializer holds as [K, N].
struct MatrixUse {
  graph::ValueId value = graph::kNoValue;
  HeadOrder order;   // of its rows
  float factor = 1;  // on all values
};
struct VectorUse {
  std::vector<int64_t> dims;
  std::vector<float> values;
};
// Where a value's range is found: calibration's name for it, and what it was multiplied by since.
struct RangeKey {
  std::string name;
  float factor = 1;
};

struct StaticGraph {
  int64_t tokens = 1;
  onnx::Graph graph;                          // inputs and outputs float; initializers: whole numbers, written out
  std::map<std::string, MatrixUse> matrices;  // initializers to be, by name
  std::map<std::string, VectorUse> vectors;
  std::map<std::string, RangeKey> ranges;  // values whose range has another name than they have
  std::set<std::string> cache_entries;     // keys and values of this call, which are outputs
  std::set<std::string> cache;             // keys and values of all slots: past inputs, and joined
  std::vector<StaticInput> inputs;         // all but the cache's; tables by name
  std::set<std::string> masked_scores;     // sums with a mask
  int64_t mask_repeats = 1;
  float embedding_factor = 1;         // on the rows of the table
  std::shared_ptr<const void> bytes;  // of the initializers
};

// Errors: kUnsupported naming the node.
Result<StaticGraph> BuildStaticGraph(const graph::Graph& g, int64_t tokens, int64_t slots, KeyRotation keys);

}  // namespace slm::exporter
