// What a register tile reads of its tokens, the same on every ISA, and the columns that share one reading of the weights. Included by ISA
// files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <stdint.h>

#include "kernels/packed/residual.h"

namespace slm::kernels {
namespace {

// Strides are in tokens.
struct Tokens {
  const int8_t* a;       // [m][k]
  const float* scale;    // [m][n_blocks]
  const int32_t* start;  // [m][n_blocks * parts] -zero point * sum of the part: the zero point paid in advance, for formats with one
  const float* offset;   // [m][n_blocks] scale * sum, the factor of the block's minimum, for formats with one
  int64_t k, n_blocks;
};

// The columns of a tile at block b: its tokens, or one token and its residual there.
struct TokenColumns {
  const Tokens& t;
  const int8_t* a;  // codes of block b of the first token
  int64_t b;
  const int8_t* Codes(int i) const { return a + i * t.k; }
  float Scale(int i) const { return t.scale[i * t.n_blocks + b]; }
  int32_t Start(int i) const { return t.start[i * t.n_blocks + b]; }
  float Offset(int i) const { return t.offset[i * t.n_blocks + b]; }
};
struct ResidualColumns {
  TokenColumns token;
  ResidualEntry rest;
  const int8_t* Codes(int i) const { return i == 0 ? token.Codes(0) : rest.q; }
  float Scale(int i) const { return i == 0 ? token.Scale(0) : rest.scale; }
  int32_t Start(int i) const { return i == 0 ? token.Start(0) : rest.start; }
  float Offset(int i) const { return i == 0 ? token.Offset(0) : rest.offset; }
};
// Residual blocks of several tokens at one block.
struct EntryColumns {
  const ResidualEntry* e;
  const int8_t* Codes(int i) const { return e[i].q; }
  float Scale(int i) const { return e[i].scale; }
  int32_t Start(int i) const { return e[i].start; }
  float Offset(int i) const { return e[i].offset; }
};

}  // namespace
}  // namespace slm::kernels
