// Test bodies that every matmul family runs over its own table (used by *_test.cc only; defined in matmul_check_test.cc).
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "base/mix_for_test.h"
#include "kernels/packed/table.h"

namespace slm::kernels::check {

// Memory of exactly `bytes` with unreadable pages on both sides, so that one byte too far ends the test. Data touch the page
// behind them (kEnd) or before them (kStart).
enum class Touch { kEnd, kStart };
class Guarded {
 public:
  Guarded(size_t bytes, Touch touch);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  template <class T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }
  // Makes the data themselves read-only: operands that a kernel must not write.
  void Freeze();

 private:
  uint8_t *map_ = nullptr, *data_ = nullptr;
  size_t map_bytes_ = 0;
};

// How weights and activations are filled.
enum class Fill { kRandom, kFixture, kLowestTimesHighest, kLowestTimesLowest, kHighestTimesHighest, kZero, kOneLargeRow };

// A matrix product with all its operands in plain row-major form.
struct Problem {
  PackedKind kind;
  int64_t n, k;
  int m;
  std::vector<uint8_t> codes;     // [n][k] as stored, below CodeCount(kind) (value = code - zero point)
  std::vector<float> scale, min;  // [n][blocks of k], K-quants [n][super-blocks] (d, -dmin); exact in fp16
  std::vector<int8_t> sub_scale;  // K-quants: [n][blocks of k], kQ6K two a block
  std::vector<uint8_t> sub_min;   // kQ4K, kQ5K: [n][blocks of k]
  std::vector<uint8_t> floats;    // [n][k] in the kind's element type
  std::vector<int8_t> a;          // [m][padded k]
  std::vector<float> a_scale;     // [m][padded k / 32]
  std::vector<int32_t> a_sum;
  std::vector<ResidualBlock> residual;  // [m][padded k / 32]: about a third of the blocks; what is not counted is garbage
  std::vector<int32_t> residual_count;
  std::vector<float> x;  // [m][padded k]
};
Problem MakeProblem(PackedKind kind, int64_t n, int64_t k, int m, Fill fill);
void PackProblem(const Problem& p, int64_t row_begin, int64_t row_end, uint8_t* dst);

enum class Bias { kNone, kSome };
enum class Output { kWritten, kAdded };
struct RunOptions {
  Touch touch = Touch::kEnd;
  Bias bias = Bias::kNone;
  Output output = Output::kWritten;
  std::vector<int> panel_cuts;  // inner borders of the panel ranges; empty: one range
};
// Runs the kernel on guarded operands; returns out [m][PaddedRows(n)].
std::vector<float> Run(MatMulKernel kernel, const Problem& p, const RunOptions& options);

// Kernels of `table` that this machine can run, the scalar one included.
std::vector<KernelEntry> Runnable(KernelTable table);

void ExpectBitsEqualScalar(KernelTable table);      // shapes, tails, m 1..70, panel splits, bias, accumulate, extremes
void ExpectTokenIndependentOfM(KernelTable table);  // token i of m = token alone
void ExpectMatchesNumpy(KernelTable table);         // float64 fixture, packed bytes, bounds from norms
void ExpectSelectsWhatItSays(KernelTable table, MatMulKernel (*select)(PackedKind, Isa));
void ExpectNanShows(KernelTable table);  // a NaN activation scale or value reaches every output of its token

}  // namespace slm::kernels::check
