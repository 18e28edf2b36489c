// 8-bit matmul for AVX-512 VNNI: the tile of kernels/packed/bytes_avx512vnni.h on the packed lines as they are serves decode
// (M = 1), verification and prefill.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/matmul_q8/contract.h"
#include "kernels/packed/bytes_avx512vnni.h"

namespace slm::kernels {
namespace {

template <bool kHasMin>
struct Bytes {
  static constexpr bool kMin = kHasMin;
  static constexpr int kZero = 128, kParts = 1, kBlockBytes = kCodeBytes + (kMin ? 2 : 1) * kLine;
  static __m512 Scale(const uint8_t* p, int, int g) { return Halfs(p + g * 32); }
  static __m512 Min(const uint8_t* p, int g) { return Halfs(p + kLine + g * 32); }
};

// One block times kM columns x. Its lines are read in the order of memory between the dots: with all loads first (as Block has
// them) decode read 21 GB/s instead of 29.
template <class F, int kM, class Columns>
[[gnu::always_inline]] inline void AddColumns(const uint8_t* p, const Columns& x, __m512 (*acc)[2]) {
  __m512i dot[kM][2];
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) dot[i][0] = dot[i][1] = _mm512_set1_epi32(x.Start(i));
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) {
    const __m512i w0 = _mm512_load_si512(p + c * 2 * kLine), w1 = _mm512_load_si512(p + (c * 2 + 1) * kLine);
    FetchAhead<1>(p + c * 2 * kLine);
#pragma GCC unroll 6
    for (int i = 0; i < kM; ++i) {
      const __m512i v = Broadcast4(x.Codes(i) + c * 4);
      dot[i][0] = _mm512_dpbusd_epi32(dot[i][0], w0, v);
      dot[i][1] = _mm512_dpbusd_epi32(dot[i][1], w1, v);
    }
  }
  const __m512 s0 = Halfs(p + kCodeBytes), s1 = Halfs(p + kCodeBytes + 32);
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) {
    const __m512 scale = _mm512_set1_ps(x.Scale(i));
    acc[i][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][0]), _mm512_mul_ps(scale, s0), acc[i][0]);
    acc[i][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][1]), _mm512_mul_ps(scale, s1), acc[i][1]);
  }
  if (!F::kMin) return;
  const __m512 m0 = Halfs(p + kCodeBytes + kLine), m1 = Halfs(p + kCodeBytes + kLine + 32);
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) {
    const __m512 offset = _mm512_set1_ps(x.Offset(i));
    acc[i][0] = _mm512_fmadd_ps(m0, offset, acc[i][0]);
    acc[i][1] = _mm512_fmadd_ps(m1, offset, acc[i][1]);
  }
}

// One panel times a token alone, with its residuals.
template <class F>
void RunOne(const uint8_t* p, const Tokens& t, const ResidualBlock* r, const ResidualBlock* end, const Output& to) {
  __m512 acc[2][2];  // of the token, of its residuals
  for (int g = 0; g < 2; ++g) acc[0][g] = acc[1][g] = _mm512_setzero_ps();
  const int8_t* a = t.a;
  int64_t next = r != end ? r->block : -1;
  for (int64_t b = 0; b < t.n_blocks; ++b) {
    if (b == next) {
      AddColumns<F, 2>(p, ResidualColumns{{t, a, b}, EntryOf(*r, 128, 0)}, acc);
      next = ++r != end ? r->block : -1;
    } else {
      AddColumns<F, 1>(p, TokenColumns{t, a, b}, acc);
    }
    p += F::kBlockBytes;
    a += kBlockK;
  }
  for (int g = 0; g < 2; ++g) to.Store(0, g, _mm512_add_ps(acc[0][g], acc[1][g]));
}

// Per token and block, once for all panels: what the tile would otherwise recompute per panel. n values, a multiple of 2.
template <bool kMin>
void Prepare(const float* scale, const int32_t* sum, int64_t n, int32_t* start, float* offset) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 some = static_cast<__mmask16>(n - i >= 16 ? 0xffff : (1 << (n - i)) - 1);
    const __m512i s = _mm512_maskz_loadu_epi32(some, sum + i);
    _mm512_storeu_si512(start + i, _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(s, 7)));
    if (kMin) _mm512_storeu_ps(offset + i, _mm512_mul_ps(_mm512_maskz_loadu_ps(some, scale + i), _mm512_cvtepi32_ps(s)));
  }
}

// Tokens are taken kTokenBlock at a time, so that their activations stay in L2 while the panels stream by.
template <bool kMin>
void MatMul(const MatMulArgs& args) {
  alignas(kLine) float sums[kTokenBlock * kPanelRows];
  const int64_t n_blocks = args.k / kBlockK;
  int32_t* start = reinterpret_cast<int32_t*>(args.scratch);
  float* offset = reinterpret_cast<float*>(args.scratch) + kTokenBlock * n_blocks;
  for (int64_t first = 0; first < args.m; first += kTokenBlock) {
    const int n = static_cast<int>(args.m - first < kTokenBlock ? args.m - first : kTokenBlock);
    Prepare<kMin>(args.a_scale + first * n_blocks, args.a_sum + first * n_blocks, n * n_blocks, start, offset);
    const Tokens t{args.a + first * args.k, args.a_scale + first * n_blocks, start, offset, args.k, n_blocks};
    ResidualList residuals{};
    if (n > 1) residuals = ListResiduals(args, 128, first, n, args.scratch + ListOffset(n_blocks));
    for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
      const uint8_t* panel = args.w + p * args.panel_bytes;
      const Output to(args, first, p * kPanelRows);
      if (n == 1) {
        RunOne<Bytes<kMin>>(panel, t, ResidualsBegin(args, first), ResidualsEnd(args, first), to);
      } else {
        SumResiduals<Bytes<kMin>>(panel, residuals, n_blocks, n, sums);
        if (n > 2 * kTile) RunTiles<Bytes<kMin>, Fetch::kNextPanel>(panel, n, t, sums, to, NextPanelOf(args, p));
        else RunTiles<Bytes<kMin>, Fetch::kThisPanel>(panel, n, t, sums, to, NextPanelOf(args, p));
      }
    }
  }
}

}  // namespace

void MatMulQ8Avx512Vnni(const MatMulArgs& args) { MatMul<false>(args); }
void MatMulQ8MinAvx512Vnni(const MatMulArgs& args) { MatMul<true>(args); }

}  // namespace slm::kernels
