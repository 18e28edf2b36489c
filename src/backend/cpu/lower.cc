#include "backend/cpu/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "backend/cpu/analysis.h"
#include "backend/cpu/emit.h"
#include "backend/cpu/sizes.h"

namespace slm::backend {
namespace {
using graph::AttrKey;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::Op;
using graph::ValueId;

int ActivationOf(const Node& n) {
  if (n.op == Op::kSwish) return kernels::kActSilu;
  if (n.op == Op::kGelu) return n.String(AttrKey::kApproximate, "none") == "tanh" ? kernels::kActGeluTanh : kernels::kActGeluErf;
  return static_cast<int>(n.Int(AttrKey::kActivation));
}

class Lowering {
 public:
  Lowering(const Graph& g, const CpuOptions& o)
      : g_(g), o_(o), a_(Analyse(g, o.compute)), out_(std::make_unique<LoweredPlan>()), emit_(g, a_, *out_, o) {}

  Result<std::unique_ptr<LoweredPlan>> Run() {
    out_->chunk = std::min(o_.chunk, o_.context);
    SLM_RETURN_IF_ERROR(SizeCache(g_, o_, *out_));
    SLM_RETURN_IF_ERROR(PlanMatrices());
    out_->wide = std::all_of(out_->matrices.begin(), out_->matrices.end(), [&](const PackedMatrix& m) {
      return !kernels::IsQuantized(m.kind) || WideKernelFor(m.kind, o_.isa).fn != nullptr;
    });
    SLM_ASSIGN_OR_RETURN(graph::MemoryPlan memory, SizeArena(g_, a_, *out_));
    emit_.SetPlan(std::move(memory));
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      if (a_.absorbed[i]) continue;
      const Status s = LowerNode(i);
      if (!s.ok()) return s.error().At(g_.nodes[i].name);
    }
    PlaceBarriers(out_->steps);
    return std::move(out_);
  }

 private:
  // One packed matrix a distinct weight constant: a tied head and embedding share it.
  Status PlanMatrices() {
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      const Node& n = g_.nodes[i];
      if (n.op != Op::kGemm) continue;
      const auto& value = g_.values[n.inputs[1]];
      if (!value.constant) return Error(Code::kUnsupported, n.name + ": weights are not constant", "run the folding pass");
      const graph::Constant* c = value.constant.get();
      if (auto it = by_constant_.find(c); it != by_constant_.end()) {
        matrix_of_[i] = it->second;
        continue;
      }
      auto m = PlanMatrix(*g_.model, *c, value.shape[1], a_.segments[i],
                          o_.compute == ComputeMode::kF32 ? KeepPrecision::kF32 : KeepPrecision::kNative);
      if (!m.ok()) return m.error().At(n.name);
      out_->matrices.push_back(m.Take());
      PackedMatrix* p = &out_->matrices.back();
      by_constant_[c] = matrix_of_[i] = p;
      if (o_.float_weights == FloatWeights::kFile && CanStayInFile(*c, *p)) {
        p->file = g_.model.get();
        out_->constants.push_back(value.constant);
        out_->piece_bytes = std::max(out_->piece_bytes, PieceBytes(*p));
      } else {
        out_->weights_bytes += p->bytes;
      }
      out_->bytes_per_token += p->bytes;
      out_->ops_per_token += 2 * value.shape[0] * value.shape[1];
      const int64_t pk = kernels::PaddedK(p->k);
      if (kernels::IsQuantized(p->kind)) out_->activation_k = std::max(out_->activation_k, pk);
      else if (pk != p->k) out_->padded_k = std::max(out_->padded_k, pk);
      out_->unpack_bytes = std::max(out_->unpack_bytes, kernels::ScratchBytes(p->kind, p->k));
    }
    return Ok();
  }

  Status LowerNode(int i) {
    const Node& n = g_.nodes[i];
    switch (n.op) {
      case Op::kGather: return LowerGather(i);
      case Op::kGemm: return LowerGemm(i);
      case Op::kRmsNorm: return LowerNorm(i);
      case Op::kSkipRmsNorm: return LowerSkipNorm(i);
      case Op::kGatedActivation: return LowerGate(i);
      case Op::kGroupQueryAttention: return LowerAttention(i);
      case Op::kRotary: return LowerRotary(i);
      case Op::kReshape: return Ok();  // the same bytes
      case Op::kSplit: return Error(Code::kUnsupported, "a split of something other than a product", "switch fuse_qkv off");
      case Op::kAdd: return LowerBinary(i, ElementStep::Op::kAdd);
      case Op::kMul: return LowerBinary(i, ElementStep::Op::kMul);
      case Op::kDiv: return LowerBinary(i, ElementStep::Op::kDiv);
      case Op::kTanh: return LowerUnary(i, ElementStep::Op::kTanh);
      case Op::kSigmoid: return LowerUnary(i, ElementStep::Op::kSigmoid);
      case Op::kSwish:
      case Op::kGelu: return LowerUnary(i, ElementStep::Op::kActivate);
      case Op::kCount: break;
    }
    return Error(Code::kUnsupported, std::string("operator ") + graph::Info(n.op).name, "the CPU back end has no kernel for it");
  }

  Status LowerGather(int i) {
    const Node& n = g_.nodes[i];
    auto s = std::make_shared<EmbedStep>();
    const auto& table = g_.values[n.inputs[0]];
    if (!table.constant || table.constant->parts.size() != 1) return Error(Code::kUnsupported, "an embedding that is not one file tensor");
    if (auto it = by_constant_.find(table.constant.get()); it != by_constant_.end() && !it->second->file) s->packed = it->second;
    s->file = table.constant->parts[0].tensor;
    // The multiply that follows, if it was absorbed.
    for (int c : g_.ConsumersOf(n.outputs[0]))
      if (a_.absorbed[c] && g_.nodes[c].op == Op::kMul) s->scale = g_.values[g_.nodes[c].inputs[1]].constant->data[0];
    s->out = emit_.PlaceOf(n.outputs[0]);
    s->out.width = table.shape[1];
    const char* kernel = s->packed ? "embed_row_packed" : "embed_row_file";
    emit_.Add(i, &EmbedStep::Run, s, {.writes = {n.outputs[0]}, .kernel = kernel, .out = s->out});
    return Ok();
  }

  Status LowerGemm(int i) {
    const Node& n = g_.nodes[i];
    const PackedMatrix* w = matrix_of_.at(i);
    auto s = std::make_shared<MatMulStep>();
    s->w = w;
    s->kernel = KernelFor(w->kind, o_.isa);
    if (out_->wide) s->wide = WideKernelFor(w->kind, o_.isa);
    s->rows = emit_.RowsAt(i);
    Touched t;
    const ValueId x = n.inputs[0];
    if (kernels::IsQuantized(w->kind)) {
      emit_.NeedActivations(i, x);
      t.activations_in = true;
    } else if (kernels::PaddedK(w->k) != w->k) {
      emit_.Pad(i, x, kernels::PaddedK(w->k));
      s->from_padded = t.padded_in = true;
    } else {
      s->x = emit_.PlaceOf(x);
      t.reads.push_back(x);
    }
    if (n.inputs.size() > 2 && n.inputs[2] != kNoValue) s->bias = PaddedBias(*w, n.inputs[2]);
    ValueId to = n.outputs[0];
    if (a_.accumulates[i] >= 0) {
      to = g_.nodes[a_.accumulates[i]].inputs[0];
      s->accumulate = true;
      t.reads.push_back(to);
    }
    s->out = emit_.PlaceOf(to);
    t.writes.push_back(to);
    t.kernel = s->kernel.name;
    t.out = s->out;
    t.reason = w->note;
    if (s->wide.fn != nullptr)
      t.reason += fmt::format("{}from {} tokens {}", w->note.empty() ? "" : "; ", kernels::kWideTokens, s->wide.name);
    emit_.Add(i, &MatMulStep::Run, s, t);
    return Ok();
  }

  std::vector<float> PaddedBias(const PackedMatrix& w, ValueId bias) {
    const std::vector<float> flat = graph::FixedValues(g_, bias);
    std::vector<float> padded(static_cast<size_t>(w.padded_rows()), 0.0f);
    auto from = flat.begin();
    for (size_t k = 0; k < w.segment_rows.size(); ++k) {
      std::copy(from, from + w.segment_rows[k], padded.begin() + w.segment_offset[k]);
      from += w.segment_rows[k];
    }
    return padded;
  }

  Status LowerNorm(int i) {
    const Node& n = g_.nodes[i];
    const float* w = emit_.Vector(n.inputs[1]);
    const float eps = n.Float(AttrKey::kEpsilon);
    if (a_.into_activations[i]) {
      emit_.Activations(i, n.outputs[0], n.inputs[0], w, eps);
      return Ok();
    }
    auto s = std::make_shared<NormStep>();
    s->kernels = kernels::Norm(o_.isa);
    s->x = emit_.PlaceOf(n.inputs[0]);
    s->y = emit_.PlaceOf(n.outputs[0]);
    s->w = w;
    s->eps = eps;
    s->heads = static_cast<int>(RowWidth(g_, n.inputs[0]) / g_.values[n.inputs[1]].shape[0]);
    s->rows = emit_.RowsAt(i);
    emit_.Add(i, &NormStep::Run, s, {.reads = {n.inputs[0]}, .writes = {n.outputs[0]}, .kernel = s->kernels.name, .out = s->y});
    return Ok();
  }

  Status LowerSkipNorm(int i) {
    const Node& n = g_.nodes[i];
    const ValueId x = n.inputs[0], skip = n.inputs[1], normed = n.outputs[0];
    const ValueId sum = n.outputs.size() > 1 && n.outputs.back() != kNoValue ? n.outputs.back() : x;
    const bool done_by_product = std::find(a_.accumulates.begin(), a_.accumulates.end(), i) != a_.accumulates.end();
    if (!done_by_product) SLM_RETURN_IF_ERROR(LowerResidual(i, x, skip, sum));
    const float* w = emit_.Vector(n.inputs[2]);
    const float eps = n.Float(AttrKey::kEpsilon);
    if (a_.into_activations[i]) {
      emit_.Activations(i, normed, sum, w, eps);
      return Ok();
    }
    auto s = std::make_shared<NormStep>();
    s->kernels = kernels::Norm(o_.isa);
    s->x = emit_.PlaceOf(sum);
    s->y = emit_.PlaceOf(normed);
    s->w = w;
    s->eps = eps;
    s->rows = emit_.RowsAt(i);
    emit_.Add(i, &NormStep::Run, s, {.reads = {sum}, .writes = {normed}, .kernel = s->kernels.name, .out = s->y});
    return Ok();
  }

  // sum = x + skip, in x's memory where the analysis allows it.
  Status LowerResidual(int i, ValueId x, ValueId skip, ValueId sum) {
    if (a_.Root(sum) != a_.Root(x)) {
      auto s = std::make_shared<ElementStep>();
      s->op = ElementStep::Op::kAdd;
      s->kernels = kernels::Activations(o_.isa);
      s->a = emit_.PlaceOf(x);
      s->b = emit_.PlaceOf(skip);
      s->out = emit_.PlaceOf(sum);
      s->rows = emit_.RowsAt(i);
      emit_.Add(i, &ElementStep::Run, s, {.reads = {x, skip}, .writes = {sum}, .kernel = s->kernels.name, .out = s->out});
      return Ok();
    }
    auto s = std::make_shared<AddStep>();
    s->act = kernels::Activations(o_.isa);
    s->x = emit_.PlaceOf(x);
    s->rows = emit_.RowsAt(i);
    ValueId d = skip;
    if (!a_.stored[skip]) {  // the norm before the add was absorbed
      const Node& norm = g_.nodes[g_.ProducerOf(skip)];
      s->norm = kernels::Norm(o_.isa);
      s->norm_w = emit_.Vector(norm.inputs[1]);
      s->eps = norm.Float(AttrKey::kEpsilon);
      d = norm.inputs[0];
    }
    s->d = emit_.PlaceOf(d);
    emit_.Add(i, &AddStep::Run, s, {.reads = {x, d}, .writes = {x}, .kernel = s->act.name, .out = s->x});
    return Ok();
  }

  Status LowerGate(int i) {
    const Node& n = g_.nodes[i];
    const ValueId in = n.inputs[0];
    Place gate = emit_.PlaceOf(in), up = gate;
    gate.width = up.width = RowWidth(g_, n.outputs[0]);
    const int producer = g_.ProducerOf(in);
    const bool halves = producer >= 0 && a_.segments[producer].size() == 2;
    up.offset += halves ? kernels::PaddedRows(gate.width) : gate.width;
    if (a_.into_activations[i]) {
      emit_.GateActivations(i, n.outputs[0], in, gate, up, ActivationOf(n));
      return Ok();
    }
    auto s = std::make_shared<ElementStep>();
    s->op = ElementStep::Op::kGate;
    s->act = ActivationOf(n);
    s->kernels = kernels::Activations(o_.isa);
    s->a = gate;
    s->b = up;
    s->out = emit_.PlaceOf(n.outputs[0]);
    s->rows = emit_.RowsAt(i);
    emit_.Add(i, &ElementStep::Run, s, {.reads = {in}, .writes = {n.outputs[0]}, .kernel = s->kernels.name, .out = s->out});
    return Ok();
  }

  Status LowerRotary(int i) {
    const Node& n = g_.nodes[i];
    auto s = std::make_shared<RotaryStep>();
    s->kernels = kernels::Rope(o_.isa);
    s->x = emit_.PlaceOf(n.inputs[0]);
    s->out = emit_.PlaceOf(n.outputs[0]);
    s->n_heads = static_cast<int>(n.Int(AttrKey::kNumHeads));
    s->head_dim = static_cast<int>(RowWidth(g_, n.inputs[0]) / s->n_heads);
    s->rotary_dim = static_cast<int>(n.Int(AttrKey::kRotaryDim));
    s->interleaved = n.Int(AttrKey::kInterleaved) != 0;
    SLM_RETURN_IF_ERROR(emit_.Table(n.inputs[1], o_.context, &s->cos));
    SLM_RETURN_IF_ERROR(emit_.Table(n.inputs[2], o_.context, &s->sin));
    emit_.Add(i, &RotaryStep::Run, s, {.reads = {n.inputs[0]}, .writes = {n.outputs[0]}, .kernel = s->kernels.name, .out = s->out});
    return Ok();
  }

  Status LowerAttention(int i) {
    const Node& n = g_.nodes[i];
    const ValueId q = n.inputs[graph::kGqaQuery], k = n.inputs[graph::kGqaKey], v = n.inputs[graph::kGqaValue];
    const int layer = static_cast<int>(n.Int(AttrKey::kLayer));
    const kv::LayerPlace& place = out_->kv.layer(layer);
    auto store = std::make_shared<StoreStep>();
    store->rope = kernels::Rope(o_.isa);
    store->pack = kernels::KvPack(o_.isa);
    store->int8 = kernels::AttentionInt8(o_.isa);
    store->q = emit_.PlaceOf(q);
    store->k = emit_.PlaceOf(k);
    store->v = emit_.PlaceOf(v);
    store->n_heads = static_cast<int>(n.Int(AttrKey::kNumHeads));
    store->n_kv_heads = place.shape.n_kv_heads;
    store->head_dim = place.shape.head_dim;
    store->kv = KvPlaceOf(place, o_.kv_type);
    Touched t{.reads = {q, k, v}, .kernel = store->pack.name};
    if (n.Int(AttrKey::kDoRotary) != 0) {
      store->interleaved = n.Int(AttrKey::kInterleaved) != 0;
      store->rotary_dim = static_cast<int>(n.Int(AttrKey::kRotaryDim, store->head_dim));
      SLM_RETURN_IF_ERROR(emit_.Table(n.inputs[graph::kGqaCos], o_.context, &store->cos));
      SLM_RETURN_IF_ERROR(emit_.Table(n.inputs[graph::kGqaSin], o_.context, &store->sin));
      for (ValueId rotated : {q, k}) {
        if (g_.ConsumersOf(rotated).size() != 1)
          return Error(Code::kUnsupported, "a query or key that something else reads, too", "switch fuse_rope off");
        t.writes.push_back(rotated);
      }
    }
    t.kv_out = layer;
    t.all_rows = true;  // keys and values of every token are stored, also when only the last row goes on
    t.report = Touched::Report::kNo;
    emit_.Add(i, &StoreStep::Run, store, t);

    auto s = std::make_shared<AttentionStep>();
    // --compute f32 promises f32 products.
    const bool exact = o_.compute == ComputeMode::kF32 && Includes(o_.isa, Isa::kAvx512Vnni);
    s->kernels = kernels::Attention(exact ? Isa::kAvx512Vnni : o_.isa);
    if (o_.kv_type == kernels::KvType::kInt8) {  // the partial results, and so the merge, are the same
      s->kernels.prefill = store->int8.prefill;
      s->kernels.decode = store->int8.decode;
      s->kernels.name = store->int8.name;
    }
    s->q = store->q;
    s->out = emit_.PlaceOf(n.outputs[0]);
    s->n_heads = store->n_heads;
    s->n_kv_heads = store->n_kv_heads;
    s->head_dim = store->head_dim;
    s->window = place.shape.window;
    s->scale = n.Float(AttrKey::kScale, 1);
    s->softcap = n.Float(AttrKey::kSoftcap, 0);
    s->kv = store->kv;
    s->rows = i == a_.last_attention ? RowSet::kTail : RowSet::kAll;
    Touched at{.reads = {q}, .writes = {n.outputs[0]}, .kernel = s->kernels.name, .out = s->out};
    at.kv_in = layer;
    at.partial_out = true;
    emit_.Add(i, &AttentionStep::Run, s, at);
    Touched mt{.writes = {n.outputs[0]}, .kernel = s->kernels.name, .out = s->out};
    mt.partial_in = true;
    mt.report = Touched::Report::kNo;
    emit_.Add(i, &AttentionStep::Merge, s, mt);
    return Ok();
  }

  Status LowerBinary(int i, ElementStep::Op op) {
    const Node& n = g_.nodes[i];
    ValueId a = n.inputs[0], b = n.inputs[1];
    if (g_.IsConstant(a) && !g_.IsConstant(b) && op != ElementStep::Op::kDiv) std::swap(a, b);
    if (g_.IsConstant(a)) return Error(Code::kUnsupported, "arithmetic on constants only", "switch fold_constants on");
    auto s = std::make_shared<ElementStep>();
    Touched t{.reads = {a}, .writes = {n.outputs[0]}};
    if (g_.IsConstant(b)) {
      s->constant = graph::FixedValues(g_, b);
      if (s->constant.size() != 1 && static_cast<int64_t>(s->constant.size()) != RowWidth(g_, a))
        return Error(Code::kUnsupported, fmt::format("broadcast of {} values over {}", s->constant.size(), RowWidth(g_, a)));
    } else {
      s->b = emit_.PlaceOf(b);
      t.reads.push_back(b);
    }
    return FinishElement(i, op, s, a, std::move(t));
  }
  Status LowerUnary(int i, ElementStep::Op op) {
    const Node& n = g_.nodes[i];
    auto s = std::make_shared<ElementStep>();
    s->act = ActivationOf(n);
    return FinishElement(i, op, s, n.inputs[0], {.reads = {n.inputs[0]}, .writes = {n.outputs[0]}});
  }
  Status FinishElement(int i, ElementStep::Op op, const std::shared_ptr<ElementStep>& s, ValueId a, Touched t) {
    s->op = op;
    s->kernels = kernels::Activations(o_.isa);
    s->a = emit_.PlaceOf(a);
    s->out = emit_.PlaceOf(g_.nodes[i].outputs[0]);
    s->rows = emit_.RowsAt(i);
    t.kernel = s->kernels.name;
    t.out = s->out;
    emit_.Add(i, &ElementStep::Run, s, t);
    return Ok();
  }

  const Graph& g_;
  const CpuOptions& o_;
  Analysis a_;
  std::unique_ptr<LoweredPlan> out_;
  Emitter emit_;
  std::map<const graph::Constant*, PackedMatrix*> by_constant_;
  std::map<int, PackedMatrix*> matrix_of_;
};

}  // namespace

Result<std::unique_ptr<LoweredPlan>> Lower(const graph::Graph& g, const CpuOptions& options) { return Lowering(g, options).Run(); }

}  // namespace slm::backend
