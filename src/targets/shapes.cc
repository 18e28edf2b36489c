// Output shapes by operator: those of decoders and of graphs around them. What is not here is not known, which is never a verdict.
#include <map>

#include "targets/shape_rules.h"

namespace slm::targets {
namespace {

constexpr std::string_view kBroadcasting[] = {"Add",
                                              "Sub",
                                              "Mul",
                                              "Div",
                                              "Pow",
                                              "Mod",
                                              "Max",
                                              "Min",
                                              "Sum",
                                              "Mean",
                                              "Equal",
                                              "Greater",
                                              "GreaterOrEqual",
                                              "Less",
                                              "LessOrEqual",
                                              "And",
                                              "Or",
                                              "Xor",
                                              "Where",
                                              "PRelu",
                                              "BitwiseAnd",
                                              "BitwiseOr",
                                              "BitwiseXor",
                                              "BitShift"};
constexpr std::string_view kReducing[] = {"ReduceMean", "ReduceSum", "ReduceMax",       "ReduceMin",    "ReduceProd",
                                          "ReduceL1",   "ReduceL2",  "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"};
constexpr std::string_view kSameAsFirst[] = {"Abs",
                                             "Neg",
                                             "Exp",
                                             "Log",
                                             "Sqrt",
                                             "Reciprocal",
                                             "Sigmoid",
                                             "Tanh",
                                             "Relu",
                                             "LeakyRelu",
                                             "Elu",
                                             "Selu",
                                             "Celu",
                                             "HardSwish",
                                             "HardSigmoid",
                                             "Softplus",
                                             "Softsign",
                                             "Mish",
                                             "Erf",
                                             "Sin",
                                             "Cos",
                                             "Tan",
                                             "Atan",
                                             "Floor",
                                             "Ceil",
                                             "Round",
                                             "Sign",
                                             "Identity",
                                             "Softmax",
                                             "LogSoftmax",
                                             "Gelu",
                                             "FastGelu",
                                             "BiasGelu",
                                             "QuickGelu",
                                             "Swish",
                                             "Clip",
                                             "Not",
                                             "IsNaN",
                                             "IsInf",
                                             "Cast",
                                             "CastLike",
                                             "CumSum",
                                             "Trilu",
                                             "Dropout",
                                             "LayerNormalization",
                                             "RMSNormalization",
                                             "SimplifiedLayerNormalization",
                                             "SkipLayerNormalization",
                                             "SkipSimplifiedLayerNormalization",
                                             "InstanceNormalization",
                                             "GroupNormalization",
                                             "BatchNormalization",
                                             "LpNormalization",
                                             "DequantizeLinear",
                                             "QuantizeLinear",
                                             "RotaryEmbedding",
                                             "ScatterND",
                                             "ScatterElements",
                                             "TensorScatter",
                                             "BitwiseNot"};

const std::map<std::string_view, shapes::Rule>& Rules() {
  static const std::map<std::string_view, shapes::Rule> rules = [] {
    using namespace shapes;
    std::map<std::string_view, Rule> r = {
        {"MatMul", MatMul},
        {"MatMulInteger", MatMul},
        {"Gemm", Gemm},
        {"MatMulNBits", MatMulNBits},
        {"Transpose", Transpose},
        {"Reshape", Reshape},
        {"Flatten", Flatten},
        {"Squeeze", Squeeze},
        {"Unsqueeze", Unsqueeze},
        {"Concat", Concat},
        {"Split", Split},
        {"Slice", Slice},
        {"Expand", Expand},
        {"Tile", Tile},
        {"Pad", Pad},
        {"Gather", Gather},
        {"GatherBlockQuantized", Gather},
        {"GatherElements", SameAsSecond},
        {"GatherND", GatherNd},
        {"TopK", TopK},
        {"Shape", ShapeOf},
        {"Size", Scalar},
        {"ConstantOfShape", ConstantOfShape},
        {"Constant", ConstantShape},
        {"Attention", Attention},
        {"GroupQueryAttention", GroupQueryAttention},
        {"MultiHeadAttention", MultiHeadAttention},
        {"FusedMatMul", FusedMatMul},
        {"TransposeMatMul", FusedMatMul},
        {"EmbedLayerNormalization", EmbedLayerNormalization},
        {"ArgMax", Reduce},
        {"ArgMin", Reduce},
    };
    for (const std::string_view op : kBroadcasting) r[op] = Broadcast;
    for (const std::string_view op : kReducing) r[op] = Reduce;
    for (const std::string_view op : kSameAsFirst) r[op] = Same;
    return r;
  }();
  return rules;
}

}  // namespace

bool InferShapes(const Flat& flat, const FlatNode& n, std::vector<std::vector<onnx::Dim>>& out) {
  const auto rule = Rules().find(n.node.op_type);
  shapes::Call call{flat, n, out};
  if (rule == Rules().end() || !rule->second(call)) return false;
  for (shapes::Shape& s : out)
    for (onnx::Dim& d : s) d = Sane(d);
  return true;
}

}  // namespace slm::targets
