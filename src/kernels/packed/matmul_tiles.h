// The wide product: quantized weights times many tokens of bf16 activations, on AMX tiles. Four or more times the rate of the int8
// product with its sums per 32 K, and nothing of the activations is lost to int8.
//
// Why bf16: the int8 tiles are twice as fast again, but only with one scale per 512 or more K on both sides (a tile's sums must leave the
// tile before another scale applies, which costs as much as four products). Weights with a scale per 32 K would be rounded again
// to 8 bits per row, and activations with outliers lose percents. bf16 rounds either side by at most 2^-8.
//
// Per panel of 32 rows: a chunk of up to 576 K of weights is unpacked to bf16 B tiles (36 KB, stays in L1); all tokens of a token block
// stream past it, 32 at a time: C = 2 x 2 tiles of 16 tokens x 16 rows. Sums live in scratch until K is done, so that bias and
// residual are added to whole products, as everywhere. Results depend on nothing but the token's values and K. The instruction
// sequence and the sizes are measured on Intel AMX servers: 2 to 2.8 TOPS on two cores.
// Included by ISA files only; everything has internal linkage.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/amx_tiles.h"
#include "kernels/packed/contract.h"
#include "kernels/packed/position.h"
#include "kernels/packed/tiles.h"

namespace slm::kernels {
namespace {

// A block of tokens has at most 1 MB of activations, half of L2, up to this K; beyond it half as many tokens, no fewer: unpacking a
// panel costs as much as multiplying 120 tokens.
constexpr int kWidestOfFullBlock = 2048;
static_assert(kTileK == kBlockK && WideChunkBytes(1) == 2 * kTileBytes);

// Two f32 vectors as 16 pairs of bf16, first value in the lower half. Rounds halves away from zero: one add, where ties to even
// take three. No value may be a NaN whose payload is all ones (Clean).
inline __m512i Pairs(__m512 first, __m512 second) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i a = _mm512_add_epi32(_mm512_castps_si512(first), half), b = _mm512_add_epi32(_mm512_castps_si512(second), half);
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(a, 16), b);
}

// 16 halfs as f32, every NaN the canonical one.
inline __m512 Clean(const uint8_t* halfs) {
  const __m512 v = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halfs)));
  return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

// One block of 32 K of 32 rows -> two B tiles (rows 0..15, 16..31): pair p of K group c is tile row 4 c + p, in the order of tiles.h.
template <bool kMin>
struct NibbleTiles {
  static constexpr int kCodeBytes = 8 * kLine, kBlockBytes = kCodeBytes + (kMin ? 2 : 1) * kLine;
  static void Unpack(const uint8_t* panel, int64_t number, uint8_t* tiles) {
    const uint8_t* block = panel + number * kBlockBytes;
    const __m512 low = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 code = kMin ? low : _mm512_sub_ps(low, _mm512_set1_ps(8));
    for (int g = 0; g < 2; ++g) {
      const __m512 scale = Clean(block + kCodeBytes + g * 32);
      const __m512 min = kMin ? Clean(block + kCodeBytes + kLine + g * 32) : _mm512_setzero_ps();
      for (int c = 0; c < 4; ++c) {
        const uint8_t* line = block + (c * 2 + g) * kLine;
        __builtin_prefetch(line + 4096, 0, 3);
        const __m512i w = _mm512_load_si512(line);
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {  // the table lookup reads the low 4 bits of each lane only
          const __m512 first = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 4 * p), code);
          const __m512 second = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 4 * p + 16), code);
          _mm512_store_si512(tiles + g * kTileBytes + (c * 4 + p) * kLine,
                             kMin ? Pairs(_mm512_fmadd_ps(first, scale, min), _mm512_fmadd_ps(second, scale, min))
                                  : Pairs(_mm512_mul_ps(first, scale), _mm512_mul_ps(second, scale)));
        }
      }
    }
  }
};
// 16 rows x 4 K of byte codes (K group c of a block) into two rows of a tile.
inline void StoreBytes(__m512i codes, __m512 scale, __m512 zero, int c, uint8_t* tile) {
  const __m512i byte = _mm512_set1_epi32(0xff);
#pragma GCC unroll 2
  for (int p = 0; p < 2; ++p) {
    const __m512 first = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(codes, static_cast<unsigned>(8 * p)), byte));
    const __m512 second = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(codes, static_cast<unsigned>(8 * p + 16)), byte));
    _mm512_store_si512(tile + (c / 2 * 4 + p * 2 + c % 2) * kLine,
                       Pairs(_mm512_fmadd_ps(first, scale, zero), _mm512_fmadd_ps(second, scale, zero)));
  }
}
template <bool kMin>
struct ByteTiles {
  static constexpr int kCodeBytes = 16 * kLine, kBlockBytes = kCodeBytes + (kMin ? 2 : 1) * kLine;
  static void Unpack(const uint8_t* panel, int64_t number, uint8_t* tiles) {
    const uint8_t* block = panel + number * kBlockBytes;
    for (int g = 0; g < 2; ++g) {
      const __m512 scale = Clean(block + kCodeBytes + g * 32);
      const __m512 min = kMin ? Clean(block + kCodeBytes + kLine + g * 32) : _mm512_setzero_ps();
      const __m512 zero = _mm512_fnmadd_ps(_mm512_set1_ps(128), scale, min);  // what code 0 means
      for (int c = 0; c < 8; ++c) {
        const uint8_t* line = block + (c * 2 + g) * kLine;
        __builtin_prefetch(line + 4096, 0, 3);
        StoreBytes(_mm512_load_si512(line), scale, zero, c, tiles + g * kTileBytes);
      }
    }
  }
};

// Codes in planes: the nibble lines and the lines of the bits above them, K-quants with integer scales times a super-block's factors.
template <PackedKind kKind>
struct PlaneTiles {
  // Bits above the nibble of K group c in their place, bit 4 and up.
  static __m512i High(const uint8_t* block, int c, int g) {
    constexpr int kBits = HighBits(kKind);
    if (kBits == 0) return _mm512_setzero_si512();
    const __m512i line = _mm512_load_si512(block + (CodeLines(kKind) + c * kBits / 8 * 2 + g) * kLine);
    const int at = c * kBits % 8;  // bits that cross into a neighbouring byte are masked off
    const __m512i moved =
        at <= 4 ? _mm512_slli_epi32(line, static_cast<unsigned>(4 - at)) : _mm512_srli_epi32(line, static_cast<unsigned>(at - 4));
    return _mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(((1 << kBits) - 1) << 4)));
  }
  static __m512i Codes(const uint8_t* block, int c, int g) {
    const __m512i line = _mm512_load_si512(block + (c / 2 * 2 + g) * kLine);
    const __m512i nibbles = _mm512_and_si512(c % 2 != 0 ? _mm512_srli_epi16(line, 4) : line, _mm512_set1_epi8(0x0f));
    return _mm512_or_si512(nibbles, High(block, c, g));
  }
  static __m512 SubScales(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static __m512 SubMins(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void Unpack(const uint8_t* panel, int64_t number, uint8_t* tiles) {
    constexpr bool kSuper = LinesOf(kKind).super > 0, kMin = HasMin(kKind);
    constexpr int kParts = kKind == PackedKind::kQ6K ? 2 : 1;
    const uint8_t *block = panel + BlockOffset(kKind, number), *scales = panel + ScaleLine(kKind, number);
    const uint8_t* factors = panel + SuperOffset(kKind, number);
    for (int g = 0; g < 2; ++g) {
      __m512 scale[2], zero[2], min = _mm512_setzero_ps();
      if (kMin)
        min =
            kSuper ? _mm512_mul_ps(Clean(factors + kLine + g * 32), SubMins(scales + kPanelRows + g * 16)) : Clean(scales + kLine + g * 32);
      for (int part = 0; part < kParts; ++part) {
        scale[part] =
            kSuper ? _mm512_mul_ps(Clean(factors + g * 32), SubScales(scales + part * kPanelRows + g * 16)) : Clean(scales + g * 32);
        zero[part] = _mm512_fnmadd_ps(_mm512_set1_ps(static_cast<float>(ZeroPoint(kKind))), scale[part], min);
      }
#pragma GCC unroll 8
      for (int c = 0; c < 8; ++c) {
        __builtin_prefetch(block + (c * 2 + g) * kLine + 4096, 0, 3);
        const int part = kParts == 2 ? c / 4 : 0;
        StoreBytes(Codes(block, c, g), scale[part], zero[part], c, tiles + g * kTileBytes);
      }
    }
  }
};

// Sums of 16 tokens x 32 rows: two tiles side by side.
constexpr int64_t kSumsStride = kPanelRows * 4;  // bytes
template <int kFirst, class Tiles>
void Start(Tiles& tiles, const float* sums, bool from_zero) {
  if (from_zero) {
    tiles.template Zero<kFirst>();
    tiles.template Zero<kFirst + 1>();
  } else {
    tiles.template LoadRows<kFirst>(sums, kSumsStride);
    tiles.template LoadRows<kFirst + 1>(sums + kTileRows, kSumsStride);
  }
}
template <int kFirst, class Tiles>
void Finish(Tiles& tiles, float* sums) {
  tiles.template StoreRows<kFirst>(sums, kSumsStride);
  tiles.template StoreRows<kFirst + 1>(sums + kTileRows, kSumsStride);
}

// `steps` x 32 K of 32 tokens (a, a2: their A tiles) or 16 (a2 null) times 32 rows (b), into or onto sums [32 or 16][32].
template <class Tiles>
void Multiply(Tiles& tiles, const uint8_t* a, const uint8_t* a2, const uint8_t* b, int steps, bool from_zero, float* sums) {
  float* sums2 = sums + kTileRows * kPanelRows;
  Start<0>(tiles, sums, from_zero);
  if (a2 == nullptr) {
    for (int s = 0; s < steps; ++s, a += kTileBytes, b += 2 * kTileBytes) {
      tiles.template LoadOnce<4>(a);
      tiles.template Load<6>(b);
      tiles.template Dot<0, 4, 6>();
      tiles.template Load<7>(b + kTileBytes);
      tiles.template Dot<1, 4, 7>();
    }
    return Finish<0>(tiles, sums);
  }
  Start<2>(tiles, sums2, from_zero);
  for (int s = 0; s < steps; ++s, a += kTileBytes, a2 += kTileBytes, b += 2 * kTileBytes) {
    tiles.template LoadOnce<4>(a);
    tiles.template Load<6>(b);
    tiles.template Dot<0, 4, 6>();
    tiles.template Load<7>(b + kTileBytes);
    tiles.template Dot<1, 4, 7>();
    tiles.template LoadOnce<5>(a2);
    tiles.template Dot<2, 5, 6>();
    tiles.template Dot<3, 5, 7>();
  }
  Finish<0>(tiles, sums);
  Finish<2>(tiles, sums2);
}

// The sums of tokens [begin, end) into the output, in the order of the other kernels: product + bias, then what out held.
inline void StoreSums(const MatMulArgs& args, int64_t row, int64_t begin, int64_t end, const float* sums) {
  for (int64_t t = begin; t < end; ++t, sums += kPanelRows)
    for (int g = 0; g < kPanelRows; g += 16) {
      float* out = args.out + t * args.out_stride + row + g;
      __m512 v = _mm512_load_ps(sums + g);
      if (args.bias != nullptr) v = _mm512_add_ps(v, _mm512_loadu_ps(args.bias + row + g));
      if (args.accumulate) v = _mm512_add_ps(_mm512_loadu_ps(out), v);
      _mm512_storeu_ps(out, v);
    }
}

template <class Weights, class Tiles>
void MatMulTiles(const MatMulArgs& args) {
  Tiles tiles;
  const uint8_t* a = reinterpret_cast<const uint8_t*>(args.tiles);
  const int64_t steps = args.k / kTileK, n_chunks = (steps + kWideChunk - 1) / kWideChunk;
  uint8_t* b = args.scratch;
  float* sums = reinterpret_cast<float*>(args.scratch + WideChunkBytes(steps));
  const int64_t block = args.k <= kWidestOfFullBlock ? kWideTokenBlock : kWideTokenBlock / 2;
  for (int64_t begin = 0; begin < args.m; begin += block) {
    const int64_t end = args.m - begin < block ? args.m : begin + block;
    for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
      const uint8_t* panel = args.w + p * args.panel_bytes;
      for (int64_t c = 0; c < n_chunks; ++c) {
        const int64_t step = steps * c / n_chunks, next = steps * (c + 1) / n_chunks;
        for (int64_t s = step; s < next; ++s) Weights::Unpack(panel, s, b + (s - step) * 2 * kTileBytes);
        for (int64_t t = begin; t < end; t += 2 * kTileRows) {
          const uint8_t* a1 = a + (t / kTileRows * steps + step) * kTileBytes;
          const uint8_t* a2 = t + kTileRows < end ? a1 + steps * kTileBytes : nullptr;
          Multiply(tiles, a1, a2, b, static_cast<int>(next - step), c == 0, sums + (t - begin) * kPanelRows);
        }
      }
      StoreSums(args, p * kPanelRows, begin, end, sums);
    }
  }
}

}  // namespace
}  // namespace slm::kernels
