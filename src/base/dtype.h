// Storage types of tensors and their block geometry: one table, read by readers, packers, inspect and tests.
//
// Names are ggml's for its block formats. Geometry: ggml's gguf constants (GGML_QUANT_SIZES), checked by a test
// against the `gguf` package's numbers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slm {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kTQ1_0,
  kTQ2_0,
  kCount,
};

struct DTypeInfo {
  std::string_view name;
  uint32_t block;        // values per block
  uint32_t block_bytes;  // bytes per block
};

inline constexpr DTypeInfo kDTypeTable[static_cast<int>(DType::kCount)] = {
    {"F32", 1, 4},      {"F16", 1, 2},        {"BF16", 1, 2},     {"I8", 1, 1},       {"I16", 1, 2},      {"I32", 1, 4},
    {"I64", 1, 8},      {"F64", 1, 8},        {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},   {"Q2_K", 256, 84},    {"Q3_K", 256, 110}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
    {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17},  {"TQ1_0", 256, 54}, {"TQ2_0", 256, 66},
};

inline constexpr const DTypeInfo& Info(DType t) { return kDTypeTable[static_cast<int>(t)]; }

// Bytes of a row of `n` values; n must be a multiple of the block.
inline constexpr uint64_t RowBytes(DType t, uint64_t n) { return n / Info(t).block * Info(t).block_bytes; }

}  // namespace slm
