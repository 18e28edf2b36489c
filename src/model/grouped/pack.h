// Codes in groups packed as AWQ, GPTQ, compressed-tensors and ONNX Runtime's MatMulNBits keep them: the way back from grouped.h. Pure
// functions, thread-safe; the caller has checked the shapes (each function says which).
#pragma once
#include <cstdint>
#include <vector>

#include "model/grouped/grouped.h"

namespace slm::model {

// A matrix taken apart: value = scale * (code - zero).
struct GroupedCodes {
  int bits = 4;
  int64_t n = 0, k = 0;
  int64_t group = 0;              // columns that share a scale; k: one group a row
  std::vector<uint8_t> codes;     // [n, k], below 2^bits
  std::vector<int16_t> zeros;     // [n, groups], 0 to 2^bits - 1
  std::vector<float> scales;      // [n, groups]
  std::vector<int32_t> group_of;  // [k], or empty: k / group
  int64_t n_groups() const { return (k + group - 1) / group; }
};

// `m` read whole. Thread-safe.
GroupedCodes TakeApart(const GroupedMatrix& m);

using Words = std::vector<uint32_t>;
// AWQ: n divides by 8, 4 bits.
Words AwqCodes(const GroupedCodes& c);  // [k, n / 8]
Words AwqZeros(const GroupedCodes& c);  // [groups, n / 8]
// GPTQ: k * bits and n * bits divide by 32. `offset`: 1 for the first version, whose zeros are at least 1.
Words GptqCodes(const GroupedCodes& c);              // [k * bits / 32, n]
Words GptqZeros(const GroupedCodes& c, int offset);  // [groups, n * bits / 32]
// compressed-tensors: bits divides 32.
Words CompressedCodes(const GroupedCodes& c);  // [n, ceil(k * bits / 32)]
Words CompressedZeros(const GroupedCodes& c);  // [ceil(n * bits / 32), groups]
// Scales of AWQ and GPTQ: [groups, n].
std::vector<float> TransposedScales(const GroupedCodes& c);

// Inputs of com.microsoft.MatMulNBits: 4 or 8 bits, no group_of, `group` (the attribute block_size) a power of two >= 16. Columns past k
// get the code of 0. Source: onnxruntime docs/ContribOperators.md.
struct MatMulNBitsTensors {
  std::vector<uint8_t> b;            // [n, groups, group * bits / 8], low nibble first
  std::vector<float> scales;         // [n, groups]
  std::vector<uint8_t> zero_points;  // [n, ceil(groups * bits / 8)]; empty: all are 2^(bits - 1), which is the operator's default
};
MatMulNBitsTensors PackMatMulNBits(const GroupedCodes& c);

}  // namespace slm::model
