// What lowering decides about a graph before it emits a step: which nodes are absorbed by others, which values share memory,
// how weight matrices are cut.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/cpu.h"
#include "graph/graph.h"

namespace slm::backend {

struct Analysis {
  // By node.
  std::vector<uint8_t> absorbed;               // 1: another step does its work
  std::vector<uint8_t> into_activations;       // norms and gates: the result goes to int8 activations only
  std::vector<int> accumulates;                // Gemm: node of the residual add it performs, or -1
  std::vector<std::vector<int64_t>> segments;  // Gemm: rows by segment
  // By value.
  std::vector<graph::ValueId> owner;  // the value whose slot it shares, or itself
  std::vector<int64_t> column;        // offset inside the owner's row, values
  std::vector<uint8_t> stored;        // 0: never in memory
  std::vector<uint8_t> in_logits;     // lives in the logits buffer
  std::vector<int64_t> row_values;    // 0: as the shape says
  int last_attention = -1;            // node; later nodes work on the tail only

  graph::ValueId Root(graph::ValueId v) const {
    while (owner[v] != v) v = owner[v];
    return v;
  }
  int64_t Column(graph::ValueId v) const {
    int64_t c = column[v];
    while (owner[v] != v) c += column[v = owner[v]];
    return c;
  }
};

// `g` verified, shapes inferred. Pure.
Analysis Analyse(const graph::Graph& g, ComputeMode compute);

// Values a row of v holds (product of the dimensions after T).
int64_t RowWidth(const graph::Graph& g, graph::ValueId v);
// True when the Gemm node's matrix takes int8 activations.
bool TakesActivations(const graph::Graph& g, const graph::Node& gemm, ComputeMode compute);

}  // namespace slm::backend
