// How far changes of the hidden states behind the last layer move the next token's distribution: the mean KLD.
//
// With p the float distribution and d the change of the logits, KLD = log E_p[e^d] - E_p[d], where d is the head times the change of the
// normed state: small changes lose no digits. (Half the variance of d, the same to second order, was ten times too much for the few
// tokens that a change of a layer moves far.) The head is read a part of the vocabulary at a time: it never is in memory in f32.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "quant/matrix.h"

namespace slm::quant {

// For each of `changed` [n][E], hidden states of the same n tokens as `rows` [n][E] but for a change, the mean over the tokens of the KLD
// in nats. The same for any number of threads. Error: kCorrupt (NaN or infinity).
Result<std::vector<double>> MeanDivergences(const model::Model& m, const Machine& machine, std::span<const float> rows,
                                            std::span<const std::span<const float>> changed);

// Bytes that it takes for `n_tokens` tokens and `n_changes` changes, besides its arguments.
uint64_t DivergenceBytes(const model::Model& m, int64_t n_tokens, int64_t n_changes);

}  // namespace slm::quant
