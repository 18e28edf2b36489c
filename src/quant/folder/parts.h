// The tensors that a matrix becomes in a packed folder: names, types and shapes. Internal to quant.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "quant/block_form.h"
#include "quant/folder/folder.h"

namespace slm::quant {

enum class Part : uint8_t { kWhole, kCodes, kZeros, kScales, kGroupOf, kShape };
struct FolderPart {
  Part part;
  std::string name;
  std::string_view dtype;  // as safetensors spells it
  std::vector<int64_t> dims;
  uint64_t bytes() const;
};

// In the order in which they are written.
std::vector<FolderPart> PartsOf(const FolderPlan& plan, const FolderChoice& c);

// Columns that share a scale in a matrix of width k.
inline int64_t GroupOfWidth(const FolderPlan& plan, int64_t k) { return plan.spec.group == 0 ? k : plan.spec.group; }
// The grid of a group in such a matrix, as the format keeps it.
BlockForm FormOf(const FolderPlan& plan, int64_t k);

}  // namespace slm::quant
