// The eight tile registers of AMX as seven operations, and the same in C++ for tests on other machines. A kernel is written once,
// over either class.
//
// Own assembly because GCC 12's intrinsics hide what they touch: _tile_loadconfig names 8 of the 64 bytes it reads, so that -O3 drops
// the stores of the others and the first tile instruction faults; _tile_loadd and _tile_stored name no memory at all, so that stores
// to a buffer may move past them. Here every operand names all of its bytes, or memory as a whole. Registers are template
// arguments: 0..7. The compiler does not know these registers; nothing else in the program uses them.
// Source: Intel SDM volume 2, LDTILECFG, TILELOADD, TDPBF16PS. Included by ISA files only.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/tiles.h"

namespace slm::kernels {
namespace {

// LDTILECFG's operand, palette 1.
struct alignas(kLine) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// All eight registers as 16 rows of 64 bytes.
inline TileConfig FullTiles() {
  TileConfig config = {};
  config.palette = 1;
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = 64;
    config.rows[t] = kTileRows;
  }
  return config;
}

// Runs `text`, whose operand %0 is the configuration, all 64 bytes of it. A macro, so that a test can run another instruction that
// reads %0 and see whether the bytes were written by then.
#define SLM_WITH_TILE_CONFIG(text, config) asm volatile(text : : "m"(config))

class AmxTiles {
 public:
  AmxTiles() {
    const TileConfig config = FullTiles();
    SLM_WITH_TILE_CONFIG("ldtilecfg %0", config);
  }
  ~AmxTiles() { asm volatile("tilerelease"); }  // the 8 KB leave the thread's context switches
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // 1 KB at p.
  template <int kTile>
  void Load(const uint8_t* p) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(int64_t{64}), "i"(kTile), "m"(*reinterpret_cast<const Kilobyte*>(p)));
  }
  // The same for data that are read once: a hint not to keep them in L1.
  template <int kTile>
  void LoadOnce(const uint8_t* p) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(int64_t{64}), "i"(kTile), "m"(*reinterpret_cast<const Kilobyte*>(p)));
  }
  // 16 rows of 64 bytes, `stride` bytes apart (0: the same row 16 times).
  template <int kTile>
  void LoadRows(const float* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void StoreRows(float* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  // Sums [16 tokens][16 rows] f32 += A [16 tokens][32 K] bf16 * B [16 pairs of K][16 rows][2] bf16.
  template <int kSums, int kA, int kB>
  void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }

 private:
  using Kilobyte = uint8_t[kTileBytes];
};

// What AmxTiles does, in C++. Each pair's products are added in f32 in two chains (even K, odd K), which then meet the sum, as TDPBF16PS
// is defined; unlike the instruction it keeps subnormal numbers.
class EmulatedTiles {
 public:
  template <int kTile>
  void Zero() {
    for (uint8_t& byte : tile_[kTile]) byte = 0;
  }
  template <int kTile>
  void Load(const uint8_t* p) {
    __builtin_memcpy(tile_[kTile], p, kTileBytes);
  }
  template <int kTile>
  void LoadOnce(const uint8_t* p) {
    Load<kTile>(p);
  }
  template <int kTile>
  void LoadRows(const float* p, int64_t stride) {
    for (int r = 0; r < kTileRows; ++r) __builtin_memcpy(tile_[kTile] + r * 64, reinterpret_cast<const uint8_t*>(p) + r * stride, 64);
  }
  template <int kTile>
  void StoreRows(float* p, int64_t stride) {
    for (int r = 0; r < kTileRows; ++r) __builtin_memcpy(reinterpret_cast<uint8_t*>(p) + r * stride, tile_[kTile] + r * 64, 64);
  }
  template <int kSums, int kA, int kB>
  void Dot() {
    const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
    for (int m = 0; m < kTileRows; ++m) {
      __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
      for (int pair = 0; pair < kTileRows; ++pair) {
        int32_t two;
        __builtin_memcpy(&two, tile_[kA] + m * 64 + pair * 4, 4);
        const __m512i a = _mm512_set1_epi32(two), b = _mm512_load_si512(tile_[kB] + pair * 64);
        even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), even);
        odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, upper)), _mm512_castsi512_ps(_mm512_and_si512(b, upper)), odd);
      }
      uint8_t* sum = tile_[kSums] + m * 64;
      _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), _mm512_add_ps(even, odd)));
    }
  }

 private:
  alignas(kLine) uint8_t tile_[8][kTileBytes];
};

}  // namespace
}  // namespace slm::kernels
