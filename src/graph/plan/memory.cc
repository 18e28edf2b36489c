// PlanMemory: every computed value gets bytes of one arena; values that are never alive together may share them.
//
// Two steps. Groups: a Reshape's output joins its input, further sharing comes from the caller, who knows his kernels. Offsets:
// groups by falling size, each into the smallest gap that is free during its life (greedy by size with best fit, as in
// arXiv 2001.03288).
#include <fmt/format.h>

#include <algorithm>

#include "graph/graph.h"
#include "graph/infer.h"

namespace slm::graph {
namespace {

constexpr int64_t kRowPad = 32;  // values; MemoryPlan promises it
constexpr int64_t kMaxBytes = int64_t{1} << 46;

bool HasTokens(const Shape& s) { return std::find(s.begin(), s.end(), kT) != s.end(); }

// Union of values into groups; the root stands for the group.
class Groups {
 public:
  explicit Groups(size_t n) : owner_(n) {
    for (size_t v = 0; v < n; ++v) owner_[v] = static_cast<ValueId>(v);
  }
  ValueId Root(ValueId v) const {
    while (owner_[v] != v) v = owner_[v];
    return v;
  }
  void Join(ValueId v, ValueId owner) { owner_[Root(v)] = Root(owner); }

 private:
  std::vector<ValueId> owner_;
};

class Planner {
 public:
  Planner(const Graph& g, const MemoryPlanOptions& options)
      : g_(g), options_(options), n_values_(static_cast<int>(g.values.size())), groups_(g.values.size()), buffers_(g.values.size()) {}

  Result<MemoryPlan> Run() {
    SLM_RETURN_IF_ERROR(CheckOptions());
    FindStored();
    FormGroups();
    SLM_RETURN_IF_ERROR(SizeBuffers());
    PlaceBuffers();
    MemoryPlan plan;
    plan.slots.resize(g_.values.size());
    for (int v = 0; v < n_values_; ++v) {
      const Buffer& b = buffers_[groups_.Root(v)];
      if (b.is_stored) plan.slots[v] = {b.offset, b.row_values};
    }
    plan.arena_bytes = arena_bytes_;
    return plan;
  }

 private:
  struct Buffer {
    bool is_stored = false;     // some value of the group is
    int first = -1, last = -1;  // nodes during which the bytes are taken
    int64_t row_values = 0, rows = 0, bytes = 0, offset = 0;
  };

  Status CheckOptions() const {
    if (options_.tokens < 1)
      return Error(Code::kInvalidArgument, fmt::format("graph: a memory plan for {} tokens", options_.tokens), "give at least 1");
    auto exists = [&](ValueId id) { return id >= 0 && id < n_values_; };
    bool ok = true;
    for (auto [value, owner] : options_.aliases)
      ok = ok && exists(value) && exists(owner) && !g_.IsConstant(value) && !g_.IsConstant(owner);
    for (auto [value, row] : options_.row_values) ok = ok && exists(value) && row >= 0 && row <= kMaxBytes;
    for (ValueId value : options_.unplanned) ok = ok && exists(value);
    return ok ? Ok() : Status(Error(Code::kInvalidArgument, "graph: memory plan options name a value that is not computed"));
  }

  // Computed values but those that the caller keeps out.
  void FindStored() {
    stored_.assign(g_.values.size(), false);
    for (const Node& n : g_.nodes)
      for (ValueId id : n.outputs) stored_[id] = true;
    for (ValueId id : options_.unplanned) stored_[id] = false;
  }

  void FormGroups() {
    for (const Node& n : g_.nodes)
      if (n.op == Op::kReshape) groups_.Join(n.outputs[0], n.inputs[0]);
    for (auto [value, owner] : options_.aliases) groups_.Join(value, owner);
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      for (ValueId id : g_.nodes[i].outputs) Touch(id, i);
      for (ValueId id : g_.nodes[i].inputs)
        if (id != kNoValue) Touch(id, i);
    }
  }
  // A value that is not stored lengthens the life of its group all the same: the caller may write the group's bytes at its node.
  void Touch(ValueId id, int node) {
    Buffer& b = buffers_[groups_.Root(id)];
    b.is_stored = b.is_stored || stored_[id];
    if (b.first < 0) b.first = node;
    b.last = node;
  }

  Status SizeBuffers() {
    std::vector<int64_t> wider(g_.values.size(), 0);
    for (auto [value, row] : options_.row_values) wider[value] = std::max(wider[value], row);
    for (int v = 0; v < n_values_; ++v) {
      if (!stored_[v]) continue;
      Buffer& b = buffers_[groups_.Root(v)];
      const int64_t width = std::max(ValuesPerToken(g_.values[v].shape), wider[v]);
      b.row_values = std::max(b.row_values, (width + kRowPad - 1) / kRowPad * kRowPad);
      b.rows = std::max<int64_t>(b.rows, HasTokens(g_.values[v].shape) ? options_.tokens : 1);
    }
    for (Buffer& b : buffers_) {
      if (!b.is_stored) continue;
      if (b.row_values > kMaxBytes / 4 / b.rows)
        return Error(Code::kLimit, fmt::format("graph: a value of {} x {} numbers", b.rows, b.row_values), "use fewer tokens a call");
      b.bytes = b.row_values * b.rows * static_cast<int64_t>(sizeof(float));
    }
    return Ok();
  }

  void PlaceBuffers() {
    std::vector<ValueId> order;
    for (int v = 0; v < n_values_; ++v)
      if (buffers_[v].is_stored) order.push_back(v);
    std::stable_sort(order.begin(), order.end(), [&](ValueId a, ValueId b) { return buffers_[a].bytes > buffers_[b].bytes; });
    std::vector<ValueId> placed;  // by rising offset
    for (ValueId id : order) {
      Buffer& b = buffers_[id];
      b.offset = BestGap(placed, b);
      arena_bytes_ = std::max(arena_bytes_, b.offset + b.bytes);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), b.offset,
                                     [&](int64_t offset, ValueId other) { return offset < buffers_[other].offset; }),
                    id);
    }
  }

  int64_t BestGap(const std::vector<ValueId>& placed, const Buffer& b) const {
    int64_t best = -1, best_size = 0, end = 0;  // end: of what is taken so far while b lives
    for (ValueId id : placed) {
      const Buffer& other = buffers_[id];
      if (other.last < b.first || b.last < other.first) continue;
      const int64_t gap = other.offset - end;
      if (gap >= b.bytes && (best < 0 || gap < best_size)) {
        best = end;
        best_size = gap;
      }
      end = std::max(end, other.offset + other.bytes);
    }
    return best >= 0 ? best : end;
  }

  const Graph& g_;
  const MemoryPlanOptions& options_;
  const int n_values_;
  Groups groups_;
  std::vector<Buffer> buffers_;  // by root value
  std::vector<bool> stored_;     // by value
  int64_t arena_bytes_ = 0;
};

}  // namespace

Result<MemoryPlan> PlanMemory(const Graph& g, const MemoryPlanOptions& options) { return Planner(g, options).Run(); }

}  // namespace slm::graph
