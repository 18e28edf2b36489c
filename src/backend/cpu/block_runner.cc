// See block_runner.h. Before the first product that reads a value, all threads copy its rows: later steps may reuse its memory; so may
// they that of results. Rounding happens in place after that; a padded copy is made for each product, and rounded for each.
#include "backend/cpu/block_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "backend/cpu/lower.h"
#include "backend/cpu/steps.h"
#include "base/arena.h"
#include "base/mmap.h"

namespace slm::backend {
namespace {
using graph::Op;

// What happens beside a step: the input whose rows are copied before it, the one that is rounded before it, the output that is whole after
// it; -1: none.
struct Around {
  int copied = -1, rounded = -1, kept = -1;
};

class Runner final : public BlockRunner {
 public:
  explicit Runner(ThreadTeam& team) : team_(team) {}

  Status Prepare(const graph::Graph& decoder, const BlockOptions& o) {
    max_tokens_ = o.max_tokens;
    grids_ = o.input_grids;
    auto table = std::make_shared<graph::Constant>();
    hidden_.name = "hidden_states";
    hidden_.dims = {o.max_tokens, decoder.model->config.d_model};
    table->parts.push_back({&hidden_, 0, o.max_tokens});
    SLM_ASSIGN_OR_RETURN(layer_, graph::CutLayer(decoder, o.layer, table, o.max_tokens));
    SLM_RETURN_IF_ERROR(Replace(o.replaced));
    CpuOptions cpu;
    cpu.n_threads = team_.size();
    cpu.context = cpu.chunk = o.max_tokens;
    cpu.kv_type = kernels::KvType::kF32;
    cpu.compute = ComputeMode::kF32;
    cpu.isa = o.isa;
    cpu.logits = LogitsOf::kAllTokens;
    SLM_ASSIGN_OR_RETURN(plan_, Lower(layer_.graph, cpu));
    around_.resize(plan_->steps.size());
    FindInputs();
    if (o.outputs == KeepOutputs::kYes) FindOutputs();
    SLM_ASSERT(grids_.empty() || grids_.size() == inputs_.size());
    SLM_RETURN_IF_ERROR(Allocate());
    return PackWeights();
  }

  void Run(const float* x, int n_tokens, float* out) override {
    SLM_ASSERT(n_tokens >= 1 && n_tokens <= max_tokens_);
    hidden_.data = std::as_bytes(std::span(x, static_cast<size_t>(n_tokens * hidden_.dims[1])));
    for (Frame& f : frames_) f.m = n_tokens;
    auto walk = [&](int t, int) { Walk(t); };
    team_.Run(walk);
    const Step& last = plan_->steps.back();
    const size_t row = static_cast<size_t>(hidden_.dims[1]);
    for (int i = 0; i < n_tokens; ++i) std::memcpy(out + static_cast<size_t>(i) * row, frames_[0].At(last.out, i), row * sizeof(float));
  }

  std::span<const LayerInput> inputs() const override { return inputs_; }
  std::span<const LayerOutput> outputs() const override { return outputs_; }
  int64_t bytes() const override { return bytes_; }

 private:
  // Constants that point at a replaced tensor point at its stand-in.
  Status Replace(const std::vector<Replacement>& replaced) {
    stand_ins_.reserve(replaced.size());
    std::map<const model::Tensor*, const model::Tensor*> to;
    for (const Replacement& r : replaced) {
      SLM_ASSERT(static_cast<int64_t>(r.values.size()) == r.tensor->n_values());
      model::Tensor& t = stand_ins_.emplace_back();
      t.name = r.tensor->name;
      t.dims = r.tensor->dims;
      t.data = std::as_bytes(r.values);
      to[r.tensor] = &t;
    }
    for (graph::Value& v : layer_.graph.values) {
      if (!v.constant || v.constant->parts.empty()) continue;
      graph::Constant copy = *v.constant;
      for (graph::ConstantPart& p : copy.parts) {
        const auto it = to.find(p.tensor);
        if (it == to.end()) continue;
        p.tensor = it->second;
        original_[it->second] = it->first;
      }
      v.constant = std::make_shared<graph::Constant>(std::move(copy));
    }
    return Ok();
  }

  // The values that products read, and the step before which each is copied.
  void FindInputs() {
    std::map<graph::ValueId, size_t> known;
    std::map<std::string, const graph::Node*> products;
    for (const graph::Node& n : layer_.graph.nodes)
      if (n.op == Op::kGemm) products[n.name] = &n;
    for (size_t s = 0; s < plan_->steps.size(); ++s) {
      if (plan_->steps[s].fn != &MatMulStep::Run) continue;
      const graph::Node& n = *products.at(plan_->steps[s].name);
      const auto [it, is_new] = known.emplace(n.inputs[0], inputs_.size());
      if (is_new) {
        inputs_.push_back({.matrices = {}, .width = layer_.graph.values[n.inputs[1]].shape[1], .rows = nullptr});
        around_[s].copied = static_cast<int>(it->second);
      }
      const bool padded = static_cast<const MatMulStep*>(plan_->steps[s].operands.get())->from_padded;
      if (!grids_.empty() && (is_new || padded)) around_[s].rounded = static_cast<int>(it->second);
      const model::Tensor* t = layer_.graph.values[n.inputs[1]].constant->parts[0].tensor;
      if (const auto o = original_.find(t); o != original_.end()) t = o->second;
      auto& matrices = inputs_[it->second].matrices;
      if (std::find(matrices.begin(), matrices.end(), t) == matrices.end()) matrices.push_back(t);
    }
  }

  // The results of the nodes, and the steps after which each is whole: the last of a node's.
  void FindOutputs() {
    Around* last = nullptr;
    for (size_t s = 0; s < plan_->steps.size(); ++s) {
      const Step& step = plan_->steps[s];
      if (step.out.width == 0) continue;
      if (last && outputs_.back().name == step.name) last->kept = -1;
      else outputs_.push_back({.name = step.name, .width = step.out.width, .rows = nullptr});
      last = &around_[s];
      last->kept = static_cast<int>(outputs_.size()) - 1;
    }
  }

  Status Allocate() {
    const int n = team_.size();
    ArenaPlan a;
    const size_t arena = a.Add(static_cast<size_t>(plan_->arena_bytes) + 64);
    const size_t padded = a.Add(static_cast<size_t>(plan_->padded_k) * static_cast<size_t>(max_tokens_) * sizeof(float));
    const size_t partial = a.Add(static_cast<size_t>(plan_->partial_floats) * sizeof(float));
    std::vector<size_t> scratch, row, copies;
    for (int t = 0; t < n; ++t) {
      scratch.push_back(a.Add(static_cast<size_t>(plan_->attention_floats) * sizeof(float)));
      row.push_back(a.Add(static_cast<size_t>(plan_->row_floats) * sizeof(float)));
    }
    for (const LayerInput& in : inputs_) copies.push_back(a.Add(static_cast<size_t>(in.width * max_tokens_) * sizeof(float)));
    std::vector<size_t> kept;
    for (const LayerOutput& out : outputs_) kept.push_back(a.Add(static_cast<size_t>(out.width * max_tokens_) * sizeof(float)));
    SLM_ASSIGN_OR_RETURN(work_, Buffer::Allocate(a.total()));
    SLM_ASSIGN_OR_RETURN(kv_, Buffer::Allocate(static_cast<size_t>(plan_->kv.total_bytes())));
    bytes_ = static_cast<int64_t>(a.total() + plan_->kv.total_bytes()) + plan_->weights_bytes;
    rows_.resize(static_cast<size_t>(max_tokens_));
    std::iota(rows_.begin(), rows_.end(), 0);
    const auto at = [&](size_t offset) { return reinterpret_cast<float*>(work_.data() + offset); };
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].rows = at(copies[i]);
    for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i].rows = at(kept[i]);
    frames_.resize(static_cast<size_t>(n));
    for (int t = 0; t < n; ++t) {
      Frame& f = frames_[static_cast<size_t>(t)];
      f.thread = t;
      f.n_threads = n;
      f.tokens = rows_.data();
      f.arena = at(arena);
      f.padded = at(padded);
      f.partial = at(partial);
      f.scratch = at(scratch[static_cast<size_t>(t)]);
      f.row = at(row[static_cast<size_t>(t)]);
      f.kv = kv_.data();
    }
    return Ok();
  }

  Status PackWeights() {
    SLM_ASSIGN_OR_RETURN(weights_, Buffer::Allocate(static_cast<size_t>(plan_->weights_bytes)));
    uint8_t* at = weights_.as<uint8_t>();
    for (PackedMatrix& m : plan_->matrices) {
      PackMatrix(m, *layer_.graph.model, at, team_);
      m.data = at;
      m.source = nullptr;
      at += m.bytes;
    }
    return Ok();
  }

  void Walk(int t) {
    const Frame& f = frames_[static_cast<size_t>(t)];
    const auto mode = static_cast<int>(f.m == 1 ? Mode::kDecode : Mode::kPrefillAll);
    for (size_t s = 0; s < plan_->steps.size(); ++s) {
      const Step& step = plan_->steps[s];
      if (step.barrier[mode]) team_.Barrier(t);
      const Around& around = around_[s];
      if (around.copied >= 0) {
        const LayerInput& in = inputs_[static_cast<size_t>(around.copied)];
        ForRows(f, [&](int64_t i) { Keep(in, i, InputRow(step, f, i)); });
      }
      if (around.rounded >= 0) {
        const auto input = static_cast<size_t>(around.rounded);
        const auto width = static_cast<size_t>(inputs_[input].width);
        ForRows(f, [&](int64_t i) { RoundInput(grids_[input], {InputRow(step, f, i), width}); });
        team_.Barrier(t);
      }
      step.fn(step.operands.get(), f);
      if (around.kept < 0) continue;
      team_.Barrier(t);  // rows that other threads made
      const LayerOutput& out = outputs_[static_cast<size_t>(around.kept)];
      ForRows(f, [&](int64_t i) { Keep(out, i, f.At(step.out, i)); });
      team_.Barrier(t);  // the next step may take their memory
    }
  }
  template <class F>
  static void ForRows(const Frame& f, const F& row) {
    const Range mine = SplitRange(f.m, 1, f.thread, f.n_threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) row(i);
  }
  // `kept`: LayerInput or LayerOutput, whose rows are this runner's memory.
  template <class Kept>
  static void Keep(const Kept& kept, int64_t i, const float* row) {
    std::memcpy(const_cast<float*>(kept.rows) + i * kept.width, row, static_cast<size_t>(kept.width) * sizeof(float));
  }
  static float* InputRow(const Step& product, const Frame& f, int64_t i) {
    const auto& s = *static_cast<const MatMulStep*>(product.operands.get());
    return s.from_padded ? f.padded + i * kernels::PaddedK(s.w->k) : f.At(s.x, i);
  }

  ThreadTeam& team_;
  int max_tokens_ = 0;
  model::Tensor hidden_;  // of the call: a tensor whose rows node 0 gathers
  std::vector<model::Tensor> stand_ins_;
  std::map<const model::Tensor*, const model::Tensor*> original_;  // of stand-ins
  graph::LayerGraph layer_;
  std::unique_ptr<LoweredPlan> plan_;
  std::vector<LayerInput> inputs_;
  std::vector<LayerOutput> outputs_;
  std::vector<InputGrid> grids_;
  std::vector<Around> around_;  // by step
  std::vector<int32_t> rows_;   // 0, 1, 2 …
  Buffer work_, kv_, weights_;
  std::vector<Frame> frames_;
  int64_t bytes_ = 0;
};

}  // namespace

void RoundInput(const InputGrid& grid, std::span<float> row) {
  if (grid.rounding == InputRounding::kNone) return;
  const auto levels = static_cast<float>((1 << (grid.bits - 1)) - 1);
  float most = grid.most;
  if (grid.rounding == InputRounding::kPerToken) {
    most = 0;
    for (const float x : row) most = std::max(most, std::abs(x));
  }
  const float scale = most / levels, inverse = most > 0 ? levels / most : 0.0f;
  for (float& x : row) x = std::clamp(std::nearbyint(x * inverse), -levels, levels) * scale;
}

Result<std::unique_ptr<BlockRunner>> BlockRunner::Create(const graph::Graph& decoder, const BlockOptions& options, ThreadTeam& team) {
  auto runner = std::make_unique<Runner>(team);
  SLM_RETURN_IF_ERROR(runner->Prepare(decoder, options));
  return std::unique_ptr<BlockRunner>(std::move(runner));
}

}  // namespace slm::backend
