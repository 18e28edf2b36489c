// What a tensor will be stored as, for those who choose its codes: blocks of a ggml type, or codes on a grid that a writer of another
// format packs by itself.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "quant/block_form.h"

namespace slm::quant {

struct StoredForm {
  DType dtype = DType::kF32;      // when there is no grid
  std::optional<BlockForm> grid;  // of one group a block

  static StoredForm Of(DType dtype) { return {dtype, std::nullopt}; }
  static StoredForm Of(const BlockForm& grid) { return {DType::kCount, grid}; }
  // Codes on grids, which error feedback can choose; else each value is a float of its own.
  bool has_codes() const { return grid || Info(dtype).block > 1; }
  BlockForm block() const { return grid ? *grid : FormOf(dtype); }
  std::string_view name() const { return grid ? "codes" : Info(dtype).name; }
};

// What is read back of a row that was stored with error weights `u` (nullptr: those of PlainErrorWeights); `values` [w.size()].
// Thread-safe.
void StoreRow(const StoredForm& form, Search search, std::span<const float> w, const float* u, float* values);

// `v` as a float type (F32, F16, BF16, F64) keeps it.
float AsStored(DType dtype, float v);
// Values as bytes of a float type.
std::vector<std::byte> FloatBytes(DType dtype, std::span<const float> values);

}  // namespace slm::quant
