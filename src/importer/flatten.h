// An ONNX file as one list of nodes, for the walk: calls of the file's own functions are replaced by the nodes of the function, and what
// the branches of an If make has names of its own, so that a branch can stand in the place of its node. ONNX's IR.md says what names mean.
#pragma once
#include <memory>

#include "base/result.h"
#include "onnx/onnx.h"

namespace slm::importer {

// A copy of `m` without calls of functions, whose tensors are those of `m`, which it keeps. Weights of branches stand among the graph's.
// Errors: kLimit (functions in functions make too many nodes), kUnsupported (a function of another operator set than the file).
Result<std::shared_ptr<onnx::Model>> Flatten(std::shared_ptr<const onnx::Model> m);

}  // namespace slm::importer
