// Matmul of codes in planes for AVX2: blocks are spread to bytes and f32 scales, then multiplied by VPMADDUBSW as unsigned codes.
//
// Bound: one result is a sum of two products of a code <= top and a in -128..127, at most 256 * top: 3840, 7936 or 16128 for 4, 5
// or 6 bits, so 8, 4 or 2 of them add up inside 16 bits before VPMADDWD widens the sum. Up to four tokens use each block at once
// from a buffer in L1; more share a panel spread in scratch. Float order: kernels/packed/contract.h.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/matmul_planes/contract.h"
#include "kernels/matmul_planes/spread_avx2.h"
#include "kernels/packed/position.h"

namespace slm::kernels {
namespace {

// A block of a spread panel.
template <PackedKind kKind>
struct Spread {
  static constexpr bool kMin = HasMin(kKind);
  static constexpr int kZero = ZeroPoint(kKind), kParts = kKind == PackedKind::kQ6K ? 2 : 1, kBlockBytes = kSpreadLines * kLine;
  static constexpr int kGroups = 8 / kParts;            // of 4 K, in a part
  static constexpr int kNarrow = 8 >> HighBits(kKind);  // groups that add up in 16 bits
  static __m256 Scale(const uint8_t* p, int part, int v) { return _mm256_load_ps(reinterpret_cast<const float*>(p + part * 128 + v * 32)); }
  static __m256 Min(const uint8_t* p, int v) { return _mm256_load_ps(reinterpret_cast<const float*>(p + 128 + v * 32)); }

  template <int kM>
  [[gnu::always_inline]] static void Dot(const uint8_t* p, const Tokens& t, const int8_t* a, int64_t b, int g, int part,
                                         __m256i (&dot)[kM][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int i = 0; i < kM; ++i)
      for (int h = 0; h < 2; ++h)
        dot[i][h] = kZero == 0 ? _mm256_setzero_si256() : _mm256_set1_epi32(t.start[(i * t.n_blocks + b) * kParts + part]);
#pragma GCC unroll 2
    for (int first = 0; first < kGroups; first += kNarrow) {
      __m256i sum16[kM][2];
      for (int i = 0; i < kM; ++i) sum16[i][0] = sum16[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int n = 0; n < kNarrow; ++n) {
        const int c = part * kGroups + first + n;
        const uint8_t* line = p + (c * 2 + g) * kLine;
        const __m256i w0 = Codes(line), w1 = Codes(line + 32);
#pragma GCC unroll 4
        for (int i = 0; i < kM; ++i) {
          const __m256i x = Broadcast4(a + i * t.k + c * 4);
          sum16[i][0] = _mm256_add_epi16(sum16[i][0], _mm256_maddubs_epi16(w0, x));
          sum16[i][1] = _mm256_add_epi16(sum16[i][1], _mm256_maddubs_epi16(w1, x));
          Pin(sum16[i][0]);
          Pin(sum16[i][1]);
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kM; ++i)
        for (int h = 0; h < 2; ++h) dot[i][h] = _mm256_add_epi32(dot[i][h], _mm256_madd_epi16(sum16[i][h], ones));
    }
  }
  static __m256i DotOne(const __m256i (&w)[8], const int8_t* q, int part, int32_t start) {
    __m256i dot = _mm256_set1_epi32(start);
    for (int first = part * kGroups; first < (part + 1) * kGroups; first += kNarrow) {
      __m256i sum16 = _mm256_setzero_si256();
      for (int c = first; c < first + kNarrow; ++c) sum16 = _mm256_add_epi16(sum16, _mm256_maddubs_epi16(w[c], Broadcast4(q + c * 4)));
      dot = _mm256_add_epi32(dot, _mm256_madd_epi16(sum16, _mm256_set1_epi16(1)));
    }
    return dot;
  }
};

void StoreFloats(uint8_t* p, __m256 v) { _mm256_store_ps(reinterpret_cast<float*>(p), v); }
__m128i Eight(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }

// Scales and minima of the block at p, whose super-block begins at `super`.
template <PackedKind kKind>
[[gnu::always_inline]] inline void SpreadScales(const uint8_t* p, const uint8_t* super, uint8_t* to) {
  for (int v = 0; v < 4; ++v) {
    if constexpr (LinesOf(kKind).super == 0) {
      StoreFloats(to + v * 32, Halfs(p + v * 16));
      if (HasMin(kKind)) StoreFloats(to + 128 + v * 32, Halfs(p + kLine + v * 16));
    } else {
      const __m256 d = Halfs(super + v * 16);
      for (int part = 0; part < Spread<kKind>::kParts; ++part) {
        const __m256i s = _mm256_cvtepi8_epi32(Eight(p + part * kPanelRows + v * 8));
        StoreFloats(to + part * 128 + v * 32, _mm256_mul_ps(d, _mm256_cvtepi32_ps(s)));
      }
      if (!HasMin(kKind)) continue;
      const __m256i m = _mm256_cvtepu8_epi32(Eight(p + kPanelRows + v * 8));
      StoreFloats(to + 128 + v * 32, _mm256_mul_ps(Halfs(super + kLine + v * 16), _mm256_cvtepi32_ps(m)));
    }
  }
}

// The bits above the nibble of K group c, moved to bit 4; the other bits are noise.
template <PackedKind kKind>
[[gnu::always_inline]] inline __m256i HighOf(const uint8_t* lines, int c, int v) {
  const __m256i line = Codes(lines + c * HighBits(kKind) / 8 * 2 * kLine + v * 32);
  const int at = c * HighBits(kKind) % 8;
  return at <= 4 ? _mm256_slli_epi16(line, 4 - at) : _mm256_srli_epi16(line, at - 4);
}

// The block at p as bytes and f32 scales.
template <PackedKind kKind>
[[gnu::always_inline]] inline void SpreadBlock(const uint8_t* p, const uint8_t* super, uint8_t* to) {
  constexpr int kHigh = HighBits(kKind);
  const __m256i low = _mm256_set1_epi8(0x0f), high = _mm256_set1_epi8(static_cast<char>(((1 << kHigh) - 1) << 4));
  const uint8_t* planes = p + 8 * kLine;
  for (int line = 0; line < BlockBytes(kKind) / kLine; line += 2) FetchAhead<kTile>(p + line * kLine);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v)
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      const __m256i line = Codes(p + c / 2 * 2 * kLine + v * 32);
      __m256i codes = _mm256_and_si256(c % 2 ? _mm256_srli_epi16(line, 4) : line, low);
      if (kHigh > 0) codes = _mm256_or_si256(codes, _mm256_and_si256(HighOf<kKind>(planes, c, v), high));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + c * 2 * kLine + v * 32), codes);
    }
  SpreadScales<kKind>(p + (8 + LinesOf(kKind).high) * kLine, super, to + kCodeBytes);
}

// Calls f(block number, bytes, bytes of its super-block) for every block of a panel.
template <PackedKind kKind, class Each>
[[gnu::always_inline]] inline void ForBlocks(const uint8_t* p, int64_t n_blocks, const Each& each) {
  for (int64_t b = 0; b < n_blocks;) {
    const uint8_t* super = p;
    p += LinesOf(kKind).super * kLine;
    const int64_t end = LinesOf(kKind).super > 0 && n_blocks - b > kSuperBlocks ? b + kSuperBlocks : n_blocks;
    for (; b < end; ++b, p += BlockBytes(kKind)) each(b, p, super);
  }
}

// One panel times up to a tile of tokens, with their residuals, each block used as it is put together.
template <PackedKind kKind, int kM>
void RunFew(const uint8_t* panel, const Tokens& t, const ResidualList& list, float* sums) {
  using F = Spread<kKind>;
  alignas(kLine) uint8_t block[F::kBlockBytes];
  __m256 acc[kM][4];
  for (int i = 0; i < kM; ++i)
    for (int v = 0; v < 4; ++v) {
      acc[i][v] = _mm256_setzero_ps();
      _mm256_store_ps(sums + i * kPanelRows + v * 8, _mm256_setzero_ps());
    }
  ForBlocks<kKind>(panel, t.n_blocks, [&](int64_t b, const uint8_t* p, const uint8_t* super) [[gnu::always_inline]] {
    SpreadBlock<kKind>(p, super, block);
    AddBlock<F, kM>(block, t, t.a + b * kBlockK, b, acc);
    const ResidualEntry *first = list.entries + list.begin[b], *end = list.entries + list.begin[b + 1];
    if (first != end) AddResiduals<F>(block, first, end, sums);
  });
  for (int i = 0; i < kM; ++i)
    for (int v = 0; v < 4; ++v) {
      float* sum = sums + i * kPanelRows + v * 8;
      _mm256_store_ps(sum, _mm256_add_ps(acc[i][v], _mm256_load_ps(sum)));
    }
}

template <PackedKind kKind>
[[gnu::noinline]] void SpreadPanel(const uint8_t* panel, int64_t n_blocks, uint8_t* to) {
  ForBlocks<kKind>(panel, n_blocks, [&](int64_t b, const uint8_t* p, const uint8_t* super) [[gnu::always_inline]] {
    SpreadBlock<kKind>(p, super, to + b * Spread<kKind>::kBlockBytes);
  });
}

// Per token and block, once for all panels: what the tile would otherwise recompute per panel.
template <class F>
void Prepare(const int8_t* a, const float* scale, const int32_t* sum, int64_t n, int32_t* start, float* offset) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t all = -F::kZero * sum[i];
    start[i * F::kParts] = F::kParts == 2 ? -F::kZero * HalfSum(a + i * kBlockK) : all;
    if (F::kParts == 2) start[i * 2 + 1] = all - start[i * 2];
    if (F::kMin) offset[i] = scale[i] * static_cast<float>(sum[i]);
  }
}

// Tokens are taken kTokenBlock at a time, so that their activations stay in L2 while the panels stream by.
template <PackedKind kKind>
void MatMul(const MatMulArgs& args) {
  using F = Spread<kKind>;
  alignas(kLine) float sums[kTokenBlock * kPanelRows];
  const int64_t n_blocks = args.k / kBlockK;
  int32_t* start = reinterpret_cast<int32_t*>(args.scratch);
  float* offset = reinterpret_cast<float*>(args.scratch) + kTokenBlock * n_blocks;  // kinds with two parts have none
  uint8_t* spread = args.scratch + SpreadOffset(n_blocks);
  for (int64_t first = 0; first < args.m; first += kTokenBlock) {
    const int n = static_cast<int>(args.m - first < kTokenBlock ? args.m - first : kTokenBlock);
    const int64_t begin = first * n_blocks;
    Prepare<F>(args.a + first * args.k, args.a_scale + begin, args.a_sum + begin, n * n_blocks, start, offset);
    const Tokens t{args.a + first * args.k, args.a_scale + begin, start, offset, args.k, n_blocks};
    const ResidualList residuals = ListResiduals(args, F::kZero, first, n, args.scratch + ListOffset(n_blocks));
    for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
      const uint8_t* panel = args.w + p * args.panel_bytes;
      switch (n) {
        case 1: RunFew<kKind, 1>(panel, t, residuals, sums); break;
        case 2: RunFew<kKind, 2>(panel, t, residuals, sums); break;
        case 3: RunFew<kKind, 3>(panel, t, residuals, sums); break;
        case kTile: RunFew<kKind, kTile>(panel, t, residuals, sums); break;
        default:
          SpreadPanel<kKind>(panel, n_blocks, spread);
          SumResiduals<F>(spread, residuals, n_blocks, n, sums);
          RunTiles<F>(spread, n, t, sums);
      }
      StoreSums(args, p * kPanelRows, first, n, sums);
    }
  }
}

}  // namespace

void MatMulQ5Avx2(const MatMulArgs& args) { MatMul<PackedKind::kQ5>(args); }
void MatMulQ5MinAvx2(const MatMulArgs& args) { MatMul<PackedKind::kQ5Min>(args); }
void MatMulQ4KAvx2(const MatMulArgs& args) { MatMul<PackedKind::kQ4K>(args); }
void MatMulQ5KAvx2(const MatMulArgs& args) { MatMul<PackedKind::kQ5K>(args); }
void MatMulQ6KAvx2(const MatMulArgs& args) { MatMul<PackedKind::kQ6K>(args); }

}  // namespace slm::kernels
