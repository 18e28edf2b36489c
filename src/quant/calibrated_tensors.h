// The tensors that calibration chooses, for a writer that asks in the order of its plan: layer by layer. Internal to quant.
#pragma once
#include <memory>
#include <vector>

#include "quant/calibrate.h"

namespace slm::quant {

class CalibratedTensors {
 public:
  // `m`, `options` and its text outlive it.
  CalibratedTensors(const model::Model& m, CalibrationTask task, const WriteOptions& options, const Machine& machine);
  // nullptr: a tensor that the writer stores without it. Layers in between are passed over: an earlier run finished them. What it returns
  // may be moved from. Errors: Calibration's, kInvalidArgument (no text).
  Result<StoredTensor*> Find(const model::Tensor* tensor, int layer);
  std::vector<LayerReport> TakeReports() { return std::move(reports_); }

 private:
  Status Start();

  const model::Model& m_;
  CalibrationTask task_;  // until it starts
  const bool calibrated_;
  const WriteOptions& options_;
  const Machine machine_;
  std::unique_ptr<Calibration> calibration_;
  int at_ = -1;
  CalibratedLayer layer_;
  std::vector<LayerReport> reports_;
};

}  // namespace slm::quant
