// Activations as bf16 tiles: the left operand of the wide products, which take many tokens at once (tier amx), as pure arithmetic.
//
// A tile is 16 tokens x 32 K of bf16 = 16 lines of 64 bytes, one AMX A tile in contiguous memory. Tiles of 16 tokens follow each other
// along K, then comes the next 16 tokens: [ceil(m / 16)][k / 32][16][32]. Of every 8 K the even ones come first (0 2 4 6 1 3 5 7):
// the two K that a lane of the tile multiply takes together then lie 16 bits apart in the packed 4- and 8-bit weights, so that one shift
// and mask unpacks both (kernels/packed/matmul_tiles.h). Tokens past m in the last tile may hold anything: rows do not mix.
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm::kernels {

inline constexpr int kTileRows = 16;                // tokens, and rows of weights
inline constexpr int kTileK = 32;                   // one block of the quantized kinds
inline constexpr int kTileValues = 512;             // 16-bit values
inline constexpr int kTileBytes = 2 * kTileValues;  // also of a tile of f32 sums

// Values that m tokens of padded width k take.
constexpr int64_t TiledValues(int64_t m, int64_t k) { return (m + kTileRows - 1) / kTileRows * kTileRows * k; }

// Where x[token][k] lies among them.
constexpr int64_t TilePosition(int64_t token, int64_t k, int64_t padded_k) {
  const int64_t tile = token / kTileRows * (padded_k / kTileK) + k / kTileK;
  return tile * kTileValues + token % kTileRows * kTileK + k % kTileK / 8 * 8 + k % 2 * 4 + k % 8 / 2;
}

}  // namespace slm::kernels
