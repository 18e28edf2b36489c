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
#include "quant/fp4.h"

namespace slm::quant {

// How a group's numbers are kept.
enum class Storage : uint8_t {
  kGrid,   // CodedRows, QuantizeGrid
  kLpbq,   // the same of LpbqForm, each row for itself: no error feedback
  kMxFp4,  // fp4.h, groups of 32
  kNvFp4,  // fp4.h, groups of 16
};

inline Fp4 Fp4Of(Storage storage) { return storage == Storage::kMxFp4 ? Fp4::kMx : Fp4::kNv; }

struct StoredForm {
  DType dtype = DType::kF32;      // when there is no grid
  std::optional<BlockForm> grid;  // of one group a block
  Storage storage = Storage::kGrid;

  static StoredForm Of(DType dtype) { return {dtype, std::nullopt, Storage::kGrid}; }
  static StoredForm Of(const BlockForm& grid) { return {DType::kCount, grid, Storage::kGrid}; }
  static StoredForm Of(Storage storage, int group);  // of what is no plain grid
  // Codes on grids, which error feedback can choose; else each value is a float of its own, or codes are not evenly spaced.
  bool has_codes() const { return storage == Storage::kGrid && (grid || (Info(dtype).block > 1 && dtype != DType::kMXFP4)); }
  bool is_fp4() const { return storage == Storage::kMxFp4 || storage == Storage::kNvFp4; }
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
