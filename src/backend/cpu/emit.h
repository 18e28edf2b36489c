// Emitter: turns "this node reads and writes these values with this kernel" into a step with its places and accesses.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/analysis.h"
#include "backend/cpu/lower.h"
#include "backend/cpu/steps.h"

namespace slm::backend {

// What a step touches, in terms of graph values.
struct Touched {
  std::vector<graph::ValueId> reads, writes;
  const char* kernel = "";
  Place out;
  std::string reason;
  bool activations_in = false, activations_out = false;
  bool padded_in = false, padded_out = false;
  bool partial_in = false, partial_out = false;
  int kv_in = -1, kv_out = -1;
  bool all_rows = false;
  enum class Report : uint8_t { kYes, kNo } report = Report::kYes;  // kNo: part of another row of the placement table
};

class Emitter {
 public:
  Emitter(const graph::Graph& g, const Analysis& a, LoweredPlan& out, const CpuOptions& o) : g_(g), a_(a), out_(out), o_(o) {}
  void SetPlan(graph::MemoryPlan plan) { plan_ = std::move(plan); }

  // Where a value's rows are. The value must be stored.
  Place PlaceOf(graph::ValueId v) const;
  RowSet RowsAt(int node) const { return node > a_.last_attention ? RowSet::kTail : RowSet::kAll; }
  void Add(int node, void (*fn)(const void*, const Frame&), std::shared_ptr<const void> operands, const Touched& t);

  // Emits what fills the activation buffer with `x`, unless it is there already.
  void NeedActivations(int node, graph::ValueId x);
  // Fills the activation buffer with `normed` = norm(x).
  void Activations(int node, graph::ValueId normed, graph::ValueId x, const float* w, float eps);
  void GateActivations(int node, graph::ValueId result, graph::ValueId in, Place gate, Place up, int act);
  void Pad(int node, graph::ValueId x, int64_t padded_k);

  // f32 values of a fixed value, kept in the plan.
  const float* Vector(graph::ValueId v);
  // A rotary table with at least `rows` rows. Error: kInvalidArgument when it is shorter.
  Status Table(graph::ValueId v, int rows, const float** data);

 private:
  Resource ArenaOf(graph::ValueId v) const;
  WideInput Wide() const;
  void Report(int node, const Touched& t);

  const graph::Graph& g_;
  const Analysis& a_;
  LoweredPlan& out_;
  const CpuOptions& o_;
  graph::MemoryPlan plan_;
  graph::ValueId in_activations_ = graph::kNoValue;  // what the buffer holds at this point of the plan
  RowSet activations_rows_ = RowSet::kAll;
};

}  // namespace slm::backend
