// The quantizer of one group of weights: which evenly spaced values it gets, and which code each weight takes. Pure arithmetic,
// the same on every machine; formats (ggml_blocks.h) and calibration build on it.
//
// Sources: round-to-nearest as in AWQ (arXiv 2306.00978); the sign of the extreme and the search over inverse scales with a
// least-squares refit as in ggml's k-quants, extended by alternating codes and refit (Lloyd 1982).
#pragma once
#include <cstdint>
#include <span>

namespace slm::quant {

// Which grids a format can hold. L = 2^bits - 1 is the largest code, H = 2^(bits - 1).
enum class Scheme : uint8_t {
  kSymmetric,      // scale * (q - H), scale >= 0; round-to-nearest: amax / (H - 1)
  kSignedExtreme,  // scale * (q - H), scale of either sign; round-to-nearest: the value farthest from 0 is code 0
  kIntegerZero,    // scale * (q - z), z in [0, L]; 0 is always on the grid: AWQ, GPTQ, MatMulNBits (no GGUF type has it)
  kFloatMin,       // scale * q + min
  kNegativeMin,    // the same with min <= 0, as formats have it that store -min without a sign
};

enum class Search : uint8_t {
  kNearest,  // scale and offset from the range of the group (RTN)
  kRefit,    // the least weighted square error that a search over scales, refitted to their codes, finds
};

// How the format stores scale and min: codes are chosen for the rounded numbers.
enum class Store : uint8_t { kF32, kF16 };

struct GridSpec {
  Scheme scheme = Scheme::kSymmetric;
  int bits = 4;  // 2 to 8
  Search search = Search::kRefit;
  Store store = Store::kF32;
  int least_zero = 0;  // of kIntegerZero
};

// The value of code q in [0, L] is scale * (q - zero) + min, in f32, each operation rounded.
struct Grid {
  float scale = 0;
  float min = 0;
  int zero = 0;
};
inline float ValueOf(const Grid& g, int q) { return g.scale * static_cast<float>(q - g.zero) + g.min; }

// The grid for `w` (1 to any number of finite values). `u`: the weight of each square error, >= 0, or nullptr for 1. With
// kRefit never worse than kNearest in weighted error. All zeros: scale 0. Thread-safe.
Grid ChooseGrid(const GridSpec& spec, std::span<const float> w, const float* u = nullptr);

// The nearest code of every value; `codes` [w.size()] may be nullptr. Returns the weighted sum of square errors. Thread-safe.
double AssignCodes(const Grid& grid, int bits, std::span<const float> w, const float* u, uint8_t* codes);

// Sums over the nearest codes t = q - zero, from which least squares follow in closed form.
struct CodeSums {
  double t = 0, tt = 0, tw = 0;  // of u*t, u*t*t, u*t*w
};
// Codes are round(w * inverse + offset) cut to [0, 2^bits - 1]. Thread-safe.
CodeSums SumCodes(std::span<const float> w, const float* u, float inverse, float offset, int zero, int bits);

}  // namespace slm::quant
