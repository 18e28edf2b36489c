// The graph: nodes in topological order over values, with ONNX operator meaning. Plain data; passes edit it, verify checks it.
//
// Tokens T is the one symbolic dimension (kT); everything else is a number. Weights are constants that point into the model
// file (never copied here): a constant is one or more row ranges of file tensors stacked along dim 0, so that fusing q|k|v
// is a list, not a copy, and splitting a fused file tensor is a range.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "model/model.h"

namespace slm::graph {

enum class Op : uint8_t {
#define SLM_OP(id, name, domain) id,
#include "graph/ops.inc"
#undef SLM_OP
  kCount,
};
struct OpInfo {
  const char* name;
  const char* domain;
};
const OpInfo& Info(Op op);

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an optional input or output that is absent
inline constexpr int64_t kT = -1;        // symbolic: tokens of this call
using Shape = std::vector<int64_t>;

// Rows [row_begin, row_end) of a file tensor [N, K] (or values of a vector).
struct ConstantPart {
  const model::Tensor* tensor = nullptr;
  int64_t row_begin = 0, row_end = 0;
};
// A constant: parts stacked along dim 0, or `data` (f32, computed by the builder or by folding).
struct Constant {
  std::vector<ConstantPart> parts;
  std::vector<float> data;
};

enum class ElementType : uint8_t { kF32, kI64 };

struct Value {
  std::string name;
  Shape shape;                               // filled by the builder for inputs and constants, by InferShapes for the rest
  ElementType type = ElementType::kF32;      // of the computation; a constant's storage is its tensors' dtype
  std::shared_ptr<const Constant> constant;  // null: computed, or a graph input
};

enum class AttrKey : uint8_t {
  kEpsilon,
  kApproximate,
  kInterleaved,
  kNumHeads,
  kKvNumHeads,
  kRotaryDim,
  kScale,
  kSoftcap,
  kLocalWindow,
  kDoRotary,
  kActivation,  // GatedActivation: model::Activation as int
  kLayer,       // GroupQueryAttention: which KV layer
  kTransB,
};
const char* AttrName(AttrKey key);  // ONNX spelling: "epsilon", "local_window_size", …
struct Attr {
  AttrKey key;
  std::variant<int64_t, float, std::string> value;
};

struct Node {
  Op op;
  std::string name;  // unique: "layers.3.attn.q_proj"
  std::vector<ValueId> inputs, outputs;
  std::vector<Attr> attrs;
  int layer = -1;  // decoder layer, -1: outside the layers
  int64_t Int(AttrKey key, int64_t otherwise = 0) const;
  float Float(AttrKey key, float otherwise = 0) const;
  std::string String(AttrKey key, const std::string& otherwise = {}) const;
};

// Inputs of GroupQueryAttention, in ONNX Runtime's order. past/present are the KV cache of layer kLayer (static, in place),
// so they are not values here: inputs 3 to 6 are kNoValue; cos, sin, positions (7 to 9) are present when kDoRotary is 1, else
// kNoValue. kLocalWindow counts the tokens that a query sees, itself included; -1: all. Keys and values of this call are stored
// in the cache first, then attended to.
enum GqaInput : int {
  kGqaQuery,
  kGqaKey,
  kGqaValue,
  kGqaPastKey,
  kGqaPastValue,
  kGqaSeqlens,
  kGqaTotalLength,
  kGqaCos,
  kGqaSin,
  kGqaPositions,
  kGqaInputCount
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;                    // topological order
  ValueId input_ids = kNoValue;               // [T] i64
  ValueId input_positions = kNoValue;         // [T] i64
  ValueId output_logits = kNoValue;           // [T, V] f32; a back end may compute fewer rows
  std::shared_ptr<const model::Model> model;  // keeps the maps alive

  ValueId AddValue(Value v);
  bool IsConstant(ValueId id) const { return id >= 0 && values[id].constant != nullptr; }
  int ProducerOf(ValueId id) const;                // node index or -1
  std::vector<int> ConsumersOf(ValueId id) const;  // node indices, in order
};

}  // namespace slm::graph
