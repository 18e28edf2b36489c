// See calibrate.h: the text's way through the layers, and which candidate (layer_candidates.h) each layer becomes.
#include "quant/calibrate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "quant/drift.h"
#include "quant/layer_candidates.h"

namespace slm::quant {
namespace {
using backend::BlockRunner;
using model::Model;
using model::Tensor;

// Of a layer's shift (drift.h): with 0.01, as GPTQ has it, later layers fitted the calibration text. KLD of a Llama of 3.7 M parameters
// with 16k tokens: 0.00181, with 0.1 0.00177.
constexpr double kShiftDamping = 0.1;

class Walk final : public Calibration {
 public:
  Walk(CalibrationTask task, const Machine& machine, std::function<bool()> cancelled)
      : setup_{.task = std::move(task), .machine = machine, .cancelled = std::move(cancelled)} {}

  Status Begin(std::shared_ptr<const Model> m, const CalibrationText& text) {
    if (text.tokens() == 0) return Error(Code::kInvalidArgument, "no tokens to calibrate on", "give a longer text");
    setup_.longest = static_cast<int>(text.longest());
    SLM_ASSIGN_OR_RETURN(setup_.decoder, graph::BuildDecoder(m, {.max_context = setup_.longest}));
    SLM_ASSIGN_OR_RETURN(streams_, Embed(*m, text.sequences));
    if (reads_stored()) floats_ = streams_;
    return Ok();
  }

  Result<CalibratedLayer> Next() override {
    SLM_RETURN_IF_ERROR(Observe(layer_++));
    const Recipe& recipe = setup_.task.recipe;
    const LayerCandidates candidates(setup_, seen_);
    SLM_ASSIGN_OR_RETURN(Candidate best, candidates.Plain(Codes::kNearest));
    const double plain_error = best.error;
    const auto take = [&](Candidate c) {
      if (c.error < best.error) best = std::move(c);
    };
    const Codes codes = setup_.moves_codes() ? Codes::kMoved : Codes::kNearest;
    if (codes == Codes::kMoved && ((!recipe.fold && !recipe.smooth) || recipe.every_candidate)) {
      SLM_ASSIGN_OR_RETURN(Candidate c, candidates.Plain(codes));
      take(std::move(c));
    }
    if (recipe.fold) {
      SLM_ASSIGN_OR_RETURN(Candidate c, candidates.Folded(codes, FoldRule::kAwq));
      take(std::move(c));
    }
    if (recipe.smooth && setup_.rounds_inputs()) {
      SLM_ASSIGN_OR_RETURN(Candidate c, candidates.Folded(codes, FoldRule::kSmooth));
      take(std::move(c));
    }
    if (reads_stored()) {
      SLM_RETURN_IF_ERROR(MakeUp(candidates, &best));
      SLM_ASSIGN_OR_RETURN(const auto runner, candidates.RunnerOf(best));
      SLM_RETURN_IF_ERROR(Through(*runner, streams_));
    }
    return Store(std::move(best), plain_error);
  }

  Status Skip() override {
    if (reads_stored()) {  // what the next layer reads is what this one stores: that has to be found again
      const auto again = Next();
      return again.ok() ? Ok() : Status(again.error());
    }
    SLM_ASSIGN_OR_RETURN(const auto runner, FloatLayer(layer_++));
    return Through(*runner, streams_);
  }

 private:
  bool reads_stored() const { return setup_.reads_stored(); }

  // Moves sequences through the layer of `runner`.
  Status Through(BlockRunner& runner, std::vector<HiddenStates>& sequences) const {
    for (HiddenStates& s : sequences) {
      SLM_RETURN_IF_ERROR(setup_.GoOn());
      runner.Run(s.rows.data(), s.n, s.rows.data());
    }
    return Ok();
  }

  Result<std::unique_ptr<BlockRunner>> FloatLayer(int layer) const {
    return BlockRunner::Create(setup_.decoder, {.layer = layer, .max_tokens = setup_.longest, .isa = setup_.machine.isa, .replaced = {}},
                               *setup_.machine.team);
  }

  // The layer in float over the whole text: moves the streams of float on and gathers what the matrices read.
  Status Observe(int layer) {
    const Recipe& recipe = setup_.task.recipe;
    seen_ = ObservedLayer();
    seen_.layer = layer;
    const size_t n_gate = std::min(streams_.size(), static_cast<size_t>(std::max(recipe.gate_sequences, 1)));
    seen_.gate.assign(streams_.begin(), streams_.begin() + static_cast<int64_t>(n_gate));
    SLM_ASSIGN_OR_RETURN(const auto runner, FloatLayer(layer));
    const int64_t sampled = std::max<int64_t>(1, kSampleTokens / static_cast<int64_t>(streams_.size()));
    for (const backend::LayerInput& in : runner->inputs()) {
      for (const Tensor* t : in.matrices) seen_.input_of[t] = seen_.statistics.size();
      seen_.statistics.emplace_back(setup_.machine, in.width, recipe.most_energy);
      if (setup_.rounds_inputs()) seen_.samples.emplace_back(in.width, recipe.most_energy, sampled);
    }
    std::vector<float> out;
    for (HiddenStates& s : streams_) {
      SLM_RETURN_IF_ERROR(setup_.GoOn());
      out.resize(s.rows.size());
      runner->Run(s.rows.data(), s.n, out.data());
      for (size_t i = 0; i < seen_.statistics.size(); ++i) {
        seen_.statistics[i].Add(runner->inputs()[i].rows, s.n);
        if (setup_.rounds_inputs()) seen_.samples[i].Add(runner->inputs()[i].rows, s.n);
      }
      if (!reads_stored()) s.rows.swap(out);
    }
    if (reads_stored()) SLM_RETURN_IF_ERROR(Through(*runner, floats_));
    const std::vector<HiddenStates>& floats = reads_stored() ? floats_ : streams_;
    for (size_t i = 0; i < n_gate; ++i) seen_.want.push_back(floats[i].rows);
    for (InputStatistics& s : seen_.statistics) s.Finish();
    return Ok();
  }

  // Rows (x, e) of all sequences that do not judge: what `t` reads in the layer as `c` stores it, but for `t` itself, and what the layer
  // then lacks of the float model's output.
  Result<InputStatistics> Lacking(const LayerCandidates& candidates, const Candidate& c, const LayerTensor& t) const {
    SLM_ASSIGN_OR_RETURN(const auto runner, candidates.RunnerOf(c));
    const auto inputs = runner->inputs();
    const auto input = std::find_if(inputs.begin(), inputs.end(), [&](const auto& in) {
      return std::find(in.matrices.begin(), in.matrices.end(), t.tensor) != in.matrices.end();
    });
    SLM_ASSERT(input != inputs.end());
    InputStatistics joint(setup_.machine, t.width + t.rows, setup_.task.recipe.most_energy);
    std::vector<float> out, rows;
    for (size_t i = seen_.gate.size(); i < streams_.size(); ++i) {
      SLM_RETURN_IF_ERROR(setup_.GoOn());
      const HiddenStates& s = streams_[i];
      out.resize(s.rows.size());
      runner->Run(s.rows.data(), s.n, out.data());
      rows.resize(static_cast<size_t>(s.n * joint.width()));
      for (int64_t k = 0; k < s.n; ++k) {
        float* to = rows.data() + k * joint.width();
        std::copy(input->rows + k * t.width, input->rows + (k + 1) * t.width, to);
        for (int64_t j = 0; j < t.rows; ++j) {
          const auto at = static_cast<size_t>(k * t.rows + j);
          to[t.width + j] = floats_[i].rows[at] - out[at];
        }
      }
      joint.Add(rows.data(), s.n);
    }
    joint.Finish();
    return joint;
  }

  // Lets the down projection make up for what the rounded matrices and layers before it changed, where that brings the layer's output
  // nearer to the float model's.
  Status MakeUp(const LayerCandidates& candidates, Candidate* best) const {
    const Model& m = *setup_.decoder.model;
    const Tensor* down = m.Find(model::Role::kDown, seen_.layer);
    if (!setup_.moves_codes() || m.config.post_norms || !best->rounded.contains(down) || streams_.size() <= seen_.gate.size()) return Ok();
    Candidate c = *best;
    auto& tensors = c.weights.tensors();
    LayerTensor& t = *std::find_if(tensors.begin(), tensors.end(), [&](const LayerTensor& x) { return x.tensor == down; });
    c.rounded.erase(down);
    t.is_changed = true;  // it stands in as it is
    SLM_ASSIGN_OR_RETURN(const InputStatistics joint, Lacking(candidates, c, t));
    const Matrix shift = ShiftFor(setup_.machine, joint, t.width, kShiftDamping);
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t j = 0; j < t.width; ++j) t.values[static_cast<size_t>(r * t.width + j)] += shift.Row(r)[j] / m.config.residual_scale;
    t.fold.clear();  // the statistics are of the input as the stored layer has it
    const InputStatistics own = joint.Leading(t.width);
    Rounder rounder(setup_.machine, own, candidates.Rounding());
    auto rounded = rounder.Round(t, setup_.task.matrices.at(down));
    if (!rounded.ok()) return Ok();  // beyond its type's range: the layer is whole without
    c.rounded[down] = rounded.Take();
    const Status judged = candidates.Judge(&c);
    if (!judged.ok() && judged.error().code() == Code::kCancelled) return judged;
    if (!judged.ok() || !(c.error < best->error)) return Ok();
    c.steps.push_back(fmt::format("make_up ({:.3f})", c.error / best->error));
    *best = std::move(c);
    return Ok();
  }

  CalibratedLayer Store(Candidate c, double plain_error) const {
    CalibratedLayer out;
    for (const LayerTensor& t : c.weights.tensors()) {
      if (const auto it = c.rounded.find(t.tensor); it != c.rounded.end()) {
        out.tensors[t.tensor] = {std::move(it->second.bytes), std::move(it->second.coded), it->second.relative_error,
                                 c.grids.empty() ? 0 : c.grids[seen_.input_of.at(t.tensor)].most};
      } else if (t.is_changed) {
        out.tensors[t.tensor].bytes = FloatBytes(setup_.task.vectors == VectorTypes::kOwn ? t.tensor->dtype : DType::kF32, t.values);
      }
    }
    out.report.layer = seen_.layer;
    out.report.steps = std::move(c.steps);
    out.report.plain_error = plain_error;
    out.report.error = c.error;
    for (const LayerTensor& t : c.weights.tensors())
      if (const auto it = c.rounded.find(t.tensor); it != c.rounded.end())
        out.report.ways.push_back(fmt::format("{} {} {:.5f}", t.tensor->name, it->second.way, it->second.error));
    for (const InputStatistics& s : seen_.statistics) out.report.capped_tokens += s.capped();
    if (setup_.task.inputs == backend::InputRounding::kStatic)
      for (size_t i = 0; i < c.grids.size(); ++i)
        for (const LayerTensor& t : c.weights.tensors()) {
          if (!setup_.IsRounded(t) || seen_.input_of.at(t.tensor) != i) continue;
          out.report.ranges.push_back({t.tensor->name, c.grids[i].most, c.largest[i]});
          break;
        }
    return out;
  }

  CalibrationSetup setup_;
  int layer_ = 0;  // the next one
  std::vector<HiddenStates> streams_;
  std::vector<HiddenStates> floats_;  // where layers read what is stored: the float model's
  ObservedLayer seen_;
};

}  // namespace

Result<std::unique_ptr<Calibration>> Calibration::Start(std::shared_ptr<const Model> m, CalibrationTask task, const CalibrationText& text,
                                                        const Machine& machine, std::function<bool()> cancelled) {
  auto walk = std::make_unique<Walk>(std::move(task), machine, std::move(cancelled));
  SLM_RETURN_IF_ERROR(walk->Begin(std::move(m), text));
  return std::unique_ptr<Calibration>(std::move(walk));
}

}  // namespace slm::quant
