// The tensors that a matrix becomes in a packed folder: names, types and shapes. Internal to quant.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "quant/block_form.h"
#include "quant/folder/folder.h"

namespace slm::quant {

enum class Part : uint8_t { kWhole, kCodes, kZeros, kScales, kGroupOf, kShape, kGlobalScale, kInputScale };
struct FolderPart {
  Part part;
  std::string name;
  std::string_view dtype;  // as safetensors spells it
  std::vector<int64_t> dims;
  uint64_t bytes() const;
};

// In the order in which they are written.
std::vector<FolderPart> PartsOf(const FolderPlan& plan, const FolderChoice& c);

// Bits of a packed matrix, and the columns that share a scale.
inline int BitsOf(const FolderPlan& plan, const FolderChoice& c) { return c.is_down ? plan.recipe.down_bits : plan.spec.bits; }
inline int64_t GroupOf(const FolderPlan& plan, const FolderChoice& c) {
  return c.is_down || plan.spec.group == 0 ? c.tensor->dims[1] : plan.spec.group;
}
// The codes of such a matrix, as the format keeps them.
StoredForm FormOf(const FolderPlan& plan, const FolderChoice& c);

// "int4", "nvfp4", "lpbq": how the matrix is kept, for reports.
std::string CodesText(const FolderPlan& plan, const FolderChoice& c);

}  // namespace slm::quant
