// How far changes of the hidden states behind the last layer, or of the head, move the next token's distribution: the mean KLD.
//
// With p the float distribution and d the change of the logits, KLD = log E_p[e^d] - E_p[d], where d is the head times the change of the
// normed state, and the change of the head times the changed state: small changes lose no digits. (Half the variance of d, the same to
// second order, was ten times too much for the few tokens that a change of a layer moves far.) The head is read a part of the vocabulary at
// a time: it never is in memory in f32.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "quant/matrix.h"

namespace slm::quant {

enum class HeadState : uint8_t { kFloat, kChanged };
// Hidden states of n tokens but for a change [n][E], empty where there is none; and the head that they meet.
struct LogitChange {
  std::span<const float> rows;
  HeadState head = HeadState::kFloat;
};

// For each of `changes`, the mean over the tokens of the KLD in nats to the float model's hidden states `rows` [n][E] and head.
// `change_row` makes a changed row of the head of a float one, from several threads. The same for any number of threads. Error: kCorrupt
// (NaN or infinity).
Result<std::vector<double>> MeanDivergences(const model::Model& m, const Machine& machine, std::span<const float> rows,
                                            std::span<const LogitChange> changes,
                                            const std::function<void(std::span<float> row)>& change_row);

// `rows` [n][E] behind the final norm.
std::vector<float> FinalNormed(const model::Model& m, const Machine& machine, std::span<const float> rows);

// Bytes that MeanDivergences takes for `n_tokens` tokens and `n_changes` changes, two of them with a changed head, besides its arguments.
uint64_t DivergenceBytes(const model::Model& m, int64_t n_tokens, int64_t n_changes);

}  // namespace slm::quant
