// See calibrate.h.
#include "quant/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/block_runner.h"
#include "quant/activation_sample.h"
#include "quant/awq.h"
#include "quant/curvature.h"
#include "quant/drift.h"
#include "quant/gptq.h"
#include "quant/hidden_states.h"
#include "quant/layer_weights.h"
#include "quant/rounding.h"
#include "quant/smooth.h"
#include "quant/statistics.h"

namespace slm::quant {
namespace {
using backend::BlockRunner;
using model::Model;
using model::Tensor;

const char* PlaceName(FoldPlace place) {
  switch (place) {
    case FoldPlace::kAttentionInput: return "attention_input";
    case FoldPlace::kValueOutput: return "value_output";
    case FoldPlace::kMlpInput: return "mlp_input";
    case FoldPlace::kUpOutput: return "up_output";
    case FoldPlace::kCount: break;
  }
  return "";
}

// Of a layer's shift (drift.h): with 0.01, as GPTQ has it, later layers fitted the calibration text. KLD of a Llama of 3.7 M parameters
// with 16k tokens: 0.00181, with 0.1 0.00177.
constexpr double kShiftDamping = 0.1;

// A layer as it would be stored.
struct Candidate {
  LayerWeights weights;
  std::map<const Tensor*, Rounded> rounded;
  std::vector<backend::InputGrid> grids;  // of its inputs; empty: they stay float
  std::vector<float> largest;             // of static ones, that was seen
  std::vector<std::string> steps;
  double error = 0;
};

class Walk final : public Calibration {
 public:
  Walk(CalibrationTask task, const Machine& machine, std::function<bool()> cancelled)
      : task_(std::move(task)), machine_(machine), cancelled_(std::move(cancelled)) {}

  Status Begin(std::shared_ptr<const Model> m, const CalibrationText& text) {
    if (text.tokens() == 0) return Error(Code::kInvalidArgument, "no tokens to calibrate on", "give a longer text");
    longest_ = static_cast<int>(text.longest());
    SLM_ASSIGN_OR_RETURN(decoder_, graph::BuildDecoder(m, {.max_context = longest_}));
    SLM_ASSIGN_OR_RETURN(streams_, Embed(*m, text.sequences));
    if (recipe_.inputs == LayerInputs::kStored) floats_ = streams_;
    return Ok();
  }

  Result<CalibratedLayer> Next() override {
    const int layer = layer_++;
    statistics_.clear();
    samples_.clear();
    input_of_.clear();
    const size_t n_gate = std::min(streams_.size(), static_cast<size_t>(std::max(recipe_.gate_sequences, 1)));
    gate_.assign(streams_.begin(), streams_.begin() + static_cast<int64_t>(n_gate));
    SLM_RETURN_IF_ERROR(Observe(layer));
    SLM_ASSIGN_OR_RETURN(Candidate best, Plain(layer, false));
    const double plain_error = best.error;
    const auto take = [&](Candidate c) {
      if (c.error < best.error) best = std::move(c);
    };
    if (moves_codes() && ((!recipe_.fold && !recipe_.smooth) || recipe_.every_candidate)) {
      SLM_ASSIGN_OR_RETURN(Candidate c, Plain(layer, true));
      take(std::move(c));
    }
    if (recipe_.fold) {
      SLM_ASSIGN_OR_RETURN(Candidate c, Folded(layer, moves_codes(), &Walk::AwqFold));
      take(std::move(c));
    }
    if (recipe_.smooth && rounds_inputs()) {
      SLM_ASSIGN_OR_RETURN(Candidate c, Folded(layer, moves_codes(), &Walk::SmoothFold));
      take(std::move(c));
    }
    if (recipe_.inputs == LayerInputs::kStored) {
      SLM_RETURN_IF_ERROR(MakeUp(layer, &best));
      SLM_RETURN_IF_ERROR(MoveOn(layer, best));
    }
    return Store(layer, std::move(best), plain_error);
  }

  Status Skip() override {
    if (recipe_.inputs == LayerInputs::kStored) {  // what the next layer reads is what this one stores: that has to be found again
      const auto again = Next();
      return again.ok() ? Ok() : Status(again.error());
    }
    SLM_ASSIGN_OR_RETURN(const auto runner, RunnerOf(layer_++));
    return Through(*runner);
  }

 private:
  Status GoOn() const { return cancelled_ && cancelled_() ? Status(Error(Code::kCancelled, "interrupted")) : Ok(); }

  // Moves the text through the layer of `runner`.
  Status Through(BlockRunner& runner) {
    for (HiddenStates& s : streams_) {
      SLM_RETURN_IF_ERROR(GoOn());
      runner.Run(s.rows.data(), s.n, s.rows.data());
    }
    return Ok();
  }

  Result<std::unique_ptr<BlockRunner>> RunnerOf(int layer) {
    return BlockRunner::Create(decoder_, {.layer = layer, .max_tokens = longest_, .isa = machine_.isa, .replaced = {}}, *machine_.team);
  }

  // The layer in float over the whole text: moves the streams on and gathers what the matrices read.
  Status Observe(int layer) {
    SLM_ASSIGN_OR_RETURN(const auto runner, RunnerOf(layer));
    for (const backend::LayerInput& in : runner->inputs()) {
      for (const Tensor* t : in.matrices) input_of_[t] = statistics_.size();
      statistics_.emplace_back(machine_, in.width, recipe_.most_energy);
      if (rounds_inputs())
        samples_.emplace_back(in.width, recipe_.most_energy, std::max<int64_t>(1, kSampleTokens / static_cast<int64_t>(streams_.size())));
    }
    want_.clear();
    std::vector<float> out;
    for (HiddenStates& s : streams_) {
      SLM_RETURN_IF_ERROR(GoOn());
      out.resize(s.rows.size());
      runner->Run(s.rows.data(), s.n, out.data());
      for (size_t i = 0; i < statistics_.size(); ++i) {
        statistics_[i].Add(runner->inputs()[i].rows, s.n);
        if (rounds_inputs()) samples_[i].Add(runner->inputs()[i].rows, s.n);
      }
      if (recipe_.inputs == LayerInputs::kFloat) s.rows.swap(out);
    }
    std::vector<HiddenStates>& floats = recipe_.inputs == LayerInputs::kFloat ? streams_ : floats_;
    if (recipe_.inputs == LayerInputs::kStored)
      for (HiddenStates& s : floats_) {
        SLM_RETURN_IF_ERROR(GoOn());
        runner->Run(s.rows.data(), s.n, s.rows.data());
      }
    for (size_t i = 0; i < gate_.size(); ++i) want_.push_back(floats[i].rows);
    for (InputStatistics& s : statistics_) s.Finish();
    return Ok();
  }

  // Rows (x, e) of all sequences that do not judge: what `t` reads in the layer as `c` stores it, but for `t` itself, and what the layer
  // then lacks of the float model's output.
  Result<InputStatistics> Lacking(int layer, const Candidate& c, const LayerTensor& t) {
    SLM_ASSIGN_OR_RETURN(const auto runner, BlockRunner::Create(decoder_, OptionsFor(layer, c), *machine_.team));
    const auto inputs = runner->inputs();
    const auto input = std::find_if(inputs.begin(), inputs.end(), [&](const auto& in) {
      return std::find(in.matrices.begin(), in.matrices.end(), t.tensor) != in.matrices.end();
    });
    SLM_ASSERT(input != inputs.end());
    InputStatistics joint(machine_, t.width + t.rows, recipe_.most_energy);
    std::vector<float> out, rows;
    for (size_t i = gate_.size(); i < streams_.size(); ++i) {
      SLM_RETURN_IF_ERROR(GoOn());
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
  Status MakeUp(int layer, Candidate* best) {
    const Model& m = *decoder_.model;
    const Tensor* down = m.Find(model::Role::kDown, layer);
    if (!moves_codes() || m.config.post_norms || !best->rounded.contains(down) || streams_.size() <= gate_.size()) return Ok();
    Candidate c = *best;
    auto& tensors = c.weights.tensors();
    LayerTensor& t = *std::find_if(tensors.begin(), tensors.end(), [&](const LayerTensor& x) { return x.tensor == down; });
    c.rounded.erase(down);
    t.is_changed = true;  // it stands in as it is
    SLM_ASSIGN_OR_RETURN(const InputStatistics joint, Lacking(layer, c, t));
    const Matrix shift = ShiftFor(machine_, joint, t.width, kShiftDamping);
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t j = 0; j < t.width; ++j) t.values[static_cast<size_t>(r * t.width + j)] += shift.Row(r)[j] / m.config.residual_scale;
    t.fold.clear();  // the statistics are of the input as the stored layer has it
    const InputStatistics own = joint.Leading(t.width);
    Rounder rounder(machine_, own, RoundingFor(true));
    auto rounded = rounder.Round(t, task_.matrices.at(down));
    if (!rounded.ok()) return Ok();  // beyond its type's range: the layer is whole without
    c.rounded[down] = rounded.Take();
    const Status judged = Judge(layer, &c);
    if (!judged.ok() && judged.error().code() == Code::kCancelled) return judged;
    if (!judged.ok() || !(c.error < best->error)) return Ok();
    c.steps.push_back(fmt::format("make_up ({:.3f})", c.error / best->error));
    *best = std::move(c);
    return Ok();
  }

  // The text through the layer as it will be stored.
  Status MoveOn(int layer, const Candidate& c) {
    SLM_ASSIGN_OR_RETURN(const auto runner, BlockRunner::Create(decoder_, OptionsFor(layer, c), *machine_.team));
    return Through(*runner);
  }

  backend::BlockOptions OptionsFor(int layer, const Candidate& c) const {
    backend::BlockOptions o{.layer = layer, .max_tokens = longest_, .isa = machine_.isa, .replaced = {}, .input_grids = c.grids};
    for (const LayerTensor& t : c.weights.tensors()) {
      if (const auto it = c.rounded.find(t.tensor); it != c.rounded.end()) o.replaced.push_back({t.tensor, it->second.values});
      else if (t.is_changed) o.replaced.push_back({t.tensor, t.values});
    }
    return o;
  }

  const InputStatistics& InputOf(const Tensor* t) const { return statistics_[input_of_.at(t)]; }
  bool moves_codes() const { return recipe_.gptq || recipe_.signround; }  // not each weight for itself
  bool rounds_inputs() const { return task_.inputs != backend::InputRounding::kNone; }
  // A matrix that calibration may change: not one that is copied as it is.
  bool IsRounded(const LayerTensor& t) const { return task_.matrices.contains(t.tensor); }

  Result<Candidate> Plain(int layer, bool gptq) {
    Candidate c;
    SLM_ASSIGN_OR_RETURN(c.weights, LayerWeights::Read(*decoder_.model, layer, task_.vectors));
    SLM_RETURN_IF_ERROR(RoundAll(layer, gptq, &c));
    return c;
  }

  // Factors for the matrices that read one input, and a text about them; no factors: none is better.
  struct Factors {
    std::vector<float> scale;
    double exponent = 0, gain = 1;
  };
  Factors AwqFold(FoldPlace place, const LayerWeights& weights, const Tensor* first, std::span<const FoldMember> members) const {
    Fold f =
        SearchFold(machine_, members, InputOf(first),
                   {.points = recipe_.fold_points, .max_rows = recipe_.fold_rows, .search = recipe_.search, .tied = weights.Tied(place)});
    return {std::move(f.scale), f.exponent, f.error / f.identity_error};
  }
  Factors SmoothFold(FoldPlace place, const LayerWeights& weights, const Tensor* first, std::span<const FoldMember> members) const {
    const ActivationSample& sample = samples_[input_of_.at(first)];
    SmoothOptions o{.points = recipe_.fold_points};
    if (task_.range) o.range.rule = *task_.range;
    o.weight_bits = std::min(members[0].form.block().bits, 8);
    if (task_.inputs == backend::InputRounding::kStatic) o.grid = ActivationGrid::kStatic;
    Smoothing s = SmoothMembers(sample, members, weights.Tied(place), o);
    return {std::move(s.scale), s.alpha, s.error / s.identity_error};
  }

  // What the products of `c` read, as integers.
  void RoundInputs(Candidate* c, RangeRule rule) const {
    c->grids.assign(statistics_.size(), {task_.inputs, 0});
    c->largest.assign(statistics_.size(), 0);
    if (task_.inputs != backend::InputRounding::kStatic) return;
    for (const LayerTensor& t : c->weights.tensors()) {
      if (!IsRounded(t)) continue;
      const size_t i = input_of_.at(t.tensor);
      if (c->largest[i] > 0) continue;  // of another matrix that reads it
      c->grids[i].most = samples_[i].RangeOf(t.fold, {.rule = rule}).high;
      c->largest[i] = samples_[i].RangeOf(t.fold, {}).high;
    }
  }

  Result<Candidate> Folded(int layer, bool gptq,
                           Factors (Walk::*search)(FoldPlace, const LayerWeights&, const Tensor*, std::span<const FoldMember>) const) {
    Candidate c;
    SLM_ASSIGN_OR_RETURN(c.weights, LayerWeights::Read(*decoder_.model, layer, task_.vectors));
    for (const FoldPlace place : {FoldPlace::kValueOutput, FoldPlace::kUpOutput, FoldPlace::kAttentionInput, FoldPlace::kMlpInput}) {
      std::vector<FoldMember> members;
      const Tensor* first = nullptr;
      for (const LayerTensor* t : c.weights.Members(place)) {
        if (!IsRounded(*t)) continue;
        members.push_back({t->values, t->rows, task_.matrices.at(t->tensor)});
        if (!first) first = t->tensor;
      }
      const LayerTensor* source = c.weights.Source(place);
      if (!first || members.size() != c.weights.Members(place).size() || (source && !IsRounded(*source))) continue;
      const Factors found = (this->*search)(place, c.weights, first, members);
      if (found.scale.empty()) continue;
      c.weights.Apply(place, found.scale);
      c.steps.push_back(
          fmt::format("{}{} {:.2f} ({:.3f})", search == &Walk::SmoothFold ? "smooth " : "", PlaceName(place), found.exponent, found.gain));
    }
    SLM_RETURN_IF_ERROR(RoundAll(layer, gptq, &c));
    return c;
  }

  RoundingOptions RoundingFor(bool gptq) const {
    return {.search = recipe_.search,
            .weighted = recipe_.weighted,
            .gptq = gptq && recipe_.gptq,
            .signround = gptq && recipe_.signround,
            .signround_steps = recipe_.signround_steps,
            .damping = recipe_.damping};
  }

  Status RoundAll(int layer, bool gptq, Candidate* c) {
    for (size_t input = 0; input < statistics_.size(); ++input) {
      Rounder rounder(machine_, statistics_[input], RoundingFor(gptq));
      for (const LayerTensor& t : c->weights.tensors()) {
        if (!IsRounded(t) || input_of_.at(t.tensor) != input) continue;
        SLM_RETURN_IF_ERROR(GoOn());
        SLM_ASSIGN_OR_RETURN(c->rounded[t.tensor], rounder.Round(t, task_.matrices.at(t.tensor)));
      }
    }
    return JudgeRanges(layer, c);
  }

  // The same with inputs rounded as the task wants them, of several rules for ranges by the one with the least error.
  Status JudgeRanges(int layer, Candidate* c) {
    if (!rounds_inputs()) return Judge(layer, c);
    std::vector<RangeRule> rules = {RangeRule::kMinMax};  // of dynamic ones any
    if (task_.inputs == backend::InputRounding::kStatic && task_.range) rules = {*task_.range};
    else if (task_.inputs == backend::InputRounding::kStatic)
      rules = {RangeRule::kMinMax, RangeRule::kPercentile, RangeRule::kMse, RangeRule::kEntropy};
    std::vector<backend::InputGrid> best;
    double least = 0;
    for (const RangeRule rule : rules) {
      RoundInputs(c, rule);
      SLM_RETURN_IF_ERROR(Judge(layer, c));
      if (!best.empty() && !(c->error < least)) continue;
      best = c->grids;
      least = c->error;
    }
    c->grids = std::move(best);
    c->error = least;
    return Ok();
  }

  // The error of the layer's output on the first sequences.
  Status Judge(int layer, Candidate* c) {
    SLM_ASSIGN_OR_RETURN(const auto runner, BlockRunner::Create(decoder_, OptionsFor(layer, *c), *machine_.team));
    std::vector<float> out;
    double sum = 0, n = 0;
    for (size_t s = 0; s < gate_.size(); ++s) {
      out.resize(gate_[s].rows.size());
      runner->Run(gate_[s].rows.data(), gate_[s].n, out.data());
      sum += gate_[s].n * OutputError(want_[s], out, decoder_.model->config.d_model);
      n += gate_[s].n;
    }
    c->error = sum / n;
    if (!std::isfinite(c->error))
      return Error(Code::kCorrupt, fmt::format("layer {}: NaN or infinity in the float forward pass", layer), "the weights are damaged");
    return Ok();
  }

  CalibratedLayer Store(int layer, Candidate c, double plain_error) const {
    CalibratedLayer out;
    for (const LayerTensor& t : c.weights.tensors()) {
      if (const auto it = c.rounded.find(t.tensor); it != c.rounded.end()) {
        out.tensors[t.tensor] = {std::move(it->second.bytes), std::move(it->second.coded), it->second.relative_error,
                                 c.grids.empty() ? 0 : c.grids[input_of_.at(t.tensor)].most};
      } else if (t.is_changed) {
        out.tensors[t.tensor].bytes = FloatBytes(task_.vectors == VectorTypes::kOwn ? t.tensor->dtype : DType::kF32, t.values);
      }
    }
    out.report.layer = layer;
    out.report.steps = std::move(c.steps);
    out.report.plain_error = plain_error;
    out.report.error = c.error;
    for (const LayerTensor& t : c.weights.tensors())
      if (const auto it = c.rounded.find(t.tensor); it != c.rounded.end())
        out.report.ways.push_back(fmt::format("{} {} {:.5f}", t.tensor->name, it->second.way, it->second.error));
    for (const InputStatistics& s : statistics_) out.report.capped_tokens += s.capped();
    if (task_.inputs == backend::InputRounding::kStatic)
      for (size_t i = 0; i < c.grids.size(); ++i)
        for (const LayerTensor& t : c.weights.tensors()) {
          if (!IsRounded(t) || input_of_.at(t.tensor) != i) continue;
          out.report.ranges.push_back({t.tensor->name, c.grids[i].most, c.largest[i]});
          break;
        }
    return out;
  }

  const CalibrationTask task_;
  const Recipe& recipe_ = task_.recipe;
  const Machine machine_;
  const std::function<bool()> cancelled_;
  graph::Graph decoder_;
  int longest_ = 0, layer_ = 0;
  std::vector<HiddenStates> streams_, gate_;  // gate_: the first ones, as they entered the layer
  std::vector<HiddenStates> floats_;          // of kStored: the float model's
  std::vector<std::vector<float>> want_;      // what the float model gives for gate_
  std::vector<InputStatistics> statistics_;
  std::vector<ActivationSample> samples_;  // of activations that will be rounded
  std::map<const Tensor*, size_t> input_of_;
};

}  // namespace

Result<std::unique_ptr<Calibration>> Calibration::Start(std::shared_ptr<const Model> m, CalibrationTask task, const CalibrationText& text,
                                                        const Machine& machine, std::function<bool()> cancelled) {
  auto walk = std::make_unique<Walk>(std::move(task), machine, std::move(cancelled));
  SLM_RETURN_IF_ERROR(walk->Begin(std::move(m), text));
  return std::unique_ptr<Calibration>(std::move(walk));
}

}  // namespace slm::quant
