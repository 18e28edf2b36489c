// What the AVX-512 VNNI tiles share: loads, and where their sums go. Included by avx512vnni.cc files only;
// all names are internal to an object.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/contract.h"
#include "kernels/packed/prefetch.h"
#include "kernels/packed/tokens.h"

namespace slm::kernels {
namespace {

constexpr int kTile = 6;  // 12 integer + 12 float accumulators + lines and masks = 30 of 32 registers

__m512i Broadcast4(const int8_t* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}

__m512 Halfs(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p))); }

// Where the sums of a panel go: its rows of the output of some tokens. A tile stores from its registers. Outputs lie a row of the whole
// matrix apart, often a multiple of 4 KiB, so that they share a few sets of the L1 cache: storing the sums of all tokens of a block
// after the last tile took a tenth of prefill, on lines that the other cores had read last.
struct Output {
  float* out;  // [tokens][stride]
  int64_t stride;
  const float* bias;  // of the panel's rows, or nullptr
  bool accumulate;
  Output(const MatMulArgs& args, int64_t token, int64_t row)
      : out(args.out + token * args.out_stride + row),
        stride(args.out_stride),
        bias(args.bias != nullptr ? args.bias + row : nullptr),
        accumulate(args.accumulate) {}
  // Before a tile's products: the lines come while it computes.
  void Fetch(int token) const {
    FetchToWrite(out + token * stride);
    FetchToWrite(out + token * stride + 16);
  }
  // Row group g of a token.
  void Store(int token, int g, __m512 v) const {
    float* to = out + token * stride + g * 16;
    if (bias != nullptr) v = _mm512_add_ps(v, _mm512_loadu_ps(bias + g * 16));
    if (accumulate) v = _mm512_add_ps(_mm512_loadu_ps(to), v);
    _mm512_storeu_ps(to, v);
  }
};

}  // namespace
}  // namespace slm::kernels
