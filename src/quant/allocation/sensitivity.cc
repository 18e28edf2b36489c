// See sensitivity.h.
#include "quant/allocation/sensitivity.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "backend/cpu/block_runner.h"
#include "base/threads.h"
#include "quant/allocation/coarse.h"
#include "quant/allocation/logit_change.h"
#include "quant/allocation/vocabulary_sensitivity.h"
#include "quant/calibrate.h"
#include "quant/hidden_states.h"
#include "quant/layer_weights.h"
#include "quant/rounding.h"
#include "quant/statistics.h"

namespace slm::quant {
namespace {
using backend::BlockRunner;
using model::Tensor;

size_t SequencesOf(const Recipe& r, const CalibrationText& text) {
  return std::min(text.sequences.size(), static_cast<size_t>(r.measured_sequences));
}

class Measurement {
 public:
  Measurement(const Plan& plan, const Machine& machine, std::function<bool()> cancelled)
      : plan_(plan), recipe_(plan.recipe), machine_(machine), cancelled_(std::move(cancelled)) {
    found_.types = recipe_.types;
    for (const Choice& c : plan.choices)
      if (IsAllocated(c, recipe_)) allocated_.insert(c.tensor);
  }

  Status Begin(std::shared_ptr<const model::Model> m, const CalibrationText& text) {
    if (text.tokens() == 0) return Error(Code::kInvalidArgument, "no tokens to calibrate on", "give a longer text");
    longest_ = static_cast<int>(text.longest());
    SLM_ASSIGN_OR_RETURN(decoder_, graph::BuildDecoder(m, {.max_context = longest_}));
    SLM_ASSIGN_OR_RETURN(streams_, Embed(*m, std::span(text.sequences).first(SequencesOf(recipe_, text))));
    for (const HiddenStates& s : streams_) found_.tokens += s.n;
    std::vector<std::vector<int32_t>> followed;
    for (size_t i = 0; i < streams_.size(); ++i)
      if (const auto& s = text.sequences[i]; IsJudged(i))
        followed.emplace_back(s.begin(), s.begin() + std::min<int64_t>(std::ssize(s), recipe_.followed_tokens));
    vocabulary_.emplace(*decoder_.model, plan_, machine_, std::move(followed));
    if (vocabulary_->has_embedding()) changes_.push_back(vocabulary_->CoarselyEmbedded());
    together_ = vocabulary_->has_embedding() ? changes_.front() : Prefixes();
    return Ok();
  }

  Status Layer(int layer) {
    const std::vector<HiddenStates> entering = Prefixes();
    SLM_RETURN_IF_ERROR(Float(layer));
    SLM_ASSIGN_OR_RETURN(LayerWeights weights, LayerWeights::Read(*decoder_.model, layer));
    std::vector<MatrixSensitivity> here;
    SLM_RETURN_IF_ERROR(Errors(layer, weights, &here));
    std::map<const Tensor*, std::span<const float>> coarse;
    for (LayerTensor& t : weights.tensors()) {
      if (!allocated_.contains(t.tensor)) continue;
      RoundCoarsely(t.values);
      coarse[t.tensor] = t.values;
    }
    SLM_RETURN_IF_ERROR(Shares(layer, entering, coarse, &here));
    for (MatrixSensitivity& one : here) found_.matrices.push_back(std::move(one));
    return Ok();
  }

  // The KLD that each change has become: of the embedding if it is measured, of each layer, of the head if it is, of all together.
  Result<Sensitivities> Finish() {
    std::vector<std::vector<float>> changed;
    const std::vector<float> rows = Joined(Prefixes());
    for (const auto& change : changes_) changed.push_back(Joined(change));
    changed.push_back(Joined(together_));
    std::vector<LogitChange> views;
    for (const auto& change : changed) views.push_back({.rows = change});
    if (vocabulary_->has_head()) {
      views.back().head = HeadState::kChanged;
      views.insert(views.end() - 1, {.rows = {}, .head = HeadState::kChanged});
    }
    SLM_ASSIGN_OR_RETURN(const std::vector<double> kld, MeanDivergences(*decoder_.model, machine_, rows, views, RoundCoarsely));
    const double sum = std::accumulate(kld.begin(), kld.end() - 1, 0.0);
    if (sum > 0) found_.together = kld.back() / sum;
    const size_t before = vocabulary_->has_embedding() ? 1 : 0;
    for (MatrixSensitivity& one : found_.matrices) one.kld *= kld[before + static_cast<size_t>(one.layer)];
    std::vector<HiddenStates> last;
    for (size_t i = 0; i < streams_.size(); ++i)
      if (IsJudged(i)) last.push_back(std::move(streams_[i]));
    SLM_ASSIGN_OR_RETURN(auto vocabulary, vocabulary_->Measure(last, kld.front(), kld[kld.size() - 2]));
    found_.matrices.insert(found_.matrices.begin(), vocabulary.begin(), vocabulary.end());
    return std::move(found_);
  }

 private:
  Status GoOn() const { return cancelled_ && cancelled_() ? Status(Error(Code::kCancelled, "interrupted")) : Ok(); }

  Result<std::unique_ptr<BlockRunner>> Runner(int layer, std::vector<backend::Replacement> replaced) {
    return BlockRunner::Create(decoder_, {.layer = layer, .max_tokens = longest_, .isa = machine_.isa, .replaced = std::move(replaced)},
                               *machine_.team);
  }
  Status Through(BlockRunner& runner, const std::vector<HiddenStates>& from, std::vector<HiddenStates>* to) const {
    to->resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      SLM_RETURN_IF_ERROR(GoOn());
      (*to)[i].n = from[i].n;
      (*to)[i].rows.resize(from[i].rows.size());
      runner.Run(from[i].rows.data(), from[i].n, (*to)[i].rows.data());
    }
    return Ok();
  }

  // Nothing is fitted to the last ones; of a single sequence there is no other.
  bool IsJudged(size_t sequence) const { return sequence + (streams_.size() + 3) / 4 >= streams_.size(); }
  bool IsFitted(size_t sequence) const { return streams_.size() == 1 || !IsJudged(sequence); }

  std::vector<HiddenStates> Prefixes() const {
    std::vector<HiddenStates> out;
    const auto width = static_cast<size_t>(decoder_.model->config.d_model);
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (!IsJudged(i)) continue;
      const int n = std::min(streams_[i].n, recipe_.followed_tokens);
      out.push_back({n, {streams_[i].rows.begin(), streams_[i].rows.begin() + static_cast<int64_t>(static_cast<size_t>(n) * width)}});
    }
    return out;
  }
  // Every second row of all of them: neighbours say much the same.
  std::vector<float> Joined(const std::vector<HiddenStates>& all) const {
    std::vector<float> out;
    const auto width = static_cast<int64_t>(decoder_.model->config.d_model);
    for (const HiddenStates& s : all)
      for (int i = 0; i < s.n; i += 2) out.insert(out.end(), s.rows.begin() + i * width, s.rows.begin() + (i + 1) * width);
    return out;
  }

  // Moves text and changes through the float layer, which is gone before its weights are read.
  Status Float(int layer) {
    SLM_ASSIGN_OR_RETURN(const auto runner, Runner(layer, {}));
    SLM_RETURN_IF_ERROR(Observe(*runner));
    for (auto& change : changes_) SLM_RETURN_IF_ERROR(Through(*runner, change, &change));
    return Ok();
  }

  // Moves the text through the float layer and gathers what its matrices read.
  Status Observe(BlockRunner& runner) {
    fitted_.clear();
    judged_.clear();
    input_of_.clear();
    for (const backend::LayerInput& in : runner.inputs()) {
      for (const Tensor* t : in.matrices) input_of_[t] = fitted_.size();
      fitted_.emplace_back(machine_, in.width, recipe_.most_energy);
      judged_.emplace_back(machine_, in.width, recipe_.most_energy);
    }
    for (size_t s = 0; s < streams_.size(); ++s) {
      SLM_RETURN_IF_ERROR(GoOn());
      runner.Run(streams_[s].rows.data(), streams_[s].n, streams_[s].rows.data());
      for (size_t i = 0; i < fitted_.size(); ++i) {
        if (IsFitted(s)) fitted_[i].Add(runner.inputs()[i].rows, streams_[s].n);
        if (IsJudged(s)) judged_[i].Add(runner.inputs()[i].rows, streams_[s].n);
      }
    }
    for (size_t i = 0; i < fitted_.size(); ++i) fitted_[i].Finish(), judged_[i].Finish();
    return Ok();
  }

  // Of the products of `sample`, relative.
  struct Judged {
    LayerTensor sample;
    double power = 0;
  };
  static Result<double> ErrorOf(const ProductError& products, const Judged& j, DType dtype, Codes codes, Rounder* rounder) {
    SLM_ASSIGN_OR_RETURN(const Rounded r, rounder->Round(j.sample, StoredForm::Of(dtype), codes));
    return j.power > 0 ? products.Of(j.sample, r.values) / j.power : 0;
  }

  // What error feedback leaves of the errors of each matrix, measured with four bits: the number of bits hardly matters.
  using Gains = std::map<const Tensor*, double>;
  enum class Blocks : uint8_t { kOf32, kSuper };
  static Blocks BlocksOf(DType t) { return Info(t).block > 32 ? Blocks::kSuper : Blocks::kOf32; }
  Status MeasureGains(const ProductError& products, const std::vector<Judged>& judged, Blocks blocks, Rounder* rounder,
                      Gains* gains) const {
    const DType four = blocks == Blocks::kSuper ? DType::kQ4_K : DType::kQ4_0;
    for (const Judged& j : judged) {
      const auto is_of_kind = [&](DType t) { return BlocksOf(t) == blocks && !KnownError(*j.sample.tensor, t); };
      if (std::none_of(found_.types.begin(), found_.types.end(), is_of_kind)) continue;
      SLM_RETURN_IF_ERROR(GoOn());
      SLM_ASSIGN_OR_RETURN(const double without, ErrorOf(products, j, four, Codes::kNearest, rounder));
      SLM_ASSIGN_OR_RETURN(const double with, ErrorOf(products, j, four, Codes::kMoved, rounder));
      (*gains)[j.sample.tensor] = without > 0 ? std::min(1.0, with / without) : 1;
    }
    rounder->ForgetCurvatures();
    return Ok();
  }

  // The relative errors of the products of every type; `kld` becomes 1 over that of the coarse grid.
  Status Errors(int layer, const LayerWeights& weights, std::vector<MatrixSensitivity>* out) {
    for (size_t input = 0; input < fitted_.size(); ++input) {
      const ProductError products(machine_, judged_[input]);
      judged_[input] = InputStatistics(machine_, 0, 0);  // packed in `products` now
      std::vector<Judged> judged;
      for (const LayerTensor& t : weights.tensors()) {
        if (!allocated_.contains(t.tensor) || input_of_.at(t.tensor) != input) continue;
        judged.push_back({SomeRows(t, recipe_.measured_rows), 0});
        judged.back().power = products.Power(judged.back().sample);
      }
      Rounder rounder(machine_, fitted_[input],
                      {.search = recipe_.search, .weighted = recipe_.weighted, .gptq = recipe_.gptq, .damping = recipe_.damping});
      Gains gains[2];  // by Blocks
      for (const Blocks blocks : {Blocks::kOf32, Blocks::kSuper})
        if (recipe_.gptq) SLM_RETURN_IF_ERROR(MeasureGains(products, judged, blocks, &rounder, &gains[static_cast<size_t>(blocks)]));
      for (Judged& j : judged) {
        SLM_RETURN_IF_ERROR(GoOn());
        const Tensor* tensor = j.sample.tensor;
        MatrixSensitivity one{.tensor = tensor, .layer = layer, .errors = {}};
        for (const DType dtype : found_.types) {
          if (const auto known = KnownError(*tensor, dtype)) {
            one.errors.push_back(*known);
            continue;
          }
          SLM_ASSIGN_OR_RETURN(const double e, ErrorOf(products, j, dtype, Codes::kNearest, &rounder));
          one.errors.push_back(recipe_.gptq ? e * gains[static_cast<size_t>(BlocksOf(dtype))].at(tensor) : e);
        }
        LayerTensor coarse = j.sample;
        RoundCoarsely(coarse.values);
        const double reference = j.power > 0 ? products.Of(j.sample, coarse.values) / j.power : 0;
        one.kld = reference > 0 ? 1 / reference : 0;
        out->push_back(std::move(one));
      }
    }
    return Ok();
  }

  // Multiplies each matrix's `kld` with its share of what the coarse layer changes, and follows that change from here on.
  Status Shares(int layer, const std::vector<HiddenStates>& entering, const std::map<const Tensor*, std::span<const float>>& coarse,
                std::vector<MatrixSensitivity>* here) {
    const std::vector<HiddenStates> want = Prefixes();
    std::vector<HiddenStates> got;
    double sum = 0;
    for (MatrixSensitivity& one : *here) {
      SLM_ASSIGN_OR_RETURN(const auto runner, Runner(layer, {{one.tensor, coarse.at(one.tensor)}}));
      SLM_RETURN_IF_ERROR(Through(*runner, entering, &got));
      double error = 0;
      for (size_t i = 0; i < want.size(); ++i) error += want[i].n * OutputError(want[i].rows, got[i].rows, decoder_.model->config.d_model);
      one.kld *= error;
      sum += error;
    }
    for (MatrixSensitivity& one : *here) one.kld = sum > 0 ? one.kld / sum : 0;
    std::vector<backend::Replacement> all;
    for (const auto& [tensor, values] : coarse) all.push_back({tensor, values});
    SLM_ASSIGN_OR_RETURN(const auto runner, Runner(layer, std::move(all)));
    SLM_RETURN_IF_ERROR(Through(*runner, entering, &changes_.emplace_back()));
    return Through(*runner, std::vector<HiddenStates>(together_), &together_);
  }

  const Plan& plan_;
  const Recipe& recipe_;
  const Machine machine_;
  const std::function<bool()> cancelled_;
  std::optional<VocabularySensitivity> vocabulary_;
  std::set<const Tensor*> allocated_;
  graph::Graph decoder_;
  int longest_ = 0;
  std::vector<HiddenStates> streams_;  // of the float model
  // The prefixes as they are when one part alone is coarse: the embedding if it is measured, then layer by layer.
  std::vector<std::vector<HiddenStates>> changes_;
  std::vector<HiddenStates> together_;  // when all are
  std::vector<InputStatistics> fitted_, judged_;
  std::map<const Tensor*, size_t> input_of_;
  Sensitivities found_;
};

}  // namespace

bool IsAllocated(const Choice& c, const Recipe& recipe) {
  const bool is_chosen = c.is_body || (c.is_vocabulary && recipe.measures_vocabulary);
  const bool kept = c.tensor->dtype == c.dtype && Info(c.dtype).block > 1;  // copied as it is: more bits would hold nothing
  return is_chosen && !kept && c.tensor->dims.back() % 32 == 0;
}

std::optional<double> KnownError(const Tensor& t, DType dtype) {
  if (dtype == t.dtype) return 0;
  if (t.dims.back() % Info(dtype).block != 0) return -1;
  return std::nullopt;
}

Result<Sensitivities> MeasureSensitivities(const model::Model& m, const Plan& plan, const WriteOptions& options) {
  if (!options.text) return Error(Code::kInvalidArgument, "the recipe " + plan.recipe.name + " needs calibration text");
  SLM_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create(options.n_threads));
  Measurement measurement(plan, {team.get(), options.isa}, options.cancelled);
  SLM_RETURN_IF_ERROR(measurement.Begin(std::shared_ptr<const model::Model>(std::shared_ptr<void>(), &m), *options.text));
  for (int layer = 0; layer < m.config.n_layers; ++layer) {
    SLM_RETURN_IF_ERROR(measurement.Layer(layer));
    if (options.layer_done) options.layer_done(layer + 1);
  }
  return measurement.Finish();
}

uint64_t SensitivityBytes(const model::Model& m, const Recipe& recipe, const CalibrationText& text, int n_threads) {
  const auto n_sequences = static_cast<int64_t>(SequencesOf(recipe, text));
  const int64_t longest = text.longest(), e = m.config.d_model, prefix = (n_sequences + 3) / 4 * recipe.followed_tokens;
  const int64_t q = int64_t{m.config.n_heads} * m.config.head_dim, f = m.config.d_ff, widest = std::max({e, f, q});
  const int64_t followed = 4 * e * prefix * (m.config.n_layers + 5);
  // As calibration; with the second moments of the judged sequences, those of one input packed; and the followed text.
  const int64_t more = 4 * (2 * e * e + q * q + f * f) + 4 * widest * widest + followed;
  return CalibrationBytes(m, recipe, n_sequences * longest, longest, n_threads) + static_cast<uint64_t>(more) +
         DivergenceBytes(m, prefix / 2, m.config.n_layers + 3) + VocabularySensitivity::BytesOf(m, longest);
}

}  // namespace slm::quant
