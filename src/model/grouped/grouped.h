// A matrix of integer codes in groups, as the checkpoints of AWQ, GPTQ and compressed-tensors and ONNX files keep it: codes, scales and
// zero points are tensors of their own. A weight is scale * (code - zero), with a scale and a zero for every row and group of columns;
// an ONNX file may add an offset to it.
//
// Layouts, all of 32-bit little-endian words, codes from the lowest bits up (b bits a code, R = 32 / b codes a word):
//   kAwq         codes [K, N / 8], word c holds rows 8c + {0, 2, 4, 6, 1, 3, 5, 7}; zeros [G, N / 8] alike; scales [G, N]
//   kGptq        codes [K * b / 32, N], column n is a stream of bits along K; zeros [G, N * b / 32], a stream along N; scales [G, N]
//   kCompressed  codes [N, ceil(K / R)]; zeros [ceil(N / R), G], or bytes [N, G]; scales [N, G] or one
//   kBytes       codes int8 [N, K] (+ 2^(b - 1) here, so that codes are unsigned); zeros int8 [N, G]; scales [N, G] or one
// and in bytes:
//   kFp4         two E2M1 codes a byte, low first [N, K / 2]; a code here is 128 + twice the value; scales E4M3 or E8M0 [N, G]
//   kTernary     [N / 4, K], row i + q * N / 4 in bits 2q of row i; code - 1; one scale
//   kColumns     no codes: float values of `scale_type`, [K, N], as ONNX's MatMul has them; one group, no scales
//   kStrided     one stream each of b-bit numbers, whose places `strides` gives; scales and offsets of any order
// Sources: AutoAWQ's WQLinear_GEMM, AutoGPTQ's and GPTQModel's QuantLinear, compressed-tensors' pack_quantized, naive_quantized, nvfp4 and
// mxfp4, transformers' BitNet; onnxruntime's docs/ContribOperators.md (MatMulNBits, GatherBlockQuantized), ONNX's DequantizeLinear.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/result.h"

namespace slm::model {

enum class GroupedLayout : uint8_t { kAwq, kGptq, kCompressed, kBytes, kFp4, kTernary, kColumns, kStrided };

// Of kStrided: number (row, column or group) is element row * …_row + column * … of its list.
struct GroupedStrides {
  int64_t code_row = 0, code_column = 0;
  int64_t scale_row = 0, scale_group = 0;
  int64_t zero_row = 0, zero_group = 0;
  int64_t offset_row = 0, offset_group = 0;
  bool is_signed = false;  // codes and zeros are two's complement: 2^(bits - 1) is added to both, so that codes are unsigned
};

// How scales are stored.
enum class ScaleForm : uint8_t {
  kFloat,    // scale_type
  kInverse,  // its reciprocal, of scale_type
  kE8M0,     // a byte
  kE4M3,     // a byte, to be divided by global_scale
};

// What holds for all of a matrix.
struct GroupedFacts {
  int lowest = 0, highest = 0;   // of code - zero, for any code
  bool half_scales = true;       // every scale is an f16 exactly
  bool half_minimums = true;     // with offsets: what code 0 means is an f16, up to the rounding of the offset in the file
  bool near_half_scales = true;  // every scale as f16 is off by half a unit in the last place of a normal one at most
};

struct GroupedMatrix {
  GroupedLayout layout = GroupedLayout::kGptq;
  int bits = 4;  // 2 to 8
  int64_t n = 0, k = 0;
  int64_t group = 0;       // columns that share a scale; the last group of a row may be shorter
  int64_t n_groups = 0;    // G
  int zero_offset = 0;     // added to stored zeros: 1 for GPTQ's first version
  bool one_scale = false;  // compressed-tensors, strategy "tensor"
  bool byte_zeros = false;
  ScaleForm scale_form = ScaleForm::kFloat;
  DType scale_type = DType::kF16;  // F16, BF16 or F32
  float global_scale = 1;
  std::span<const std::byte> codes, scales;  // of the file's maps
  std::span<const std::byte> zeros;          // empty: every zero is 2^(bits - 1)
  std::span<const std::byte> group_of;       // int32 [K], or empty: group k / group
  std::span<const std::byte> offsets;        // F32, added to the values of a group, or empty; kStrided only
  GroupedStrides strides;                    // kStrided
  GroupedFacts facts;                        // set by the loader with FactsOf
  uint64_t stored_bytes() const { return codes.size() + scales.size() + zeros.size() + group_of.size() + offsets.size(); }
};

// Reads scales and zeros once. Pure.
GroupedFacts FactsOf(const GroupedMatrix& m);

// True when blocks of 32 columns lie within groups: what block types and the packed layout ask for.
bool HasBlocks(const GroupedMatrix& m);
// The block type (Q4_0, Q5_0, Q8_0, MXFP4) that holds the same values, or kCount when none does.
DType SameBlockType(const GroupedMatrix& m);

// Rows [begin, end) taken apart, rows outermost. Lays nothing out anew in memory that it keeps; thread-safe.
struct GroupedRows {
  uint8_t* codes;            // [rows, K]
  int16_t* zeros;            // [rows, G]
  float* scales;             // [rows, G]
  float* offsets = nullptr;  // [rows, G] of a matrix with offsets
};
void ReadGroupedCodes(const GroupedMatrix& m, int64_t begin, int64_t end, const GroupedRows& out);

// The same as values: out [rows, K] f32, scale * float(code - zero), rounded once; an offset is added to that. Thread-safe.
void ReadGroupedValues(const GroupedMatrix& m, int64_t begin, int64_t end, float* out);

// Rows [begin, end) of kColumns as they are stored, [rows, K] of `scale_type`. Thread-safe.
void ReadColumnRows(const GroupedMatrix& m, int64_t begin, int64_t end, std::byte* out);
// A type that holds the scales as they are.
inline DType ScaleTypeOf(const GroupedMatrix& m) { return m.scale_form == ScaleForm::kFloat ? m.scale_type : DType::kF32; }

// The group of a column.
int64_t GroupOf(const GroupedMatrix& m, int64_t column);

}  // namespace slm::model
