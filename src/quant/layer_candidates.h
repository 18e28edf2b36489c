// The ways in which a layer could be stored: rounded as it is or behind folds. Each is run on the text that judges and has an error.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quant/activation_sample.h"
#include "quant/awq.h"
#include "quant/calibrate.h"
#include "quant/hidden_states.h"
#include "quant/rounding.h"
#include "quant/statistics.h"

namespace slm::quant {

// What holds for all layers.
struct CalibrationSetup {
  CalibrationTask task;
  Machine machine;
  std::function<bool()> cancelled;
  graph::Graph decoder = {};
  int longest = 0;  // tokens of a sequence

  Status GoOn() const { return cancelled && cancelled() ? Status(Error(Code::kCancelled, "interrupted")) : Ok(); }
  bool moves_codes() const { return task.recipe.gptq || task.recipe.signround; }  // not each weight for itself
  bool reads_stored() const { return task.recipe.inputs == LayerInputs::kStored; }
  bool rounds_inputs() const { return task.inputs != backend::InputRounding::kNone; }
  // A matrix that calibration may change: not one that is copied as it is.
  bool IsRounded(const LayerTensor& t) const { return task.matrices.contains(t.tensor); }
};

// What the float model showed of a layer.
struct ObservedLayer {
  int layer = 0;
  std::vector<HiddenStates> gate;        // sequences that judge, as they entered the layer
  std::vector<std::vector<float>> want;  // what the float model gives for them
  std::vector<InputStatistics> statistics;
  std::vector<ActivationSample> samples;  // of activations that will be rounded
  std::map<const model::Tensor*, size_t> input_of;
};

// A layer as it would be stored. Unless layers read what those before them store, matrices have neither values nor rounded values once it
// was judged: a layer in f32 may be a gigabyte.
struct Candidate {
  LayerWeights weights;
  std::map<const model::Tensor*, Rounded> rounded;
  std::vector<backend::InputGrid> grids;  // of its inputs; empty: they stay float
  std::vector<float> largest;             // of static ones, that was seen
  std::vector<std::string> steps;
  double error = 0;
};

enum class FoldRule : uint8_t { kAwq, kSmooth };

// Both outlive it.
class LayerCandidates {
 public:
  LayerCandidates(const CalibrationSetup& setup, const ObservedLayer& seen) : setup_(setup), seen_(seen) {}

  Result<Candidate> Plain(Codes codes) const;
  Result<Candidate> Folded(Codes codes, FoldRule rule) const;
  RoundingOptions Rounding() const;
  // The error of the layer's output on the sequences that judge.
  Status Judge(Candidate* c) const;
  // The layer as `c` stores it; `c` outlives the runner.
  Result<std::unique_ptr<backend::BlockRunner>> RunnerOf(const Candidate& c) const;

 private:
  // Factors for the matrices that read one input, and a text about them; no factors: none is better.
  struct Factors {
    std::vector<float> scale;
    double exponent = 0, gain = 1;
  };
  Factors AwqFold(FoldPlace place, const LayerWeights& weights, size_t input, std::span<const FoldMember> members) const;
  Factors SmoothFold(FoldPlace place, const LayerWeights& weights, size_t input, std::span<const FoldMember> members) const;
  Status RoundAll(Codes codes, Candidate* c) const;
  void RoundInputs(RangeRule rule, Candidate* c) const;
  Status JudgeRanges(Candidate* c) const;

  const CalibrationSetup& setup_;
  const ObservedLayer& seen_;
};

}  // namespace slm::quant
