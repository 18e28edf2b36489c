// 4-bit matmul for AVX-512 VNNI: one register tile of 1 to 6 tokens x 32 rows serves decode (M = 1), verification and prefill.
//
// A line of 64 nibble bytes feeds two VPDPBUSD operands (u8 weights, s8 activations broadcast from memory), so nothing is
// shuffled. The tile unpacks nibbles as it goes: an AND and a shift per line hide beside the 6 to 24 dots that use it. With 96
// dots and 24 float operations of the same ports per block of 32 K the ceiling is 80 % of the VNNI peak (73 % with minimums, 12 operations
// more), and 77 % (70 %) was measured on Zen 4. Lost there: spreading a panel to bytes first (593 GOP/s instead of 645 at 256 tokens),
// copying the tokens of a tile into one stream (the tile gains 1 %, the copy costs more), dots by VPMADDUBSW beside VPDPBUSD (every
// multiplication runs on the same two ports). Exactness: integer dots are exact (|sum| <= 32 * 15 * 128), the float order is that of
// kernels/packed/contract.h.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/matmul_q4/contract.h"
#include "kernels/packed/residual.h"
#include "kernels/packed/tile_zmm.h"

namespace slm::kernels {
namespace {

constexpr int kCodeBytes = 8 * kLine;
template <bool kMin>
constexpr int kBlockBytes = kCodeBytes + (kMin ? 2 : 1) * kLine;

// One block times kM columns x. Up to two the high nibbles are used in place (as 16 q, still a legal u8) in accumulators of
// their own and divided by 16 once a block; from three on those registers are worth more than the shift. fetch(c) is called beside the
// lines of each c.
template <bool kMin, int kM, class Columns, class F>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* p, const Columns& x, __m512 (*acc)[2], const F& fetch) {
  constexpr bool kInPlace = kM <= 2;
  const __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8(static_cast<char>(0xf0));
  __m512i dot[kM][2], dot16[kInPlace ? kM : 1][2];
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) {
    dot[i][0] = dot[i][1] = kMin ? _mm512_setzero_si512() : _mm512_set1_epi32(x.Start(i));
    if (kInPlace) dot16[i][0] = dot16[i][1] = _mm512_setzero_si512();
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i w0 = _mm512_load_si512(p + c * 2 * kLine), w1 = _mm512_load_si512(p + (c * 2 + 1) * kLine);
    fetch(c);
    const __m512i l0 = _mm512_and_si512(w0, low), l1 = _mm512_and_si512(w1, low);
#pragma GCC unroll 6
    for (int i = 0; i < kM; ++i) {
      const __m512i v = Broadcast4(x.Codes(i) + c * 8);
      dot[i][0] = _mm512_dpbusd_epi32(dot[i][0], l0, v);
      dot[i][1] = _mm512_dpbusd_epi32(dot[i][1], l1, v);
    }
    const __m512i h0 = kInPlace ? _mm512_and_si512(w0, high) : _mm512_and_si512(_mm512_srli_epi16(w0, 4), low);
    const __m512i h1 = kInPlace ? _mm512_and_si512(w1, high) : _mm512_and_si512(_mm512_srli_epi16(w1, 4), low);
#pragma GCC unroll 6
    for (int i = 0; i < kM; ++i) {
      const __m512i v = Broadcast4(x.Codes(i) + c * 8 + 4);
      __m512i(&d)[2] = kInPlace ? dot16[kInPlace ? i : 0] : dot[i];
      d[0] = _mm512_dpbusd_epi32(d[0], h0, v);
      d[1] = _mm512_dpbusd_epi32(d[1], h1, v);
    }
  }
  const __m512 s0 = Halfs(p + kCodeBytes), s1 = Halfs(p + kCodeBytes + 32);
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) {
    if (kInPlace)
      for (int g = 0; g < 2; ++g) dot[i][g] = _mm512_add_epi32(dot[i][g], _mm512_srai_epi32(dot16[kInPlace ? i : 0][g], 4));
    const __m512 scale = _mm512_set1_ps(x.Scale(i));
    acc[i][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][0]), _mm512_mul_ps(scale, s0), acc[i][0]);
    acc[i][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][1]), _mm512_mul_ps(scale, s1), acc[i][1]);
  }
  if (!kMin) return;
  const __m512 m0 = Halfs(p + kCodeBytes + kLine), m1 = Halfs(p + kCodeBytes + kLine + 32);
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) {
    const __m512 offset = _mm512_set1_ps(x.Offset(i));
    acc[i][0] = _mm512_fmadd_ps(m0, offset, acc[i][0]);
    acc[i][1] = _mm512_fmadd_ps(m1, offset, acc[i][1]);
  }
}

// Adds the products of one block with the kM residual blocks from e on to their tokens' sums.
template <bool kMin, int kM>
[[gnu::always_inline]] inline void AddResiduals(const uint8_t* p, const ResidualEntry* e, float* sums) {
  __m512 acc[kM][2];
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 2; ++g) acc[i][g] = _mm512_load_ps(sums + e[i].token * kPanelRows + g * 16);
  AddBlock<kMin, kM>(p, EntryColumns{e}, acc, [](int) {});
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 2; ++g) _mm512_store_ps(sums + e[i].token * kPanelRows + g * 16, acc[i][g]);
}

// Sets the sums of n tokens in one panel to what their residual blocks give.
template <bool kMin>
[[gnu::noinline]] void SumResiduals(const uint8_t* panel, const ResidualList& list, int64_t n_blocks, int n, float* sums) {
  for (int i = 0; i < n * kPanelRows; i += 16) _mm512_store_ps(sums + i, _mm512_setzero_ps());
  for (int64_t b = 0; b < n_blocks; ++b) {
    const ResidualEntry *e = list.entries + list.begin[b], *end = list.entries + list.begin[b + 1];
    const uint8_t* p = panel + b * kBlockBytes<kMin>;
    for (; end - e >= 2; e += 2) AddResiduals<kMin, 2>(p, e, sums);
    if (e != end) AddResiduals<kMin, 1>(p, e, sums);
  }
}

// One panel times kM tokens, the first of them `token` of the output, beside what their residuals gave (sums).
template <bool kMin, int kM, Fetch kFetch>
void RunTile(const uint8_t* p, const Tokens& t, int token, const float* sums, const Output& to, const uint8_t* next) {
  __m512 acc[kM][2];
  for (int i = 0; i < kM; ++i) {
    acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    to.Fetch(token + i);
  }
  const int8_t* a = t.a;
  for (int64_t b = 0; b < t.n_blocks; ++b) {
    AddBlock<kMin, kM>(p, TokenColumns{t, a, b}, acc, [=](int c) [[gnu::always_inline]] {
      if (kFetch == Fetch::kNextPanel) FetchNext(next + c * kLine);
      else FetchAhead<kM>(p + c * 2 * kLine);
    });
    p += kBlockBytes<kMin>;
    a += kBlockK;
    next += kNextLines * kLine;
  }
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 2; ++g) to.Store(token + i, g, _mm512_add_ps(acc[i][g], _mm512_load_ps(sums + (token + i) * kPanelRows + g * 16)));
}

// One panel times a token alone, with its residuals.
template <bool kMin>
void RunOne(const uint8_t* p, const Tokens& t, const ResidualBlock* r, const ResidualBlock* end, const Output& to) {
  __m512 acc[2][2];  // of the token, of its residuals
  for (int g = 0; g < 2; ++g) acc[0][g] = acc[1][g] = _mm512_setzero_ps();
  const int8_t* a = t.a;
  int64_t next = r != end ? r->block : -1;
  for (int64_t b = 0; b < t.n_blocks; ++b) {
    const auto fetch = [=](int c) [[gnu::always_inline]] { FetchAhead<1>(p + c * 2 * kLine); };
    if (b == next) {
      AddBlock<kMin, 2>(p, ResidualColumns{{t, a, b}, EntryOf(*r, kMin ? 0 : 8, 0)}, acc, fetch);
      next = ++r != end ? r->block : -1;
    } else {
      AddBlock<kMin, 1>(p, TokenColumns{t, a, b}, acc, fetch);
    }
    p += kBlockBytes<kMin>;
    a += kBlockK;
  }
  for (int g = 0; g < 2; ++g) to.Store(0, g, _mm512_add_ps(acc[0][g], acc[1][g]));
}

// n >= 2 tokens. (TileTokens never leaves one over.)
template <bool kMin, Fetch kFetch>
void RunTiles(const uint8_t* panel, int n, Tokens t, const float* sums, const Output& to, NextPanel ahead) {
  for (int done = 0; done < n;) {
    const int tile = TileTokens(n - done, kTile);
    const uint8_t* next = ahead.Take(t.n_blocks);
    switch (tile) {
      case 2: RunTile<kMin, 2, kFetch>(panel, t, done, sums, to, next); break;
      case 3: RunTile<kMin, 3, kFetch>(panel, t, done, sums, to, next); break;
      case 4: RunTile<kMin, 4, kFetch>(panel, t, done, sums, to, next); break;
      case 5: RunTile<kMin, 5, kFetch>(panel, t, done, sums, to, next); break;
      default: RunTile<kMin, 6, kFetch>(panel, t, done, sums, to, next); break;
    }
    done += tile;
    t.a += tile * t.k;
    t.scale += tile * t.n_blocks;
    t.start += tile * t.n_blocks;
    t.offset += tile * t.n_blocks;
  }
}

// Per token and block, once for all panels: what the tile would otherwise recompute per panel. n values, a multiple of 2.
template <bool kMin>
void Prepare(const float* scale, const int32_t* sum, int64_t n, uint8_t* scratch) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 some = static_cast<__mmask16>(n - i >= 16 ? 0xffff : (1 << (n - i)) - 1);
    const __m512i s = _mm512_maskz_loadu_epi32(some, sum + i);
    if (kMin) _mm512_store_ps(scratch + i * 4, _mm512_mul_ps(_mm512_maskz_loadu_ps(some, scale + i), _mm512_cvtepi32_ps(s)));
    else _mm512_store_si512(scratch + i * 4, _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(s, 3)));
  }
}

// Tokens are taken kTokenBlock at a time, so that their activations stay in L2 while the panels stream by.
template <bool kMin>
void MatMul(const MatMulArgs& args) {
  alignas(kLine) float sums[kTokenBlock * kPanelRows];
  const int64_t n_blocks = args.k / kBlockK;
  for (int64_t first = 0; first < args.m; first += kTokenBlock) {
    const int n = static_cast<int>(args.m - first < kTokenBlock ? args.m - first : kTokenBlock);
    Prepare<kMin>(args.a_scale + first * n_blocks, args.a_sum + first * n_blocks, n * n_blocks, args.scratch);
    const Tokens t{args.a + first * args.k,
                   args.a_scale + first * n_blocks,
                   reinterpret_cast<const int32_t*>(args.scratch),
                   reinterpret_cast<const float*>(args.scratch),
                   args.k,
                   n_blocks};
    ResidualList residuals{};
    if (n > 1) residuals = ListResiduals(args, kMin ? 0 : 8, first, n, args.scratch + ListOffset(n_blocks));
    for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
      const uint8_t* panel = args.w + p * args.panel_bytes;
      const Output to(args, first, p * kPanelRows);
      if (n == 1) {
        RunOne<kMin>(panel, t, ResidualsBegin(args, first), ResidualsEnd(args, first), to);
      } else {
        SumResiduals<kMin>(panel, residuals, n_blocks, n, sums);
        if (n > 2 * kTile) RunTiles<kMin, Fetch::kNextPanel>(panel, n, t, sums, to, NextPanelOf(args, p));
        else RunTiles<kMin, Fetch::kThisPanel>(panel, n, t, sums, to, NextPanelOf(args, p));
      }
    }
  }
}

}  // namespace

void MatMulQ4Avx512Vnni(const MatMulArgs& args) { MatMul<false>(args); }
void MatMulQ4MinAvx512Vnni(const MatMulArgs& args) { MatMul<true>(args); }

}  // namespace slm::kernels
