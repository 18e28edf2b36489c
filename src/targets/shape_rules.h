// The rules behind InferShapes: each says the output shapes of some operators, as far as they are known. Meaning after ONNX's Operators.md
// and onnxruntime's docs/ContribOperators.md.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "targets/flat.h"

namespace slm::targets::shapes {

using Dim = onnx::Dim;
using Shape = std::vector<Dim>;

// A node with what is known of its inputs, and the shapes of its outputs.
struct Call {
  const Flat& flat;
  const FlatNode& n;
  std::vector<Shape>& out;

  const Value* In(size_t i) const {
    const Value* v = i < n.node.inputs.size() ? flat.Find(n.node.inputs[i]) : nullptr;
    return v && v->has_shape ? v : nullptr;
  }
  bool Ints(size_t i, std::vector<int64_t>& values) const { return FixedInts(flat, n, i, values); }
  int64_t Int(std::string_view name, int64_t otherwise) const { return n.node.Int(name, otherwise); }
  // From input `i` where newer operator sets have it, from the attribute else.
  bool List(size_t i, std::string_view name, std::vector<int64_t>& values) const {
    if (i < n.node.inputs.size() && !n.node.inputs[i].empty()) return Ints(i, values);
    const onnx::Attribute* a = n.node.Find(name);
    if (a) values = a->ints;
    return a != nullptr;
  }
  bool All(Shape s) {
    out.assign(n.node.outputs.size(), s);
    return true;
  }
};

inline Dim Fixed(int64_t n) { return {n, ""}; }
// False: the axis is none of so many.
inline bool Axis(int64_t axis, size_t rank, size_t& out) {
  if (axis < 0) axis += static_cast<int64_t>(rank);
  out = static_cast<size_t>(axis);
  return axis >= 0 && out < std::max<size_t>(rank, 1);
}

// False: not known for this node.
using Rule = bool (*)(Call&);

// Operators that move values (shapes_layout.cc).
bool Transpose(Call& c);
bool Reshape(Call& c);
bool Flatten(Call& c);
bool Squeeze(Call& c);
bool Unsqueeze(Call& c);
bool Concat(Call& c);
bool Split(Call& c);
bool Slice(Call& c);
bool Expand(Call& c);
bool Tile(Call& c);
bool Pad(Call& c);
bool Gather(Call& c);
bool SameAsSecond(Call& c);
bool GatherNd(Call& c);
bool ShapeOf(Call& c);
bool Scalar(Call& c);
bool ConstantOfShape(Call& c);
bool ConstantShape(Call& c);
// Element by element, products, reductions, attention (shapes_products.cc).
bool Same(Call& c);
bool Broadcast(Call& c);
bool MatMul(Call& c);
bool Gemm(Call& c);
bool MatMulNBits(Call& c);
bool Reduce(Call& c);
bool TopK(Call& c);
bool Attention(Call& c);
bool GroupQueryAttention(Call& c);
bool MultiHeadAttention(Call& c);
bool FusedMatMul(Call& c);
bool EmbedLayerNormalization(Call& c);

}  // namespace slm::targets::shapes
