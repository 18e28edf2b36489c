#include "backend/cpu/emit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace slm::backend {
using graph::ValueId;

Place Emitter::PlaceOf(ValueId v) const {
  Place p;
  p.width = RowWidth(g_, v);
  if (a_.in_logits[v]) {
    p.base = Place::Base::kLogits;
    p.stride = out_.logits_stride;
    return p;
  }
  const ValueId root = a_.Root(v);
  const auto& slot = plan_.slots[root];
  SLM_ASSERT(slot.offset >= 0);
  p.offset = slot.offset / 4 + a_.Column(v);
  p.stride = slot.row_values;
  return p;
}

Resource Emitter::ArenaOf(ValueId v) const {
  if (a_.in_logits[v]) return {Resource::Kind::kLogits};
  const auto& slot = plan_.slots[a_.Root(v)];
  SLM_ASSERT(slot.offset >= 0);
  return {Resource::Kind::kArena, slot.offset, slot.offset + slot.row_values * out_.chunk * 4};
}

void Emitter::Add(int node, void (*fn)(const void*, const Frame&), std::shared_ptr<const void> operands, const Touched& t) {
  const graph::Node& n = g_.nodes[node];
  Step s;
  s.fn = fn;
  s.operands = std::move(operands);
  s.rows = t.all_rows ? RowSet::kAll : (node == a_.last_attention ? RowSet::kTail : RowsAt(node));
  s.name = n.name;
  s.kernel = t.kernel;
  s.out = t.out;
  s.layer = n.layer;
  Access a;
  for (ValueId v : t.reads) a.reads.push_back(ArenaOf(v));
  for (ValueId v : t.writes) a.writes.push_back(ArenaOf(v));
  if (t.padded_in) a.reads.push_back({Resource::Kind::kPadded});
  if (t.padded_out) a.writes.push_back({Resource::Kind::kPadded});
  if (t.partial_in) a.reads.push_back({Resource::Kind::kPartial});
  if (t.partial_out) a.writes.push_back({Resource::Kind::kPartial});
  if (t.kv_in >= 0) a.reads.push_back({Resource::Kind::kKv, t.kv_in, t.kv_in + 1});
  if (t.kv_out >= 0) a.writes.push_back({Resource::Kind::kKv, t.kv_out, t.kv_out + 1});
  s.one_row = a;
  if (t.activations_in) a.reads.push_back({Resource::Kind::kActivations});
  if (t.activations_out) a.writes.push_back({Resource::Kind::kActivations});
  s.many_rows = std::move(a);
  out_.steps.push_back(std::move(s));
  if (t.report == Touched::Report::kYes) Report(node, t);
}

void Emitter::Report(int node, const Touched& t) {
  const char* op = graph::Info(g_.nodes[node].op).name;
  for (auto& row : out_.placement)
    if (row.op == op && row.kernel == t.kernel && row.reason == t.reason) {
      ++row.count;
      return;
    }
  out_.placement.push_back({op, 1, "cpu", "cpu", t.kernel, t.reason});
}

WideInput Emitter::Wide() const {
  if (!out_.wide) return {};
  return {kernels::ActivationTiles(o_.isa), kernels::Norm(o_.isa), kernels::Activations(o_.isa)};
}

void Emitter::NeedActivations(int node, ValueId x) {
  if (in_activations_ == x && activations_rows_ == RowsAt(node)) return;
  SLM_ASSERT(a_.stored[x]);
  auto s = std::make_shared<QuantizeStep>();
  s->kernels = kernels::Quantize(o_.isa);
  s->wide = Wide();
  s->x = PlaceOf(x);
  s->rows = RowsAt(node);
  Touched t{.reads = {x}, .kernel = s->kernels.name};
  t.activations_out = true;
  t.report = Touched::Report::kNo;
  Add(node, &QuantizeStep::Run, s, t);
  in_activations_ = x;
  activations_rows_ = s->rows;
}

void Emitter::Activations(int node, ValueId normed, ValueId x, const float* w, float eps) {
  auto s = std::make_shared<QuantizeStep>();
  s->kernels = kernels::Quantize(o_.isa);
  s->wide = Wide();
  s->x = PlaceOf(x);
  s->norm_w = w;
  s->eps = eps;
  s->rows = RowsAt(node);
  Touched t{.reads = {x}, .kernel = s->kernels.name};
  t.activations_out = true;
  Add(node, &QuantizeStep::Run, s, t);
  in_activations_ = normed;
  activations_rows_ = s->rows;
}

void Emitter::GateActivations(int node, ValueId result, ValueId in, Place gate, Place up, int act) {
  auto s = std::make_shared<GateQuantizeStep>();
  s->kernels = kernels::Quantize(o_.isa);
  s->wide = Wide();
  s->gate = gate;
  s->up = up;
  s->act = act;
  s->rows = RowsAt(node);
  Touched t{.reads = {in}, .kernel = s->kernels.name};
  t.activations_out = true;
  Add(node, &GateQuantizeStep::Run, s, t);
  in_activations_ = result;
  activations_rows_ = s->rows;
}

void Emitter::Pad(int node, ValueId x, int64_t padded_k) {
  auto s = std::make_shared<PadStep>();
  s->x = PlaceOf(x);
  s->padded_k = padded_k;
  s->rows = RowsAt(node);
  Touched t{.reads = {x}, .kernel = "copy_padded"};
  t.padded_out = true;
  t.report = Touched::Report::kNo;
  Add(node, &PadStep::Run, s, t);
}

const float* Emitter::Vector(ValueId v) {
  out_.vectors.push_back(graph::FixedValues(g_, v));
  return out_.vectors.back().data();
}

Status Emitter::Table(ValueId v, int rows, const float** data) {
  const auto& value = g_.values[v];
  if (!value.constant || value.constant->data.empty()) return Error(Code::kUnsupported, "a rotary table that is not a computed constant");
  if (value.shape[0] < rows)
    return Error(Code::kInvalidArgument, fmt::format("rotary table of {} positions for a context of {}", value.shape[0], rows),
                 "build the graph with max_context of at least the context");
  out_.constants.push_back(value.constant);
  *data = value.constant->data.data();
  return Ok();
}

}  // namespace slm::backend
