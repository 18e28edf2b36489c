// The nodes of a graph against the rows of a description. With flat.h a door, for who rewrites graphs and looks at them again.
#pragma once
#include <string>
#include <vector>

#include "targets/flat.h"
#include "targets/target.h"

namespace slm::targets {

struct NodeVerdict {
  Verdict verdict = Verdict::kNative;
  std::string reason, replacement, applied_by, kernel, warning, source;
};

// What the target itself says, then its fallback. Does not look at other nodes' verdicts.
NodeVerdict Match(const Flat& flat, int node, const Description& target);

// The verdicts of all nodes, the bodies and forms they are part of considered.
struct Placement {
  std::vector<NodeVerdict> verdicts;  // one a node of the flat list
  std::vector<Fusion> fusions;
};
Placement Place(const Flat& flat, const Description& target);

// A float value that DequantizeLinear makes just before, or QuantizeLinear takes just after: the type of the codes, else kUndefined.
onnx::ElementType CodesBefore(const Flat& flat, int node, size_t input);
onnx::ElementType CodesAfter(const Flat& flat, int node, size_t output);
// Between DequantizeLinear on every float input and QuantizeLinear on every output: what compilers take as one quantized operator.
bool IsQuantizedUnit(const Flat& flat, int node);

}  // namespace slm::targets
