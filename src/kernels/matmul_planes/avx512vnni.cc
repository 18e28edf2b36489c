// Matmul of codes in planes for AVX-512 VNNI.
//
// Up to four tokens (decode, verification): a block is put together in registers from its nibbles and the bits above, two or three
// instructions a line of 64 codes, and used at once. More tokens share a panel that was spread to bytes and f32 scales in
// scratch (L2) once, and the tile of kernels/packed/bytes_avx512vnni.h runs over it at the speed of 8-bit weights. Spreading first
// costs two tokens 1.5 times the time from L2 and 2.5 times past the caches.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/matmul_planes/contract.h"
#include "kernels/packed/bytes_avx512vnni.h"
#include "kernels/packed/position.h"

namespace slm::kernels {
namespace {

constexpr int kFew = 4;  // tokens whose sums fit beside a block in registers

// A block of a spread panel.
template <PackedKind kKind>
struct Spread {
  static constexpr bool kMin = HasMin(kKind);
  static constexpr int kZero = ZeroPoint(kKind), kParts = kKind == PackedKind::kQ6K ? 2 : 1, kBlockBytes = kSpreadLines * kLine;
  static __m512 Scale(const uint8_t* p, int part, int g) { return _mm512_load_ps(p + (part * 2 + g) * kLine); }
  static __m512 Min(const uint8_t* p, int g) { return _mm512_load_ps(p + (2 + g) * kLine); }
};

// d and -dmin of a super-block, by row group.
struct Factors {
  __m512 d[2], low[2];
};
template <PackedKind kKind>
[[gnu::always_inline]] inline void LoadFactors(const uint8_t* p, Factors& f) {
  for (int g = 0; g < 2; ++g) {
    f.d[g] = Halfs(p + g * 32);
    f.low[g] = HasMin(kKind) ? Halfs(p + kLine + g * 32) : f.d[g];
  }
}

template <PackedKind kKind>
[[gnu::always_inline]] inline void LoadScales(const uint8_t* p, const Factors& f, Block<Spread<kKind>>& b) {
  for (int g = 0; g < 2; ++g) {
    if constexpr (LinesOf(kKind).super == 0) {
      b.s[0][g] = Halfs(p + g * 32);
      b.low[g] = HasMin(kKind) ? Halfs(p + kLine + g * 32) : b.s[0][g];
    } else {
      for (int part = 0; part < Spread<kKind>::kParts; ++part) {
        const __m128i s = _mm_load_si128(reinterpret_cast<const __m128i*>(p + part * kPanelRows + g * 16));
        b.s[part][g] = _mm512_mul_ps(f.d[g], _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(s)));
      }
      const __m128i m = _mm_load_si128(reinterpret_cast<const __m128i*>(p + kPanelRows + g * 16));
      b.low[g] = HasMin(kKind) ? _mm512_mul_ps(f.low[g], _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(m))) : b.s[0][g];
    }
  }
}

// The bits above the nibble of K group c, moved to bit 4; the other bits are noise.
template <PackedKind kKind>
[[gnu::always_inline]] inline __m512i HighOf(const uint8_t* lines, int c, int g) {
  const __m512i line = _mm512_load_si512(lines + (c * HighBits(kKind) / 8 * 2 + g) * kLine);
  const int at = c * HighBits(kKind) % 8;
  return at <= 4 ? _mm512_slli_epi16(line, static_cast<unsigned>(4 - at)) : _mm512_srli_epi16(line, static_cast<unsigned>(at - 4));
}

// Puts the block at p together. kFetch as in FetchAhead.
template <PackedKind kKind, int kFetch>
[[gnu::always_inline]] inline Block<Spread<kKind>> LoadPlanes(const uint8_t* p, const Factors& f) {
  constexpr int kHigh = HighBits(kKind);
  const __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8(static_cast<char>(((1 << kHigh) - 1) << 4));
  const uint8_t* planes = p + 8 * kLine;
  Block<Spread<kKind>> b;
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) {
    asm volatile("" ::: "memory");  // lines are read in the order of memory, which the hardware's prefetch follows
    if (c * 2 < BlockBytes(kKind) / kLine) FetchAhead<kFetch>(p + c * 2 * kLine);
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const __m512i line = _mm512_load_si512(p + (c / 2 * 2 + g) * kLine);
      const __m512i nibbles = _mm512_and_si512(c % 2 ? _mm512_srli_epi16(line, 4) : line, low);
      // 0xf8: nibbles | (bits & high)
      b.w[c][g] = kHigh == 0 ? nibbles : _mm512_ternarylogic_epi64(nibbles, HighOf<kKind>(planes, c, g), high, 0xf8);
    }
  }
  LoadScales<kKind>(p + ScaleLine(kKind, 0) - BlockOffset(kKind, 0), f, b);
  return b;
}

// Calls f(block number, bytes, factors) for every block of a panel.
template <PackedKind kKind, class Each>
[[gnu::always_inline]] inline void ForBlocks(const uint8_t* p, int64_t n_blocks, const Each& each) {
  Factors f{};
  for (int64_t b = 0; b < n_blocks;) {
    if (LinesOf(kKind).super > 0) LoadFactors<kKind>(p, f);
    p += LinesOf(kKind).super * kLine;
    const int64_t end = LinesOf(kKind).super > 0 && n_blocks - b > kSuperBlocks ? b + kSuperBlocks : n_blocks;
    for (; b < end; ++b, p += BlockBytes(kKind)) each(b, p, f);
  }
}

// One panel times up to kFew tokens, with their residuals, each block used as it is put together.
template <PackedKind kKind, int kM>
void RunFew(const uint8_t* panel, const Tokens& t, const ResidualList& list, float* sums, const Output& to) {
  using F = Spread<kKind>;
  __m512 acc[kM][2];
#pragma GCC unroll 4
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 2; ++g) {
      acc[i][g] = _mm512_setzero_ps();
      _mm512_store_ps(sums + i * kPanelRows + g * 16, _mm512_setzero_ps());
    }
  ForBlocks<kKind>(panel, t.n_blocks, [&](int64_t b, const uint8_t* p, const Factors& f) [[gnu::always_inline]] {
    const Block<F> block = LoadPlanes < kKind, kM == 1 ? 1 : kFew > (p, f);
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) block.Add(ColumnOf<F>(t, i, b), acc[i]);
    AddResiduals(block, list.entries + list.begin[b], list.entries + list.begin[b + 1], sums);
  });
#pragma GCC unroll 4
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 2; ++g) to.Store(i, g, _mm512_add_ps(acc[i][g], _mm512_load_ps(sums + i * kPanelRows + g * 16)));
}

template <PackedKind kKind>
[[gnu::noinline]] void SpreadPanel(const uint8_t* panel, int64_t n_blocks, uint8_t* to) {
  using F = Spread<kKind>;
  ForBlocks<kKind>(panel, n_blocks, [&](int64_t, const uint8_t* p, const Factors& f) [[gnu::always_inline]] {
    const Block<F> b = LoadPlanes<kKind, kFew>(p, f);
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c)
      for (int g = 0; g < 2; ++g) _mm512_store_si512(to + (c * 2 + g) * kLine, b.w[c][g]);
    for (int g = 0; g < 2; ++g) {
      for (int part = 0; part < F::kParts; ++part) _mm512_store_ps(to + kCodeBytes + (part * 2 + g) * kLine, b.s[part][g]);
      if (F::kMin) _mm512_store_ps(to + kCodeBytes + (2 + g) * kLine, b.low[g]);
    }
    to += F::kBlockBytes;
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
      const Output to(args, first, p * kPanelRows);
      switch (n) {
        case 1: RunFew<kKind, 1>(panel, t, residuals, sums, to); break;
        case 2: RunFew<kKind, 2>(panel, t, residuals, sums, to); break;
        case 3: RunFew<kKind, 3>(panel, t, residuals, sums, to); break;
        case kFew: RunFew<kKind, kFew>(panel, t, residuals, sums, to); break;
        default:
          SpreadPanel<kKind>(panel, n_blocks, spread);
          SumResiduals<F>(spread, residuals, n_blocks, n, sums);
          RunTiles<F, Fetch::kNextPanel>(spread, n, t, sums, to, NextPanelOf(args, p));
      }
    }
  }
}

}  // namespace

void MatMulQ5Avx512Vnni(const MatMulArgs& args) { MatMul<PackedKind::kQ5>(args); }
void MatMulQ5MinAvx512Vnni(const MatMulArgs& args) { MatMul<PackedKind::kQ5Min>(args); }
void MatMulQ4KAvx512Vnni(const MatMulArgs& args) { MatMul<PackedKind::kQ4K>(args); }
void MatMulQ5KAvx512Vnni(const MatMulArgs& args) { MatMul<PackedKind::kQ5K>(args); }
void MatMulQ6KAvx512Vnni(const MatMulArgs& args) { MatMul<PackedKind::kQ6K>(args); }

}  // namespace slm::kernels
