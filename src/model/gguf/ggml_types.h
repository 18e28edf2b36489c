// ggml's tensor type numbers: those of the DType table, and the geometry of the others, so that a file which holds one is
// still listed and its extents are still checked. Source: ggml.h (enum ggml_type) and GGML_QUANT_SIZES of the gguf package.
#pragma once
#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace slm::model::gguf {

struct GgmlType {
  uint32_t id;
  DType dtype;  // kCount: not one that this build computes with
  std::string_view name;
  uint32_t block, block_bytes;
};

// The row of a type number, or nullptr for numbers that ggml does not define (or removed).
const GgmlType* FindGgmlType(uint32_t id);

// ggml's number of a type of the DType table; every one of them has one.
uint32_t GgmlTypeId(DType dtype);

}  // namespace slm::model::gguf
