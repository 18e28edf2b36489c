// The second moments of a layer's input, E[x x^T], made ready for choosing codes that work together: damped, in the order in which
// columns are treated, factored, and packed for products.
//
// Sources: GPTQ (arXiv 2210.17323) for damping and order; its equivalence with Babai's nearest plane ("The Geometry of LLM
// Quantization", arXiv 2507.18553), which needs no inverse: with H = R R^T, R upper triangular in the order of treatment,
//   (w - v) H (w - v)^T = sum over k of R_kk^2 (w_k + sum over j < k of (w_j - v_j) C_jk - v_k)^2,   C_jk = R_jk / R_kk.
// Columns of a block stay together (group-aware order, as in GPTQModel), so that the file needs no list of indices.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cpu_features.h"
#include "base/result.h"
#include "base/threads.h"
#include "quant/block_form.h"

namespace slm::quant {

// f32 values on 64 bytes, zeros at first.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(int64_t n);
  float* get() const { return values_.get(); }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float[], Free> values_;
};

// E[x x^T] of k channels, as views.
struct SecondMoments {
  const float* h = nullptr;  // [k][stride] f32, symmetric
  int64_t k = 0, stride = 0;
  std::span<const float> fold = {};  // [k] or empty: the channels were divided by these factors since
  float At(int64_t i, int64_t j) const {
    const float v = h[i * stride + j];
    return fold.empty() ? v : v / (fold[static_cast<size_t>(i)] * fold[static_cast<size_t>(j)]);
  }
};

struct CurvatureOptions {
  // Of the mean of the diagonal, added to it; raised step by step when the factorisation fails. Why more than the usual 0.01: on
  // SmolLM2-135M with 12k tokens the error on other text is 1 to 4 % less with 0.03.
  double damping = 0.03;
};

// Immutable after Create; may serve all matrices that read the same input, from any thread. About 12 K^2 bytes while it is made, 8 K^2
// afterwards.
class Curvature {
 public:
  // `moments` are positive semidefinite up to rounding, and only read here. A channel that is always 0 (dead) is treated as if it were
  // independent of all others. Errors: kInvalidArgument (k is no whole number of blocks), kCorrupt (NaN, infinity, negative diagonal).
  static Result<Curvature> Create(const SecondMoments& moments, const BlockForm& form, const CurvatureOptions& options, Isa isa,
                                  ThreadTeam& team);
  static uint64_t NeedBytes(int64_t k);

  int64_t k() const { return k_; }
  int64_t padded_k() const { return padded_; }
  double damping() const { return damping_; }  // what was needed
  // order()[p]: the column that is treated at position p. Positions of a block are consecutive, of a group too.
  std::span<const int32_t> order() const { return order_; }

  // Positions are treated in steps of this many (the last may be shorter), a whole number of blocks where a block is not longer.
  int64_t step() const { return step_; }
  // Square parts on the diagonal for the step that begins at position p, [step][step]: of C (rows j, columns k > j), of damped H.
  const float* step_c(int64_t p) const { return step_c_.get() + p * step_; }
  const float* step_h(int64_t p) const { return step_h_.get() + p * step_; }
  // R_kk^2 by position: what an error of the adjusted weight counts. Damped H_kk by position.
  std::span<const float> pivots() const { return pivots_; }
  std::span<const float> diagonal() const { return diagonal_; }

  // to [m][padded_k] += x [m][padded_k] (columns [begin, end) of it, begin a multiple of 32) times the rows [begin, end) of damped H,
  // for columns below `begin` and from `end` on. x and `to` are aligned and 0 past K.
  void AddRest(const float* x, int64_t m, int64_t begin, int64_t end, float* to) const;
  // The same of C for columns from `end` on.
  void AddLater(const float* x, int64_t m, int64_t begin, int64_t end, float* to) const;
  // to = x times damped H.
  void Multiply(const float* x, int64_t m, float* to) const;

 private:
  Curvature() = default;
  void SetOrder(const std::vector<double>& diagonal, const BlockForm& form);
  bool Factor(const SecondMoments& moments, ThreadTeam& team);
  void PackH(const SecondMoments& moments, ThreadTeam& team);
  void Product(const AlignedFloats& packed, const float* x, int64_t m, int64_t begin, int64_t end, int64_t panel_begin, int64_t panel_end,
               float* to, bool add) const;

  int64_t k_ = 0, padded_ = 0, step_ = 0;
  Isa isa_ = Isa::kScalar;
  double damping_ = 0, added_ = 0;
  std::vector<int32_t> order_;
  std::vector<float> pivots_, diagonal_;
  std::vector<double> live_;  // diagonal by position with dead channels at 1, undamped
  AlignedFloats h_, c_;       // packed as B of products: panels of 32 columns, [padded_k][32] each
  AlignedFloats step_h_, step_c_;
};

}  // namespace slm::quant
