// See ggml_types.h. Numbers as in the enum of ggml; gaps are types that were removed there or never stored in files.
#include "model/gguf/ggml_types.h"

#include "base/check.h"

namespace slm::model::gguf {
namespace {

constexpr GgmlType kTypes[] = {
    {0, DType::kF32, "F32", 1, 4},
    {1, DType::kF16, "F16", 1, 2},
    {2, DType::kQ4_0, "Q4_0", 32, 18},
    {3, DType::kQ4_1, "Q4_1", 32, 20},
    {6, DType::kQ5_0, "Q5_0", 32, 22},
    {7, DType::kQ5_1, "Q5_1", 32, 24},
    {8, DType::kQ8_0, "Q8_0", 32, 34},
    {10, DType::kQ2_K, "Q2_K", 256, 84},
    {11, DType::kQ3_K, "Q3_K", 256, 110},
    {12, DType::kQ4_K, "Q4_K", 256, 144},
    {13, DType::kQ5_K, "Q5_K", 256, 176},
    {14, DType::kQ6_K, "Q6_K", 256, 210},
    {16, DType::kCount, "IQ2_XXS", 256, 66},
    {17, DType::kCount, "IQ2_XS", 256, 74},
    {18, DType::kCount, "IQ3_XXS", 256, 98},
    {19, DType::kCount, "IQ1_S", 256, 50},
    {20, DType::kIQ4_NL, "IQ4_NL", 32, 18},
    {21, DType::kCount, "IQ3_S", 256, 110},
    {22, DType::kCount, "IQ2_S", 256, 82},
    {23, DType::kIQ4_XS, "IQ4_XS", 256, 136},
    {24, DType::kI8, "I8", 1, 1},
    {25, DType::kI16, "I16", 1, 2},
    {26, DType::kI32, "I32", 1, 4},
    {27, DType::kI64, "I64", 1, 8},
    {28, DType::kF64, "F64", 1, 8},
    {29, DType::kCount, "IQ1_M", 256, 56},
    {30, DType::kBF16, "BF16", 1, 2},
    {34, DType::kTQ1_0, "TQ1_0", 256, 54},
    {35, DType::kTQ2_0, "TQ2_0", 256, 66},
    {39, DType::kMXFP4, "MXFP4", 32, 17},
    {40, DType::kCount, "NVFP4", 64, 36},
    {41, DType::kCount, "Q1_0", 128, 18},
};

constexpr bool AgreesWithDTypeTable() {
  for (const GgmlType& t : kTypes)
    if (t.dtype != DType::kCount &&
        (Info(t.dtype).name != t.name || Info(t.dtype).block != t.block || Info(t.dtype).block_bytes != t.block_bytes))
      return false;
  return true;
}
static_assert(AgreesWithDTypeTable());

}  // namespace

const GgmlType* FindGgmlType(uint32_t id) {
  for (const GgmlType& t : kTypes)
    if (t.id == id) return &t;
  return nullptr;
}

uint32_t GgmlTypeId(DType dtype) {
  for (const GgmlType& t : kTypes)
    if (t.dtype == dtype) return t.id;
  SLM_ASSERT(false);
}

}  // namespace slm::model::gguf
