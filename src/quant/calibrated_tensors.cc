// See calibrated_tensors.h.
#include "quant/calibrated_tensors.h"

namespace slm::quant {

CalibratedTensors::CalibratedTensors(const model::Model& m, CalibrationTask task, const WriteOptions& options, const Machine& machine)
    : m_(m), task_(std::move(task)), calibrated_(task_.recipe.calibrated()), options_(options), machine_(machine) {}

Status CalibratedTensors::Start() {
  if (!options_.text) return Error(Code::kInvalidArgument, "the recipe " + task_.recipe.name + " needs calibration text");
  const std::shared_ptr<const model::Model> borrowed(std::shared_ptr<void>(), &m_);
  SLM_ASSIGN_OR_RETURN(calibration_, Calibration::Start(borrowed, std::move(task_), *options_.text, machine_, options_.cancelled));
  return Ok();
}

Result<StoredTensor*> CalibratedTensors::Find(const model::Tensor* tensor, int layer) {
  if (!calibrated_ || layer < 0) return static_cast<StoredTensor*>(nullptr);
  if (!calibration_) SLM_RETURN_IF_ERROR(Start());
  while (at_ < layer) {
    ++at_;
    if (at_ < layer) {
      SLM_RETURN_IF_ERROR(calibration_->Skip());
    } else {
      SLM_ASSIGN_OR_RETURN(layer_, calibration_->Next());
      reports_.push_back(layer_.report);
    }
    if (options_.layer_done) options_.layer_done(at_ + 1);
  }
  SLM_ASSERT(at_ == layer);
  const auto it = layer_.tensors.find(tensor);
  return it == layer_.tensors.end() ? nullptr : &it->second;
}

}  // namespace slm::quant
