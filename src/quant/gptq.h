// Codes for a matrix that make up for each other's errors on the inputs that it will see: the least tr((W - V) H (W - V)^T) that error
// feedback, refits of the grids and a descent over single codes find.
//
// Sources: GPTQ (arXiv 2210.17323) in the form of Babai's nearest plane (curvature.h); closed-form refits of scales to fixed codes, and
// coordinate descent over the codes, which never raise the error.
// Why guarded: a few channels with massive activations can own H; grids fitted to them are worse everywhere else. Every row is compared
// with plain rounding and with the plain refit, and the best is kept.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"
#include "quant/block_form.h"
#include "quant/curvature.h"

namespace slm::quant {

// Rows of codes with their grids; column order is the matrix's.
struct CodedRows {
  BlockForm form;
  int64_t rows = 0, width = 0;
  std::vector<uint8_t> codes;  // [rows][width]
  std::vector<Grid> grids;     // [rows][width / form.group]
  std::vector<Shared> shared;  // [rows][width / form.width()] of super-blocks, else empty

  CodedRows() = default;
  CodedRows(const BlockForm& f, int64_t n, int64_t k);
  // The values that row `i` stands for; `out` [width].
  void Values(int64_t i, float* out) const;
};

// When the grid of a block is chosen.
enum class GridTime : uint8_t {
  kOnArrival,  // for the weights as the feedback left them, each error weighted by its pivot
  kStatic,     // for the original weights
};

// What a row of the feedback is compared with before it is taken.
enum class Guard : uint8_t { kPlain, kNone };

struct GptqOptions {
  GridTime grids = GridTime::kOnArrival;
  Search search = Search::kRefit;  // of static grids: weighted by the diagonal of H, or from the range
  int sweeps = 4;                  // of refit and descent after the feedback
  Guard guard = Guard::kPlain;
};

// Sums over the rows of (w - v) H (w - v)^T with damped H.
struct GptqReport {
  double error = 0;               // of what was chosen
  double nearest = 0, refit = 0;  // of rounding each weight for itself: range grids, refitted grids
  int64_t plain_rows = 0;         // where one of these was better
};

// Quantizes w [rows][h.k()] f32, finite, whose input has the moments `h` (made for the same form). With the
// guard error <= nearest and error <= refit, also row by row. The same result whatever the number of threads. Not for use inside a job of
// `team`.
GptqReport SolveGptq(const Curvature& h, const BlockForm& form, const float* w, int64_t rows, const GptqOptions& options, ThreadTeam& team,
                     CodedRows* out);

// Bytes that one matrix needs on the way through Curvature::Create and SolveGptq, besides its moments and its weights.
uint64_t GptqBytes(int64_t rows, int64_t width, int n_threads);

// Writes row `i` as blocks of `dtype`, whose form `coded` has; `out` [RowBytes(dtype, coded.width)].
void EncodeCoded(DType dtype, const CodedRows& coded, int64_t i, std::byte* out);

}  // namespace slm::quant
