// A description in memory: what read.cc makes of a file and match.cc looks up. Inheritance is already resolved.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "onnx/element.h"

namespace slm::targets {

// Element types as bits; the upper half is for float values that DequantizeLinear makes of the type ("q.uint16").
using TypeSet = uint64_t;
inline constexpr TypeSet Plain(onnx::ElementType t) { return TypeSet{1} << static_cast<unsigned>(t); }
inline constexpr TypeSet Quantized(onnx::ElementType t) { return TypeSet{1} << (32u + static_cast<unsigned>(t)); }
inline constexpr TypeSet kAnyType = ~TypeSet{0};
static_assert(static_cast<unsigned>(onnx::ElementType::kCount) <= 32);

// Of a list of inputs or outputs: one set a position, `rest` for those after the last.
struct TypeList {
  std::vector<TypeSet> at;
  TypeSet rest = kAnyType;
  TypeSet Of(size_t i) const { return i < at.size() ? at[i] : rest; }
};

// An attribute must have one of these values.
struct AttributeRule {
  std::string name;
  std::vector<int64_t> ints;
  std::vector<std::string> texts;
  bool absent = false;     // not given is fine
  bool last_axis = false;  // -1 or the rank of input 0 less one
};

// A kernel (or a refusal) and what it asks of a node. The first row of an operator that fits a node decides.
struct Row {
  int64_t first_opset = 1, last_opset = INT64_MAX;
  TypeList in, out;
  int64_t least_rank = 0, most_rank = INT64_MAX;  // of tensors, inputs and outputs
  std::vector<size_t> constant, variable;         // inputs that must (must not) be fixed
  std::vector<size_t> blocked;                    // inputs of DequantizeLinear with scales in blocks
  std::vector<size_t> absent;                     // inputs that must be left out
  std::vector<std::string> readers;               // operators: of those that read the first output
  std::vector<AttributeRule> attributes;
  bool inside = false;  // only where no value is the graph's input or output
  bool border = false;  // only where an input is the graph's input or an output the graph's output
  bool native = true;
  std::string kernel, reason, replacement, applied_by, warning, source;
};

struct Limit {
  std::string what;  // "weights_bytes", "kv_bytes", "weights_and_kv_bytes", "tensor_bytes"
  int64_t most = 0;
  std::string note, source;
};

struct FusedForm {
  std::string what, kernel, source;
};

struct Scheme {
  std::string name, note, source;
};

struct Description {
  std::string name, title, runtime;
  std::map<std::string, std::string> sources;  // key -> what it is, in words
  std::map<std::string, TypeSet> types;        // named sets
  bool static_only = false;
  bool whole_bodies = false;     // a body of If, Loop or Scan goes where its node goes; else its nodes are placed one by one
  bool quantized_units = false;  // an operator between DequantizeLinear and QuantizeLinear is one operator on codes
  int64_t most_rank = INT64_MAX;
  std::string shapes_reason, shapes_source;
  std::string unlisted_reason, unlisted_source;
  std::shared_ptr<const Description> fallback;                      // null: nothing else computes
  std::vector<std::pair<std::string, std::string>> fallback_lacks;  // (domain, operator)
  std::string fallback_source;
  std::vector<std::pair<TypeSet, TypeSet>> widened;  // the runtime inserts casts: a type, and the one computed in
  std::string widened_source;
  std::map<std::pair<std::string, std::string>, std::vector<Row>> rows;  // (domain, operator)
  std::vector<FusedForm> fused;                                          // decomposed forms that become one kernel
  std::vector<Scheme> weights, activations;
  std::vector<Limit> bounds;
};

}  // namespace slm::targets
