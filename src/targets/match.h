// One node against the rows of a description.
#pragma once
#include <string>

#include "targets/flat.h"
#include "targets/target.h"

namespace slm::targets {

struct NodeVerdict {
  Verdict verdict = Verdict::kNative;
  std::string reason, replacement, applied_by, kernel, warning, source;
};

// What the target itself says, then its fallback. Does not look at other nodes' verdicts.
NodeVerdict Match(const Flat& flat, int node, const Description& target);

// A float value that DequantizeLinear makes just before, or QuantizeLinear takes just after: the type of the codes, else kUndefined.
onnx::ElementType CodesBefore(const Flat& flat, int node, size_t input);
onnx::ElementType CodesAfter(const Flat& flat, int node, size_t output);
// Between DequantizeLinear on every float input and QuantizeLinear on every output: what compilers take as one quantized operator.
bool IsQuantizedUnit(const Flat& flat, int node);

}  // namespace slm::targets
