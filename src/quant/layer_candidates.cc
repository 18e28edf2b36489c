// See layer_candidates.h.
#include "quant/layer_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/smooth.h"

namespace slm::quant {
namespace {
using backend::BlockRunner;
using backend::InputRounding;
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

}  // namespace

Result<std::unique_ptr<BlockRunner>> LayerCandidates::RunnerOf(const Candidate& c) const {
  backend::BlockOptions o{
      .layer = seen_.layer, .max_tokens = setup_.longest, .isa = setup_.machine.isa, .replaced = {}, .input_grids = c.grids};
  for (const LayerTensor& t : c.weights.tensors()) {
    if (const auto it = c.rounded.find(t.tensor); it != c.rounded.end()) o.replaced.push_back({t.tensor, it->second.values});
    else if (t.is_changed) o.replaced.push_back({t.tensor, t.values});
  }
  return BlockRunner::Create(setup_.decoder, o, *setup_.machine.team);
}

Result<Candidate> LayerCandidates::Plain(Codes codes) const {
  Candidate c;
  SLM_ASSIGN_OR_RETURN(c.weights, LayerWeights::Read(*setup_.decoder.model, seen_.layer, setup_.task.vectors));
  SLM_RETURN_IF_ERROR(RoundAll(codes, &c));
  return c;
}

LayerCandidates::Factors LayerCandidates::AwqFold(FoldPlace place, const LayerWeights& weights, size_t input,
                                                  std::span<const FoldMember> members) const {
  const Recipe& r = setup_.task.recipe;
  Fold f = SearchFold(setup_.machine, members, seen_.statistics[input],
                      {.points = r.fold_points, .max_rows = r.fold_rows, .search = r.search, .tied = weights.Tied(place)});
  return {std::move(f.scale), f.exponent, f.error / f.identity_error};
}

LayerCandidates::Factors LayerCandidates::SmoothFold(FoldPlace place, const LayerWeights& weights, size_t input,
                                                     std::span<const FoldMember> members) const {
  const CalibrationTask& task = setup_.task;
  SmoothOptions o{.points = task.recipe.fold_points};
  if (task.range) o.range.rule = *task.range;
  o.weight_bits = std::min(members[0].form.block().bits, 8);
  o.inputs = task.inputs;
  Smoothing s = SmoothMembers(seen_.samples[input], members, weights.Tied(place), o);
  return {std::move(s.scale), s.alpha, s.error / s.identity_error};
}

Result<Candidate> LayerCandidates::Folded(Codes codes, FoldRule rule) const {
  Candidate c;
  SLM_ASSIGN_OR_RETURN(c.weights, LayerWeights::Read(*setup_.decoder.model, seen_.layer, setup_.task.vectors));
  for (const FoldPlace place : {FoldPlace::kValueOutput, FoldPlace::kUpOutput, FoldPlace::kAttentionInput, FoldPlace::kMlpInput}) {
    std::vector<FoldMember> members;
    const Tensor* first = nullptr;
    for (const LayerTensor* t : c.weights.Members(place)) {
      if (!setup_.IsRounded(*t)) continue;
      members.push_back({t->values, t->rows, setup_.task.matrices.at(t->tensor)});
      if (!first) first = t->tensor;
    }
    const LayerTensor* source = c.weights.Source(place);
    if (!first || members.size() != c.weights.Members(place).size() || (source && !setup_.IsRounded(*source))) continue;
    const size_t input = seen_.input_of.at(first);
    const Factors found =
        rule == FoldRule::kSmooth ? SmoothFold(place, c.weights, input, members) : AwqFold(place, c.weights, input, members);
    if (found.scale.empty()) continue;
    c.weights.Apply(place, found.scale);
    c.steps.push_back(
        fmt::format("{}{} {:.2f} ({:.3f})", rule == FoldRule::kSmooth ? "smooth " : "", PlaceName(place), found.exponent, found.gain));
  }
  SLM_RETURN_IF_ERROR(RoundAll(codes, &c));
  return c;
}

RoundingOptions LayerCandidates::Rounding() const {
  const Recipe& r = setup_.task.recipe;
  return {.search = r.search,
          .weighted = r.weighted,
          .gptq = r.gptq,
          .signround = r.signround,
          .signround_steps = r.signround_steps,
          .damping = r.damping};
}

Status LayerCandidates::RoundAll(Codes codes, Candidate* c) const {
  for (size_t input = 0; input < seen_.statistics.size(); ++input) {
    Rounder rounder(setup_.machine, seen_.statistics[input], Rounding());
    for (LayerTensor& t : c->weights.tensors()) {
      if (!setup_.IsRounded(t) || seen_.input_of.at(t.tensor) != input) continue;
      SLM_RETURN_IF_ERROR(setup_.GoOn());
      SLM_ASSIGN_OR_RETURN(c->rounded[t.tensor], rounder.Round(t, setup_.task.matrices.at(t.tensor), codes));
      if (!setup_.reads_stored()) t.values = std::vector<float>();  // not {}, which keeps the memory
    }
  }
  SLM_RETURN_IF_ERROR(JudgeRanges(c));
  if (!setup_.reads_stored())
    for (auto& [tensor, rounded] : c->rounded) rounded.values = std::vector<float>();
  return Ok();
}

// What the products of `c` read, as integers.
void LayerCandidates::RoundInputs(RangeRule rule, Candidate* c) const {
  c->grids.assign(seen_.statistics.size(), {setup_.task.inputs, 0});
  c->largest.assign(seen_.statistics.size(), 0);
  if (setup_.task.inputs != InputRounding::kStatic) return;
  for (const LayerTensor& t : c->weights.tensors()) {
    if (!setup_.IsRounded(t)) continue;
    const size_t i = seen_.input_of.at(t.tensor);
    if (c->largest[i] > 0) continue;  // of another matrix that reads it
    c->grids[i].most = seen_.samples[i].RangeOf(t.fold, {.rule = rule}).high;
    c->largest[i] = seen_.samples[i].RangeOf(t.fold, {}).high;
  }
}

// Judges with inputs rounded as the task wants them, of several rules for ranges by the one with the least error.
Status LayerCandidates::JudgeRanges(Candidate* c) const {
  if (!setup_.rounds_inputs()) return Judge(c);
  std::vector<RangeRule> rules = {RangeRule::kMinMax};  // of dynamic ones any
  if (setup_.task.inputs == InputRounding::kStatic) {
    if (setup_.task.range) rules = {*setup_.task.range};
    else rules = {RangeRule::kMinMax, RangeRule::kPercentile, RangeRule::kMse, RangeRule::kEntropy};
  }
  std::vector<backend::InputGrid> best;
  double least = 0;
  for (const RangeRule rule : rules) {
    RoundInputs(rule, c);
    SLM_RETURN_IF_ERROR(Judge(c));
    if (!best.empty() && !(c->error < least)) continue;
    best = c->grids;
    least = c->error;
  }
  c->grids = std::move(best);
  c->error = least;
  return Ok();
}

Status LayerCandidates::Judge(Candidate* c) const {
  SLM_ASSIGN_OR_RETURN(const auto runner, RunnerOf(*c));
  std::vector<float> out;
  double sum = 0, n = 0;
  for (size_t s = 0; s < seen_.gate.size(); ++s) {
    const HiddenStates& gate = seen_.gate[s];
    out.resize(gate.rows.size());
    runner->Run(gate.rows.data(), gate.n, out.data());
    sum += gate.n * OutputError(seen_.want[s], out, setup_.decoder.model->config.d_model);
    n += gate.n;
  }
  c->error = sum / n;
  if (!std::isfinite(c->error))
    return Error(Code::kCorrupt, fmt::format("layer {}: NaN or infinity in the float forward pass", seen_.layer),
                 "the weights are damaged");
  return Ok();
}

}  // namespace slm::quant
