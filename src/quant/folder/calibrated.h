// The tensors of a packed folder that calibration chooses, a layer at a time. Internal to quant.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "quant/calibrate.h"
#include "quant/folder/folder.h"

namespace slm::quant {

// Asked for choices in the order of the plan, which goes layer by layer.
class CalibratedFolder {
 public:
  // All of them outlive it.
  CalibratedFolder(const model::Model& m, const FolderPlan& plan, const WriteOptions& options, const Machine& machine);
  // nullptr: a tensor that calibration leaves to the writer. What it returns may be moved from. Errors: Calibration's, kInvalidArgument
  // (no text).
  Result<StoredTensor*> Find(const FolderChoice& choice);
  std::vector<LayerReport> TakeReports() { return std::move(reports_); }

 private:
  Status Start();

  const model::Model& m_;
  const FolderPlan& plan_;
  const WriteOptions& options_;
  const Machine machine_;
  std::unique_ptr<Calibration> calibration_;
  int at_ = -1;
  CalibratedLayer layer_;
  std::vector<LayerReport> reports_;
};

}  // namespace slm::quant
