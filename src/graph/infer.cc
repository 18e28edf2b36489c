// Shape inference: one small rule an operator, after the operators' ONNX definitions (opset 24; com.microsoft for
// GroupQueryAttention and SkipSimplifiedLayerNormalization). Attention works on one sequence, so the batch axis is absent.
#include "graph/infer.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/graph.h"

namespace slm::graph {
namespace {

Error Broken(std::string what) { return Error(Code::kCorrupt, std::move(what)); }

// ONNX multidirectional broadcasting; T meets only T or 1.
Result<Shape> Broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t from_end = out.size() - i;
    const int64_t da = from_end <= a.size() ? a[a.size() - from_end] : 1;
    const int64_t db = from_end <= b.size() ? b[b.size() - from_end] : 1;
    if (da != db && da != 1 && db != 1) return Broken(fmt::format("{} and {} do not broadcast", ShapeText(a), ShapeText(b)));
    out[i] = da == 1 ? db : da;
  }
  return out;
}

// The inputs' shapes with the checks that several rules share.
class Operands {
 public:
  Operands(const Graph& g, const Node& n) : g_(g), n_(n) {}
  bool has(int i) const { return i < static_cast<int>(n_.inputs.size()) && n_.inputs[i] != kNoValue; }
  const Shape& at(int i) const { return g_.values[n_.inputs[i]].shape; }
  const Shape& out(int i) const { return g_.values[n_.outputs[i]].shape; }
  Status Rank(int i, size_t rank) const {
    if (at(i).size() == rank) return Ok();
    return Broken(fmt::format("input {} has shape {}, rank {} expected", i, ShapeText(at(i)), rank));
  }
  Status Is(int i, const Shape& want) const {
    if (at(i) == want) return Ok();
    return Broken(fmt::format("input {} has shape {}, {} expected", i, ShapeText(at(i)), ShapeText(want)));
  }

 private:
  const Graph& g_;
  const Node& n_;
};

Result<Shape> Gather(const Operands& in) {
  SLM_RETURN_IF_ERROR(in.Rank(0, 2));
  SLM_RETURN_IF_ERROR(in.Rank(1, 1));
  return Shape{in.at(1)[0], in.at(0)[1]};
}

Result<Shape> Gemm(const Operands& in, const Node& node) {
  if (node.Int(AttrKey::kTransB) != 1) return Broken("transB must be 1");
  SLM_RETURN_IF_ERROR(in.Rank(0, 2));
  SLM_RETURN_IF_ERROR(in.Rank(1, 2));
  const int64_t n = in.at(1)[0];
  if (in.at(0)[1] != in.at(1)[1]) return Broken(fmt::format("x {} and W {} do not share K", ShapeText(in.at(0)), ShapeText(in.at(1))));
  if (in.has(2)) SLM_RETURN_IF_ERROR(in.Is(2, {n}));
  return Shape{in.at(0)[0], n};
}

Result<Shape> Reshape(const Operands& in) {
  const Shape &from = in.at(0), &to = in.out(0);
  if (from.empty() || to.empty() || from[0] != to[0] || ValuesPerToken(from) != ValuesPerToken(to))
    return Broken(fmt::format("{} cannot be viewed as {}", ShapeText(from), ShapeText(to)));
  return to;
}

Result<std::vector<Shape>> Split(const Operands& in, const Node& node) {
  const Shape& from = in.at(0);
  if (from.empty()) return Broken("a scalar cannot be split");
  std::vector<Shape> parts;
  int64_t sum = 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Shape part = in.out(static_cast<int>(i));
    Shape want = from;
    want.back() = part.empty() ? 0 : part.back();
    if (part != want || part.back() <= 0) return Broken(fmt::format("output {} has shape {}", i, ShapeText(part)));
    sum += part.back();
    parts.push_back(std::move(part));
  }
  if (sum != from.back()) return Broken(fmt::format("the parts sum up to {}, the input has {}", sum, from.back()));
  return parts;
}

// Weight over the last axis of input 0.
Status LastAxisWeight(const Operands& in, int weight) {
  if (in.at(0).empty()) return Broken("input 0 is a scalar");
  return in.Is(weight, {in.at(0).back()});
}

// cos and sin tables [S, R/2] with R <= head_dim.
Status RotaryTables(const Operands& in, int cos, int64_t head_dim) {
  SLM_RETURN_IF_ERROR(in.Rank(cos, 2));
  SLM_RETURN_IF_ERROR(in.Is(cos + 1, in.at(cos)));
  if (in.at(cos)[1] * 2 > head_dim)
    return Broken(fmt::format("rotary tables {} are wider than the head ({})", ShapeText(in.at(cos)), head_dim));
  return Ok();
}

Result<Shape> Rotary(const Operands& in, const Node& node) {
  SLM_RETURN_IF_ERROR(in.Rank(0, 2));
  const int64_t heads = node.Int(AttrKey::kNumHeads);
  if (heads <= 0 || in.at(0)[1] % heads != 0) return Broken(fmt::format("num_heads = {} does not divide {}", heads, in.at(0)[1]));
  SLM_RETURN_IF_ERROR(RotaryTables(in, 1, in.at(0)[1] / heads));
  if (node.Int(AttrKey::kRotaryDim) != in.at(1)[1] * 2) return Broken("rotary_embedding_dim and the tables disagree");
  SLM_RETURN_IF_ERROR(in.Is(3, {in.at(0)[0]}));
  return in.at(0);
}

Result<Shape> GroupQueryAttention(const Operands& in, const Node& node) {
  const int64_t hq = node.Int(AttrKey::kNumHeads), hkv = node.Int(AttrKey::kKvNumHeads);
  if (hq <= 0 || hkv <= 0 || hq % hkv != 0) return Broken(fmt::format("num_heads = {}, kv_num_heads = {}", hq, hkv));
  SLM_RETURN_IF_ERROR(in.Rank(kGqaQuery, 2));
  const Shape& q = in.at(kGqaQuery);
  if (q[1] % hq != 0) return Broken(fmt::format("num_heads = {} does not divide {}", hq, q[1]));
  const int64_t head_dim = q[1] / hq;
  SLM_RETURN_IF_ERROR(in.Is(kGqaKey, {q[0], hkv * head_dim}));
  SLM_RETURN_IF_ERROR(in.Is(kGqaValue, {q[0], hkv * head_dim}));
  const bool rotary = node.Int(AttrKey::kDoRotary) == 1;
  for (int i : {int{kGqaCos}, int{kGqaSin}, int{kGqaPositions}})
    if (in.has(i) != rotary)
      return Broken(fmt::format("do_rotary = {}, but input {} is {}", rotary ? 1 : 0, i, rotary ? "absent" : "present"));
  if (rotary) {
    SLM_RETURN_IF_ERROR(RotaryTables(in, kGqaCos, head_dim));
    if (node.Int(AttrKey::kRotaryDim) != in.at(kGqaCos)[1] * 2) return Broken("rotary_embedding_dim and the tables disagree");
    SLM_RETURN_IF_ERROR(in.Is(kGqaPositions, {q[0]}));
  }
  return q;
}

// Rules with one output; Split and SkipRmsNorm are done by the caller.
Result<Shape> InferOne(const Operands& in, const Node& node) {
  switch (node.op) {
    case Op::kGather: return Gather(in);
    case Op::kGemm: return Gemm(in, node);
    case Op::kAdd:
    case Op::kMul:
    case Op::kDiv: return Broadcast(in.at(0), in.at(1));
    case Op::kTanh:
    case Op::kSigmoid:
    case Op::kSwish:
    case Op::kGelu: return in.at(0);
    case Op::kReshape: return Reshape(in);
    case Op::kRmsNorm: SLM_RETURN_IF_ERROR(LastAxisWeight(in, 1)); return in.at(0);
    case Op::kRotary: return Rotary(in, node);
    case Op::kGroupQueryAttention: return GroupQueryAttention(in, node);
    case Op::kGatedActivation: {
      SLM_RETURN_IF_ERROR(in.Rank(0, 2));
      if (in.at(0)[1] % 2 != 0) return Broken(fmt::format("{} cannot be halved", ShapeText(in.at(0))));
      return Shape{in.at(0)[0], in.at(0)[1] / 2};
    }
    case Op::kSplit:
    case Op::kSkipRmsNorm:
    case Op::kCount: break;
  }
  return Error(Code::kInternal, "operator without a shape rule");
}

}  // namespace

int64_t ValuesPerToken(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d == kT ? 1 : d;
  return n;
}

std::string ShapeText(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] == kT ? std::string("T") : fmt::format("{}", shape[i]);
  }
  return text + "]";
}

Arity ArityOf(Op op) {
  switch (op) {
    case Op::kGather: return {2, 2, 1, 1};
    case Op::kGemm: return {2, 3, 1, 1};
    case Op::kAdd:
    case Op::kMul:
    case Op::kDiv: return {2, 2, 1, 1};
    case Op::kTanh:
    case Op::kSigmoid:
    case Op::kSwish:
    case Op::kGelu:
    case Op::kReshape:
    case Op::kGatedActivation: return {1, 1, 1, 1};
    case Op::kSplit: return {1, 1, 2, 16};
    case Op::kRmsNorm: return {2, 2, 1, 1};
    case Op::kRotary: return {4, 4, 1, 1};
    case Op::kGroupQueryAttention: return {kGqaValue + 1, kGqaInputCount, 1, 1};
    case Op::kSkipRmsNorm: return {3, 3, 2, 2};
    case Op::kCount: break;
  }
  return {0, 0, 0, 0};
}

Result<std::vector<Shape>> InferNode(const Graph& g, const Node& node) {
  const Operands in(g, node);
  for (int i = 0; i < ArityOf(node.op).min_inputs; ++i)
    if (!in.has(i)) return Broken(fmt::format("input {} is absent", i));
  if (node.op == Op::kSplit) return Split(in, node);
  if (node.op == Op::kSkipRmsNorm) {
    SLM_RETURN_IF_ERROR(in.Is(1, in.at(0)));
    SLM_RETURN_IF_ERROR(LastAxisWeight(in, 2));
    return std::vector<Shape>{in.at(0), in.at(0)};
  }
  SLM_ASSIGN_OR_RETURN(Shape one, InferOne(in, node));
  return std::vector<Shape>{std::move(one)};
}

Status InferShapes(Graph& g) {
  for (const Node& node : g.nodes) {
    auto shapes = InferNode(g, node);
    if (!shapes.ok()) return shapes.error().At(fmt::format("graph: {} ({})", node.name, Info(node.op).name));
    for (size_t i = 0; i < node.outputs.size() && i < shapes.value().size(); ++i) g.values[node.outputs[i]].shape = shapes.value()[i];
  }
  return Ok();
}

}  // namespace slm::graph
