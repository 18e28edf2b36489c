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

// Columns that share a scale in a matrix of width k.
inline int64_t GroupOfWidth(const FolderPlan& plan, int64_t k) { return plan.spec.group == 0 ? k : plan.spec.group; }
// The codes of such a matrix, as the format keeps them.
StoredForm FormOf(const FolderPlan& plan, int64_t k);

// "int4", "nvfp4", "lpbq": how weights are kept, for reports.
std::string CodesText(const FolderPlan& plan);

}  // namespace slm::quant
