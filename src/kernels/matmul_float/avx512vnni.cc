// Float matmul for AVX-512: tiles of 1 to 6 tokens x 32 rows, weights widened to f32 once per tile and K.
//
// Every accumulator takes its K in order with one fused multiply-add each, so results equal ref.cc bit for bit. Twelve accumulators
// in flight cover the latency of the FMA; M = 1 has 2 chains and is bound by memory.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/matmul_float/contract.h"
#include "kernels/packed/prefetch.h"

namespace slm::kernels {
namespace {

constexpr int kTile = 6;     // 12 accumulators + 2 weights + broadcasts of 32 registers
constexpr int kVectors = 2;  // of 16 rows

// Rows 16 g to 16 g + 15 of the line at p, as f32.
template <PackedKind kKind>
__m512 Weights(const uint8_t* p, int g) {
  if constexpr (kKind == PackedKind::kF32) {
    return _mm512_load_ps(reinterpret_cast<const float*>(p) + g * 16);
  } else {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + g);
    if constexpr (kKind == PackedKind::kF16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
}

template <int kM>
void Store(const MatMulArgs& args, int64_t row, int64_t token, const __m512 (&acc)[kM][kVectors]) {
  for (int i = 0; i < kM; ++i) {
    float* out = args.out + (token + i) * args.out_stride + row;
    for (int g = 0; g < kVectors; ++g) {
      __m512 v = acc[i][g];
      if (args.bias != nullptr) v = _mm512_add_ps(v, _mm512_loadu_ps(args.bias + row + g * 16));
      if (args.accumulate) v = _mm512_add_ps(_mm512_loadu_ps(out + g * 16), v);
      _mm512_storeu_ps(out + g * 16, v);
    }
  }
}

template <PackedKind kKind, int kM>
void RunTile(const MatMulArgs& args, int64_t panel, int64_t token) {
  constexpr int kLineBytes = kKind == PackedKind::kF32 ? 2 * kLine : kLine;
  const uint8_t* p = args.w + panel * args.panel_bytes;
  const float* x = args.x + token * args.x_stride;
  __m512 acc[kM][kVectors];
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < kVectors; ++g) acc[i][g] = _mm512_setzero_ps();
  for (int64_t k = 0; k < args.k; k += 4, p += 4 * kLineBytes) {
    for (int line = 0; line < 4 * kLineBytes; line += 2 * kLine) FetchAhead<kM>(p + line);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512 w0 = Weights<kKind>(p + j * kLineBytes, 0), w1 = Weights<kKind>(p + j * kLineBytes, 1);
#pragma GCC unroll 6
      for (int i = 0; i < kM; ++i) {
        const __m512 v = _mm512_set1_ps(x[i * args.x_stride + k + j]);
        acc[i][0] = _mm512_fmadd_ps(v, w0, acc[i][0]);
        acc[i][1] = _mm512_fmadd_ps(v, w1, acc[i][1]);
      }
    }
  }
  Store<kM>(args, panel * kPanelRows, token, acc);
}

template <PackedKind kKind>
void MatMul(const MatMulArgs& args) {
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p)
    for (int done = 0; done < args.m;) {
      const int tile = TileTokens(args.m - done, kTile);
      switch (tile) {
        case 1: RunTile<kKind, 1>(args, p, done); break;
        case 2: RunTile<kKind, 2>(args, p, done); break;
        case 3: RunTile<kKind, 3>(args, p, done); break;
        case 4: RunTile<kKind, 4>(args, p, done); break;
        case 5: RunTile<kKind, 5>(args, p, done); break;
        default: RunTile<kKind, 6>(args, p, done); break;
      }
      done += tile;
    }
}

}  // namespace

void MatMulF16Avx512Vnni(const MatMulArgs& args) { MatMul<PackedKind::kF16>(args); }
void MatMulBF16Avx512Vnni(const MatMulArgs& args) { MatMul<PackedKind::kBF16>(args); }
void MatMulF32Avx512Vnni(const MatMulArgs& args) { MatMul<PackedKind::kF32>(args); }

}  // namespace slm::kernels
