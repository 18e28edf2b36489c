// Writes packages: models whose matrices are already in the execution layout, so that a start maps them (mapped_matrix.h).
//
// Why here and not in the exporter: what a package holds is this back end's plan, kinds and layout included.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "model/gguf/writer.h"

namespace slm::backend {

struct PackageReport {
  int64_t bytes = 0;               // of the file
  int64_t matrices = 0;            // packed
  int64_t weights_bytes = 0;       // of them
  std::vector<std::string> notes;  // what was lost, once each; empty: every value is kept exactly
};

// Writes the model of `g` (passes run) as a package: matrices packed on `n_threads` threads one after another, so that memory
// stays at the largest one. Errors: kUnsupported (a model that is a package; a graph without plan), kInvalidArgument (threads),
// and the sink's. Thread-safe: calls share nothing but the model, which is only read.
Result<PackageReport> WritePackage(const graph::Graph& g, int n_threads, const model::gguf::ByteSink& sink);

}  // namespace slm::backend
