// The matrices of an opened package (package.h): where the rows that a plan needs lie, used where they are mapped.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "kernels/packed/contract.h"
#include "model/model.h"

namespace slm::backend {

// The rows of the tensors of `c`, by segment. Error: kUnsupported when a segment runs over two tensors. Pure.
Result<std::vector<model::PackedSegment>> RowsOfSegments(const graph::Constant& c, const std::vector<int64_t>& segments);

// True when rows of the constant are only there packed.
bool IsPackedOnly(const graph::Constant& c);

struct PackedPlace {
  kernels::PackedKind kind = kernels::PackedKind::kF32;
  const uint8_t* data = nullptr;  // first panel; its rows are those of the segments, each padded to whole panels
};
// Where the matrix of `c` [N, k], cut into `segments`, lies in the package. Errors: kUnsupported (another layout; rows that the
// package does not hold side by side), kCorrupt (sizes or kinds that cannot be).
Result<PackedPlace> FindPacked(const model::Model& m, const graph::Constant& c, int64_t k, const std::vector<int64_t>& segments);

}  // namespace slm::backend
