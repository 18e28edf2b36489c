// Rounds matrices of a layer to their stored type, with several ways of choosing scales, and keeps the way that changes their
// products least: tr(D E[x x^T] D^T) for the change D of the weights.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quant/curvature.h"
#include "quant/gptq.h"
#include "quant/grid.h"
#include "quant/layer_weights.h"
#include "quant/statistics.h"
#include "quant/stored_form.h"

namespace slm::quant {

struct Rounded {
  std::vector<std::byte> bytes;  // rows of a ggml type
  CodedRows coded;               // of a grid, in place of bytes
  std::vector<float> values;     // as read back, [rows, width]
  double error = 0;              // tr(D E[x x^T] D^T) over tr(W E[x x^T] W^T), in units before a fold; on at most 256 rows, spread evenly
  double relative_error = 0;     // root mean square of what was lost, relative
  const char* way = "";
};

// The change of products, tr(D E[x x^T] D^T), in units before a fold. `input` outlives it.
class ProductError {
 public:
  ProductError(const Machine& machine, const InputStatistics& input);
  // Of the products themselves: `t`'s values against nothing.
  double Power(const LayerTensor& t) const;
  // Of `values` [rows, width] in place of `t`'s.
  double Of(const LayerTensor& t, std::span<const float> values) const;

 private:
  const Machine machine_;
  const Multiplier second_;
};

// Each weight for itself, or by what the options have of error feedback and signed gradients.
enum class Codes : uint8_t { kNearest, kMoved };

// The ways that are tried.
struct RoundingOptions {
  Search search = Search::kRefit;
  bool weighted = true;    // errors of weights count as E[x^2] says, beside the plain way
  bool gptq = false;       // codes that make up for each other's errors (gptq.h)
  bool signround = false;  // codes moved by signed gradients (signround.h), from GPTQ's and from rounded ones
  int signround_steps = 200;
  double damping = 0.01;
};

// Rounds the matrices that read one input. `input` outlives it.
class Rounder {
 public:
  Rounder(const Machine& machine, const InputStatistics& input, const RoundingOptions& options);
  // Errors: kUnsupported (a scale beyond f16: the row is named).
  Result<Rounded> Round(const LayerTensor& t, const StoredForm& form, Codes codes = Codes::kMoved);
  // What is kept for further matrices with the same blocks, 8 bytes times the square of the width.
  void ForgetCurvatures() { curvatures_.clear(); }

 private:
  Result<CodedRows> SolveGptq(const LayerTensor& t, const BlockForm& block);
  const ProductError& Products();
  // Of what `t` reads, after its fold.
  SecondMoments MomentsFor(const LayerTensor& t) const;
  // Each weight for itself; `u` as in EncodeRow.
  Rounded RoundPlainly(const LayerTensor& t, const StoredForm& form, const float* u) const;
  void MoveCodes(const LayerTensor& t, CodedRows* coded);

  const Machine machine_;
  const InputStatistics& input_;
  const RoundingOptions options_;
  // Of the input after the fold, which all its matrices share, by length of a group and groups of a block.
  std::map<std::pair<int, int>, Curvature> curvatures_;
  std::optional<Multiplier> damped_;  // moments after the fold with damping, packed
  std::optional<ProductError> products_;
};

}  // namespace slm::quant
