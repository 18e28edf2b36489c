// The door of `graph`: build a decoder from a model, check it, rewrite it, lay out its memory, print it.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/ir.h"
#include "model/model.h"

namespace slm::graph {

struct BuildOptions {
  int max_context = 0;  // S: rows of the cos/sin caches
};
// (config, tensors) -> the plain, unfused graph; reads like a forward pass. Errors: kNotFound (a tensor), kCorrupt (a shape).
Result<Graph> BuildDecoder(std::shared_ptr<const model::Model> model, const BuildOptions& options);

// One decoder layer as a graph of its own: node 0 gathers rows of `hidden` [rows, E] by the input ids, the rest are the layer's nodes,
// whose cache is layer 0 now; there are no logits, so Verify does not apply.
struct LayerGraph {
  Graph graph;
  ValueId output = kNoValue;  // [T, E], what the next layer reads
};
// Cuts `layer` out of the plain graph `g` (no passes ran). Errors: kUnsupported when the layer has not one input and one output. Pure.
Result<LayerGraph> CutLayer(const Graph& g, int layer, std::shared_ptr<const Constant> hidden, int64_t rows);

// Every shape from the inputs' shapes. Errors: kCorrupt naming the node.
Status InferShapes(Graph& g);

// Topological order, arity, ranks, shapes, unique names, no dangling values. Errors: kInternal naming the node and the rule.
Status Verify(const Graph& g);

// Text form, one line a node, stable across runs; constants by name and dtype. Read by tests and pass observers.
std::string Dump(const Graph& g);

// A constant, or a sum, product or quotient of such values: known at load, whether the folding pass ran or not. Pure.
bool IsFixed(const Graph& g, ValueId v);
// Its f32 values, row-major in the value's shape; file tensors are dequantised whole. `v` must be fixed. Pure.
std::vector<float> FixedValues(const Graph& g, ValueId v);

// A rewrite. Returns how often it applied. After it ran, InferShapes and Verify must pass.
struct Pass {
  const char* name;  // "fuse_qkv"
  int (*run)(Graph& g);
};
// All passes in the order in which they run; see passes/passes.inc.
std::span<const Pass> AllPasses();

struct PassReport {
  const char* name;
  int applied;
  int64_t ns;
  enum class State : uint8_t { kRan, kOff } state;
};
using PassObserver = std::function<void(const PassReport&, const Graph&)>;

// Runs all passes but those named in `off` ("all": none runs), verifying after each. Errors: unknown name in `off` (lists
// the known ones), or what Verify says, with the pass' name before it.
Status RunPasses(Graph& g, std::span<const std::string> off, const PassObserver& observer = {});

// Static memory plan of the computed f32 values for calls of at most `tokens` tokens: offsets into one arena; values that are
// never alive together share bytes. A value lives from the node that makes it to the last node that reads it, both included, so
// an output never overlaps an input of its node unless they share a slot. A Reshape's output shares its input's slot; further
// sharing is the caller's (`aliases`). A value without T (an unfolded constant expression) has one row.
struct MemoryPlan {
  struct Slot {
    int64_t offset = -1;     // bytes, 64-aligned; -1: constant, graph input or unplanned
    int64_t row_values = 0;  // values from row to row, a multiple of 32, the same for all values of a slot
  };
  std::vector<Slot> slots;  // by ValueId
  int64_t arena_bytes = 0;
};
struct MemoryPlanOptions {
  int tokens = 1;
  // (value, owner): `value` lives in the slot of `owner` (an in-place result, a view of a part): one live range over both, one
  // slot; owners may themselves be owned. The caller vouches that sharing is right.
  std::vector<std::pair<ValueId, ValueId>> aliases;
  std::vector<std::pair<ValueId, int64_t>> row_values;  // wider rows than the shape says, for padded layouts
  std::vector<ValueId> unplanned;                       // values that are never stored; they count when they share a stored one's slot
};
// Pure, thread-safe. Errors: kInvalidArgument (tokens < 1, an option that names no computed value), kLimit (sizes overflow).
Result<MemoryPlan> PlanMemory(const Graph& g, const MemoryPlanOptions& options);

}  // namespace slm::graph
