// The execution layout of weights and activations that all matmul families and ISAs share, as pure arithmetic.
//
// Weights W [N, K] are cut into panels of 32 rows and units of 64 K (one AMX K step). A 64-byte line holds 16 rows x 4 K, the
// operand of VPDPBUSD, of the VNNI GEMM, and one row of an AMX B tile, so that no kernel needs a shuffle:
//   byte 4r + j of a line = row r (of a group of 16), K j (of a group of 4).
// Unit, by kind (a block is 32 K; g = row group 0..1 of 16 rows):
//   kQ4:  2 x { 4 x 2 nibble lines (c = 0..3, g): low nibble = K group 2c, high = K group 2c+1, value q in 0..15 meaning
//         q - 8;  1 line of scales: 32 rows fp16 }                                        = 2 x 9 lines  = 1152 B, 4.5 bits
//   kQ4Min: the same, value = scale * q + min, and after each scale line 1 line of mins, fp16 = 2 x 10 lines = 1280 B, 5.0
//   kQ8:  2 x { 8 x 2 byte lines (K group 0..7, g), value u8 meaning u - 128; 1 scale line }  = 2 x 17 lines = 2176 B, 8.5
//   kQ8Min: value = scale * (u - 128) + min; scale line, min line                             = 2 x 18 lines = 2304 B, 9.0
//   kF16, kBF16: 64 x 1 line: line k = 32 rows of 16 bits = 4096 B;   kF32: 64 x 2 lines (rows 0..15, 16..31) = 8192 B
// Codes of more than 4 bits lie in planes: the nibble lines, then lines of the bits above, b bits a code (K group c, row group
// g: bits c * b % 8 .. of line c * b / 8 * 2 + g), then the scales:
//   kQ5: 8 + 2 lines, fp16 scale line, q - 16 = 5.5 bits;   kQ5Min: q, and a line of mins = 6.0
// The K-quants of GGUF: a super-block of 256 K has fp16 factors in lines in front of its 8 blocks; a block has integer scales:
//   kQ4K: lines d, -dmin; block: 8 lines, then 32 u8 scales s and 32 u8 mins m; value = d * s * q + -dmin * m = 4.625 bits
//   kQ5K: the same with 2 lines of fifth bits = 5.625;   kQ6K: line d; block: 8 + 4 lines, 2 x 32 i8 scales, one a half of the
//         block (16 K); value = d * s * (q - 32) = 6.5625
// A panel is ceil(K / 64) units back to back (and the lines of super-blocks), one contiguous stream; panels follow each other.
// Rows past N and K past the end are zero with zero scales (byte value of the zero point), so kernels may run over them. All
// lines are 64-byte aligned.
// Why these: they keep the grids of GGUF Q4_0 to Q8_0 and Q4_K to Q6_K, of MatMulNBits and of AWQ exactly, in no more bytes than
// the file but for a 32nd part of Q4_K and a 44th of Q5_K (6-bit integers as bytes).
#pragma once
#include <stdint.h>

namespace slm::kernels {

enum class PackedKind : uint8_t { kQ4, kQ4Min, kQ8, kQ8Min, kF16, kBF16, kF32, kQ5, kQ5Min, kQ4K, kQ5K, kQ6K, kCount };

inline constexpr int kPanelRows = 32;
inline constexpr int kUnitK = 64;
inline constexpr int kBlockK = 32;
inline constexpr int kSuperBlocks = 8;  // blocks that share the factors of a super-block
inline constexpr int kLine = 64;

// Format number written into files that hold packed weights; raised when the meaning of a unit changes.
inline constexpr uint32_t kPackedLayoutId = 1;

// Lines of one block of a quantized kind, in this order, and lines in front of a super-block.
struct BlockLines {
  int codes, high, scales, super;
};
constexpr BlockLines LinesOf(PackedKind kind) {
  switch (kind) {
    case PackedKind::kQ4: return {8, 0, 1, 0};
    case PackedKind::kQ4Min: return {8, 0, 2, 0};
    case PackedKind::kQ8: return {16, 0, 1, 0};
    case PackedKind::kQ8Min: return {16, 0, 2, 0};
    case PackedKind::kQ5: return {8, 2, 1, 0};
    case PackedKind::kQ5Min: return {8, 2, 2, 0};
    case PackedKind::kQ4K: return {8, 0, 1, 2};
    case PackedKind::kQ5K: return {8, 2, 1, 2};
    case PackedKind::kQ6K: return {8, 4, 1, 1};
    default: return {};
  }
}
constexpr bool IsQuantized(PackedKind kind) { return LinesOf(kind).codes > 0; }
constexpr int64_t UnitBytes(PackedKind kind) {
  const BlockLines n = LinesOf(kind);
  if (IsQuantized(kind)) return 2 * (n.codes + n.high + n.scales) * kLine;
  return (kind == PackedKind::kF32 ? 128 : 64) * kLine;
}
constexpr int64_t PaddedRows(int64_t n) { return (n + kPanelRows - 1) / kPanelRows * kPanelRows; }
constexpr int64_t PaddedK(int64_t k) { return (k + kUnitK - 1) / kUnitK * kUnitK; }
constexpr int64_t SuperBlocks(int64_t k) { return (k + kSuperBlocks * kBlockK - 1) / (kSuperBlocks * kBlockK); }
constexpr int64_t PanelBytes(PackedKind kind, int64_t k) {
  return PaddedK(k) / kUnitK * UnitBytes(kind) + SuperBlocks(k) * LinesOf(kind).super * kLine;
}
constexpr int64_t PackedBytes(PackedKind kind, int64_t n, int64_t k) { return PaddedRows(n) / kPanelRows * PanelBytes(kind, k); }
constexpr bool HasMin(PackedKind kind) { return LinesOf(kind).scales == 2 || LinesOf(kind).super == 2; }
// Codes that the kernels spread to bytes in scratch before several tokens use them.
constexpr bool InPlanes(PackedKind kind) { return LinesOf(kind).high > 0 || LinesOf(kind).super > 0; }

// What is subtracted from a code: the code of 0 (before a minimum is added), which fills rows past N and K past the end.
constexpr int ZeroPoint(PackedKind kind) {
  switch (kind) {
    case PackedKind::kQ4: return 8;
    case PackedKind::kQ5: return 16;
    case PackedKind::kQ6K: return 32;
    case PackedKind::kQ8:
    case PackedKind::kQ8Min: return 128;
    default: return 0;
  }
}

// int8 says too little of a block with an outlier. What is left of such a block is quantized once more: a residual block is
// added to the product as one more block beside `block`, with the same weights (kernels/quantize makes them).
struct alignas(16) ResidualBlock {
  int8_t q[kBlockK];  // -127..127
  float scale;
  int32_t sum;    // of the 32 q
  int32_t block;  // which 32 K of the row
};

// One matrix product out[m][n] = sum_k x[m][k] * W[n][k] (+ bias) (+ what out held), over panels [panel_begin, panel_end).
// Quantized kinds read the int8 activations a*, their wide kernels read tiles, float kinds read x. All pointers 64-byte aligned, rows
// contiguous as stated.
struct MatMulArgs {
  const uint8_t* w = nullptr;               // packed W, first panel of the matrix
  int64_t panel_bytes = 0;                  // PanelBytes(kind, k)
  int k = 0;                                // padded K
  int m = 0;                                // tokens, >= 1
  const int8_t* a = nullptr;                // [m][k] int8 activations, -127..127 (kernels/quantize)
  const float* a_scale = nullptr;           // [m][k / 32]
  const int32_t* a_sum = nullptr;           // [m][k / 32] sum of the 32 int8 values
  const ResidualBlock* residual = nullptr;  // [m][k / 32], of each row the first residual_count, `block` rising
  const int32_t* residual_count = nullptr;  // [m], or nullptr: no token has any
  const uint16_t* tiles = nullptr;          // bf16 activations for wide kernels: TiledValues(m, k), kernels/packed/tiles.h
  const float* x = nullptr;                 // [m][x_stride] f32 activations, zero past K
  int64_t x_stride = 0;                     // values, >= k
  float* out = nullptr;                     // [m][out_stride] f32
  int64_t out_stride = 0;                   // values, >= PaddedRows(n): padded rows are written (as bias-less zeros)
  const float* bias = nullptr;              // [PaddedRows(n)] or nullptr
  bool accumulate = false;                  // true: out += product (residual add)
  int panel_begin = 0, panel_end = 0;
  uint8_t* scratch = nullptr;  // per thread, ScratchBytes(kind, k) bytes, 64-byte aligned; may be null when that is 0
};
// Kernels never allocate, lock, log or fail. Threads take disjoint panel ranges; results do not depend on the split, and
// for quantized kinds not on the ISA: per row and token the blocks are added in K order as
//   acc = fma(float(int32 dot), a_scale * w_scale, acc);  with min: acc = fma(min, a_scale * float(a_sum), acc)
// where K-quants have w_scale = d * float(s) and min = -dmin * float(m), and the two halves of kQ6K are added one after the other,
// and the token's residual blocks in the same way in a sum of their own; acc + that sum is the product.
// The result for a token does not depend on m.
// Wide kernels are a tier's own: bf16 on both sides, f32 sums, so near the others (2^-7 of each product at most) but not equal to
// them. Their results depend on neither m nor the split.
using MatMulFn = void (*)(const MatMulArgs& args);

struct MatMulKernel {
  MatMulFn fn = nullptr;
  const char* name = nullptr;  // as reported to the user, e.g. "matmul_f32_q8_q4_avx512vnni"
};

// From this many tokens on a wide kernel is taken where the tier has one: a full tile. Fewer (decode, verification of guesses) keep to
// the bits of decode.
inline constexpr int kWideTokens = 16;

// Tokens that a quantized kernel takes through all its panels at a time, so that their activations stay in L2.
inline constexpr int kTokenBlock = 96;

// Tokens of the next register tile when `left` remain: full tiles, and the last two shared evenly (7 of 6 is 4 + 3, not 6 + 1).
constexpr int TileTokens(int left, int tile) {
  if (left >= 2 * tile || left == tile) return tile;
  return left > tile ? (left + 1) / 2 : left;
}

// A panel of a kind in planes, spread: per block 16 lines of byte codes, 2 of f32 scales, 2 of f32 mins (or scales of the second
// half).
inline constexpr int kSpreadLines = 20;
constexpr int64_t SpreadBytes(PackedKind kind, int64_t k) { return InPlanes(kind) ? PaddedK(k) / kBlockK * kSpreadLines * kLine : 0; }

// Scratch bytes one thread needs for any m. Per token of a block of tokens and per block of 32 K: two 4-byte values and one
// entry of the list of residual blocks with its codes (kernels/packed/residual.h); beside them where each block's entries begin; the spread
// panel.
constexpr int64_t kResidualEntryBytes = 24 + kBlockK;
constexpr int64_t ListOffset(int64_t n_blocks) { return kTokenBlock * n_blocks * 8; }
constexpr int64_t SpreadOffset(int64_t n_blocks) {
  return ListOffset(n_blocks) + kTokenBlock * n_blocks * kResidualEntryBytes + (n_blocks + kLine) / 16 * kLine;
}
// A wide kernel keeps a chunk of unpacked weights there (bf16, kWideChunk blocks of 32 rows at most) and the sums of a block of tokens.
inline constexpr int kWideChunk = 18;
inline constexpr int kWideTokenBlock = 256;
constexpr int64_t WideChunkBytes(int64_t n_blocks) { return (n_blocks < kWideChunk ? n_blocks : kWideChunk) * kBlockK * kPanelRows * 2; }
constexpr int64_t ScratchBytes(PackedKind kind, int64_t k) {
  if (!IsQuantized(kind)) return 0;
  const int64_t n_blocks = PaddedK(k) / kBlockK;
  const int64_t narrow = SpreadOffset(n_blocks) + SpreadBytes(kind, k);
  const int64_t wide = WideChunkBytes(n_blocks) + kWideTokenBlock * kPanelRows * 4;
  return narrow > wide ? narrow : wide;
}

}  // namespace slm::kernels
