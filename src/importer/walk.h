// The walk over the nodes of an ONNX graph: each is given what its inputs mean and says what its outputs mean.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "importer/calls.h"
#include "importer/emit.h"
#include "importer/value.h"
#include "onnx/onnx.h"

namespace slm::importer {

using graph::AttrKey;
using graph::kNoValue;
using graph::Op;
using graph::ValueId;
using AxisKind = Axis::Kind;

inline constexpr int64_t kMostHeads = 65536;  // of a layer; more is a damaged file

using Values = std::vector<ValuePtr>;

// What the attentions of a graph have in common, and the cache of each layer.
struct Layer {
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int window = 0;
  bool has_attention = false;
  std::string past_key, past_value;  // graph inputs
};

// Which branch the Ifs of a condition take in short sequences, and how long those may be; 0: any length.
struct Choice {
  bool yes = false;
  int64_t most_total = 0;
};

struct Walk {
  // `m`: flattened; a branch takes the place of its If on the way.
  Walk(const std::shared_ptr<onnx::Model>& m, int64_t longest, CallForm calls_for)
      : onnx(*m), form(calls_for), calls(m, longest, calls_for) {}

  onnx::Model& onnx;
  const CallForm form;
  Calls calls;
  Emitter emit;
  std::map<std::string, ValuePtr> values;
  std::vector<Layer> layers;              // by the number in the names of the cache
  int64_t n_kept = 0;                     // values computed for the probed calls
  Work work;                              // to compute them
  int n_attentions = 0;                   // in the order of the graph, which must be that of `layers`
  int n_branches = 0;                     // that were taken
  std::map<std::string, Choice> choices;  // by the condition's name: Ifs in Ifs ask the same again
  int64_t most_total = 0;                 // tokens up to which they are the right ones, or for which a fixed cache has slots; 0: any
};

// The branch of the If at `at` that every call takes, or every call of short sequences: then `most_total` says up to where. Its nodes then
// stand in the If's place. Errors: kUnsupported (a condition that depends on tokens, or on more than a sequence's length), kLimit.
Status ResolveIf(Walk& w, size_t at);

// Interprets all nodes. Errors: kUnsupported and kCorrupt with the node named.
Status WalkNodes(Walk& w);

// A node with its inputs; nullptr where one is left out.
struct Call {
  Walk& w;
  const onnx::Node& node;
  Values in;

  // Input `i`. Errors: kCorrupt when it is left out.
  Result<ValuePtr> In(size_t i) const;
  ValuePtr Optional(size_t i) const { return i < in.size() ? in[i] : nullptr; }
  int64_t Int(const char* name, int64_t otherwise) const { return node.Int(name, otherwise); }
  float Float(const char* name, float otherwise) const;
  std::string Text(const char* name, const std::string& otherwise) const;
  std::string out(size_t i = 0) const { return i < node.outputs.size() ? node.outputs[i] : std::string(); }

  // A new value, named after output 0.
  ValuePtr Make(Kind kind, Axes axes) const;
  ValuePtr Rows(graph::ValueId id, Axes axes) const;  // of kind kRows
  // Refuses attributes and inputs that would change the meaning. Errors: kUnsupported.
  Error Refuse(const std::string& what) const;
  // The node of our graph behind rows `x`, element by element: same axes.
  Result<ValuePtr> Unary(graph::Op op, const ValuePtr& x, std::vector<graph::Attr> attrs = {}) const;
};

using Handler = Result<Values> (*)(const Call&);

#define SLM_NODE(domain, name, function) Result<Values> function(const Call&);
#include "importer/nodes.inc"
#undef SLM_NODE

inline Result<Values> Single(ValuePtr v) { return Values{std::move(v)}; }

// Shared between families.
Result<ValuePtr> Turned(const Call& c, const Value& first, const Value& second);     // x * cos + half turn of x * sin
Result<ValuePtr> Attend(const Call& c, const Value& probabilities, const Value& v);  // times the cached values
Result<ValuePtr> Scores(const Call& c, const ValuePtr& q, const Value& keys);
Result<ValuePtr> Mask(const Call& c, const Value& scores, const Value& mask);  // of kScores and kCall
Result<ValuePtr> Norm(const Call& c, const ValuePtr& x, Value& weight, float eps, const std::string& name);
// An axis attribute or input on a value of this rank. Errors: kCorrupt.
Result<size_t> AxisOf(int64_t axis, size_t rank);
// f32 values of something fixed. Errors: kUnsupported.
Result<std::vector<float>> FloatsOf(Value& v);

// Attention itself: rows of queries, keys and values [T, heads * D] into the graph; `out`: what its result is called.
struct AttentionParts {
  graph::ValueId q = graph::kNoValue, k = graph::kNoValue, v = graph::kNoValue;
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int layer = 0;
  float scale = 0, softcap = 0;
  int window = 0;
};
Result<graph::ValueId> EmitAttention(const Call& c, const AttentionParts& a);
enum class Pairs : uint8_t { kHalves, kInterleaved };  // which columns turn together: i and i + half, or 2 i and 2 i + 1
// Rotates the first 2 * half columns of each head of `x`.
graph::ValueId EmitRotation(const Call& c, graph::ValueId x, const RopeTable& t, int64_t heads, int64_t width, Pairs pairs);

}  // namespace slm::importer
