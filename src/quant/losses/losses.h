// What rounding loses of single matrices, by scheme and without data: nothing is computed with them, so any file of float matrices will
// do, also of an architecture that this build cannot run. A door.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/threads.h"
#include "model/model.h"
#include "quant/schemes.h"

namespace slm::quant {

// A block type of GGUF, or a scheme of schemes.h.
struct RoundingScheme {
  std::string name;
  DType dtype = DType::kCount;  // of a block type
  WeightScheme scheme = {};     // without one
};
// "q4_0", "q8_0" …, or a name of schemes.h. Errors: kInvalidArgument, with the names that there are.
Result<RoundingScheme> ParseRounding(std::string_view name);

struct RoundingLoss {
  std::string stored;  // what the width allows: "q4_1" for q4_k, "w4-sym-g32" for w4-sym-g128
  double bits = 0;     // a weight, scales included
  double lost = 0;     // sums of squares: of what was lost, and of the values
  double power = 0;
  double error() const;    // root mean square of the one over that of the other
  double sqnr_db() const;  // the same as a ratio of powers, in decibel; infinity when nothing was lost
};

// A matrix whose values are floats: what MeasureRounding takes.
bool IsFloatMatrix(const model::Tensor& t);

// Rounds a float matrix, a few rows in memory (NVFP4: the whole in f32), all errors alike where the type has no rule of its own. The same
// for any number of threads. Errors: kUnsupported (a width that no group of the scheme divides, a scale beyond f16), kCorrupt (NaN or
// infinity; the row is named).
Result<RoundingLoss> MeasureRounding(const model::Tensor& t, const RoundingScheme& scheme, Search search, ThreadTeam& team);

}  // namespace slm::quant
