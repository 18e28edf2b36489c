// See vocabulary_sensitivity.h.
#include "quant/allocation/vocabulary_sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/threads.h"
#include "quant/allocation/coarse.h"
#include "quant/allocation/logit_change.h"
#include "quant/rounding.h"
#include "quant/statistics.h"
#include "quant/stored_form.h"

namespace slm::quant {
namespace {
using model::Role;
using model::Tensor;

constexpr int64_t kHeadRows = 512;  // that stand for all: the vocabulary's rows are more alike than those of a layer's matrix

}  // namespace

VocabularySensitivity::VocabularySensitivity(const model::Model& m, const Plan& plan, const Machine& machine,
                                             std::vector<std::vector<int32_t>> tokens)
    : m_(m), recipe_(plan.recipe), machine_(machine), tokens_(std::move(tokens)) {
  const Tensor* embedding = m.Find(Role::kEmbedding);
  const Tensor* head = m.config.tied_head ? embedding : m.Find(Role::kHead);
  bool is_written = false;
  for (const Choice& c : plan.choices) {
    is_written |= c.tensor == head;
    if (!c.is_vocabulary || !IsAllocated(c, plan.recipe)) continue;
    if (c.tensor == embedding) embedding_ = embedding;
    if (c.tensor == head) head_ = head;
  }
  if (!is_written) head_ = embedding_;  // they are equal, and stored once
}

LayerTensor VocabularySensitivity::TokenRows() const {
  LayerTensor t{.role = Role::kEmbedding, .tensor = embedding_, .rows = 0, .width = m_.config.d_model, .values = {}, .fold = {}};
  for (const auto& sequence : tokens_) t.rows += static_cast<int64_t>(sequence.size());
  t.values.resize(static_cast<size_t>(t.rows * t.width));
  int64_t row = 0;
  for (const auto& sequence : tokens_)
    for (const int32_t token : sequence) model::ReadRows(*embedding_, token, token + 1, t.values.data() + row++ * t.width);
  m_.DropPages(*embedding_);
  return t;
}

std::vector<HiddenStates> VocabularySensitivity::CoarselyEmbedded() const {
  LayerTensor t = TokenRows();
  RoundCoarsely(t.values);
  for (float& v : t.values) v *= m_.config.embedding_scale;
  std::vector<HiddenStates> out;
  auto from = t.values.begin();
  for (const auto& sequence : tokens_) {
    const auto to = from + static_cast<int64_t>(sequence.size()) * t.width;
    out.push_back({static_cast<int>(sequence.size()), {from, to}});
    from = to;
  }
  return out;
}

// `relative(values)`: the relative error when `t`'s values are these.
template <class Relative>
Result<VocabularySensitivity::Errors> VocabularySensitivity::ErrorsOf(const LayerTensor& t, const Relative& relative) const {
  Errors errors;
  std::vector<float> values = t.values;
  RoundCoarsely(values);
  errors.coarse = relative(values);
  for (const DType dtype : recipe_.types) {
    if (const auto known = KnownError(*t.tensor, dtype)) {
      errors.types.push_back(*known);
      continue;
    }
    auto round = [&](int thread, int n_threads) {
      const Range mine = SplitRange(t.rows, 1, thread, n_threads);
      for (int64_t row = mine.begin; row < mine.end; ++row) {
        const std::span<const float> w(t.values.data() + row * t.width, static_cast<size_t>(t.width));
        StoreRow(StoredForm::Of(dtype), recipe_.search, w, nullptr, values.data() + row * t.width);
      }
    };
    machine_.team->Run(round);
    errors.types.push_back(relative(values));
    if (!std::isfinite(errors.types.back()))
      return Error(Code::kUnsupported, fmt::format("{}: beyond the range of the f16 scales of {}", t.tensor->name, Info(dtype).name),
                   "no type with f16 scales can hold it");
  }
  return errors;
}

Result<VocabularySensitivity::Errors> VocabularySensitivity::EmbeddingErrors() const {
  const LayerTensor t = TokenRows();
  return ErrorsOf(t, [&](const std::vector<float>& values) { return OutputError(t.values, values, t.width); });
}

Result<VocabularySensitivity::Errors> VocabularySensitivity::HeadErrors(const std::vector<HiddenStates>& last) const {
  const int64_t width = m_.config.d_model, n_all = m_.config.vocab_size;
  InputStatistics input(machine_, width, recipe_.most_energy);
  for (const HiddenStates& s : last) input.Add(FinalNormed(m_, machine_, s.rows).data(), s.n);
  input.Finish();
  const ProductError products(machine_, input);
  LayerTensor t{.role = Role::kHead, .tensor = head_, .rows = std::min(kHeadRows, n_all), .width = width, .values = {}, .fold = {}};
  t.values.resize(static_cast<size_t>(t.rows * t.width));
  for (int64_t row = 0; row < t.rows; ++row) {
    const int64_t at = row * n_all / t.rows;
    model::ReadRows(*head_, at, at + 1, t.values.data() + row * t.width);
  }
  m_.DropPages(*head_);
  const double power = products.Power(t);
  return ErrorsOf(t, [&](const std::vector<float>& values) { return power > 0 ? products.Of(t, values) / power : 0; });
}

Result<std::vector<MatrixSensitivity>> VocabularySensitivity::Measure(const std::vector<HiddenStates>& last, double embedding_kld,
                                                                      double head_kld) const {
  std::vector<MatrixSensitivity> found;
  const auto add = [&](const Tensor* tensor, double kld, Errors errors) {
    kld = errors.coarse > 0 ? kld / errors.coarse : 0;
    if (found.empty() || found[0].tensor != tensor) {
      found.push_back({.tensor = tensor, .layer = -1, .kld = kld, .errors = std::move(errors.types)});
      return;
    }
    MatrixSensitivity& both = found[0];  // of a tied head: errors as both uses weigh them
    const double sum = both.kld + kld;
    for (size_t t = 0; t < both.errors.size(); ++t)
      if (both.errors[t] >= 0 && sum > 0) both.errors[t] = (both.Loss(t) + kld * errors.types[t]) / sum;
    both.kld = sum;
  };
  if (has_embedding()) {
    SLM_ASSIGN_OR_RETURN(Errors errors, EmbeddingErrors());
    add(embedding_, embedding_kld, std::move(errors));
  }
  if (has_head()) {
    SLM_ASSIGN_OR_RETURN(Errors errors, HeadErrors(last));
    add(head_, head_kld, std::move(errors));
  }
  return found;
}

uint64_t VocabularySensitivity::BytesOf(const model::Model& m, int64_t longest) {
  const int64_t e = m.config.d_model;
  return static_cast<uint64_t>(InputStatistics::BytesOf(e, longest) + 2 * Matrix::BytesOf(e, e) + 4 * e * (longest + 6 * kHeadRows));
}

}  // namespace slm::quant
