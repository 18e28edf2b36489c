// Embedding and head among the matrices whose type is chosen: what they change when they are rounded coarsely, and their errors by type.
//
// As for the matrices of the layers, a relative error times the KLD that such an error causes. Of the embedding the error is that of the
// rows that the text's tokens have, and its change goes through all layers; of the head it is that of the products with what the last
// norm gives, and its change is one of the logits. A tied head is one matrix that does both: what both cost is added.
#pragma once
#include <cstdint>
#include <vector>

#include "model/model.h"
#include "quant/allocation/sensitivity.h"
#include "quant/hidden_states.h"
#include "quant/layer_weights.h"
#include "quant/matrix.h"
#include "quant/quant.h"

namespace slm::quant {

class VocabularySensitivity {
 public:
  // `m` and `plan` outlive it. `tokens`: sequences, as far as they are followed.
  VocabularySensitivity(const model::Model& m, const Plan& plan, const Machine& machine, std::vector<std::vector<int32_t>> tokens);

  // Which of both have a type to be chosen.
  bool has_embedding() const { return embedding_ != nullptr; }
  bool has_head() const { return head_ != nullptr; }

  // The followed tokens as they enter the first layer when the embedding is rounded coarsely. Only with an embedding.
  std::vector<HiddenStates> CoarselyEmbedded() const;

  // One for each tensor. `last`: hidden states behind the last layer; the KLDs are those of a coarse embedding and of a coarse head.
  // Error: kUnsupported (a scale beyond f16).
  Result<std::vector<MatrixSensitivity>> Measure(const std::vector<HiddenStates>& last, double embedding_kld, double head_kld) const;

  static uint64_t BytesOf(const model::Model& m, int64_t longest);

 private:
  // Relative errors: of the coarse grid, and of each type (< 0: it does not fit the width).
  struct Errors {
    double coarse = 0;
    std::vector<double> types;
  };
  template <class Relative>
  Result<Errors> ErrorsOf(const LayerTensor& t, const Relative& relative) const;
  Result<Errors> EmbeddingErrors() const;
  Result<Errors> HeadErrors(const std::vector<HiddenStates>& last) const;
  LayerTensor TokenRows() const;  // of the embedding

  const model::Model& m_;
  const Recipe& recipe_;
  const Machine machine_;
  const std::vector<std::vector<int32_t>> tokens_;
  const model::Tensor *embedding_ = nullptr, *head_ = nullptr;  // the same when tied
};

}  // namespace slm::quant
