// SmoothQuant: channels that are large in the activations lend their size to the weights, so that 8 bits hold both.
//
// Source: arXiv 2211.10438: s = amax(x)^a / amax(w)^(1 - a) by input channel, x / s and w * s. The exponent a is searched on sampled rows,
// with "no smoothing" as a candidate.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/block_runner.h"
#include "quant/activation_range.h"
#include "quant/activation_sample.h"
#include "quant/awq.h"

namespace slm::quant {

// [width] factors, each in [1e-5, 1e5]; a channel that is 0 on either side: 1. `x`, `w` [width]: largest |x| and |w| of the channels.
std::vector<float> SmoothFactors(std::span<const float> x, std::span<const float> w, double alpha);

struct SmoothOptions {
  int points = 20;  // exponents 1/points … (points - 1)/points
  int activation_bits = 8, weight_bits = 8;
  backend::InputRounding inputs = backend::InputRounding::kPerToken;
  RangeOptions range{.rule = RangeRule::kPercentile, .symmetric = true};  // of kStatic; bits are activation_bits
};

struct Smoothing {
  std::vector<float> scale;  // [width], empty: no smoothing is best
  double alpha = 0;
  double error = 0, identity_error = 0;  // mean square error of x W^T, over that of x W^T itself
};

// Rows x [tokens][width] and w [rows][width] that stand for all: activations as symmetric integers by `options`, weights symmetric per row.
// `most_x`, `most_w` [width]: the channels' largest values over everything, of which the rows are a sample. Pure; not for large matrices.
Smoothing SearchSmoothing(std::span<const float> x, std::span<const float> w, int64_t width, std::span<const float> most_x,
                          std::span<const float> most_w, const SmoothOptions& options);

// The same for matrices that read one input, on rows of `sample` and of theirs. Channels with the same number in `tied` get the same
// factor.
Smoothing SmoothMembers(const ActivationSample& sample, std::span<const FoldMember> members, std::span<const int32_t> tied,
                        const SmoothOptions& options);

}  // namespace slm::quant
