// See calibrated.h.
#include "quant/folder/calibrated.h"

#include "quant/folder/parts.h"

namespace slm::quant {

CalibratedFolder::CalibratedFolder(const model::Model& m, const FolderPlan& plan, const WriteOptions& options, const Machine& machine)
    : m_(m), plan_(plan), options_(options), machine_(machine) {}

Status CalibratedFolder::Start() {
  if (!options_.text) return Error(Code::kInvalidArgument, "the recipe " + plan_.recipe.how.name + " needs calibration text");
  CalibrationTask task{.recipe = plan_.recipe.how, .matrices = {}, .vectors = VectorTypes::kOwn};
  for (const FolderChoice& c : plan_.choices)
    if (c.packed && c.layer >= 0) task.matrices[c.tensor] = StoredForm::Of(FormOf(plan_, c.tensor->dims[1]));
  const std::shared_ptr<const model::Model> borrowed(std::shared_ptr<void>(), &m_);
  SLM_ASSIGN_OR_RETURN(calibration_, Calibration::Start(borrowed, std::move(task), *options_.text, machine_, options_.cancelled));
  return Ok();
}

Result<StoredTensor*> CalibratedFolder::Find(const FolderChoice& c) {
  if (!plan_.recipe.how.calibrated() || c.layer < 0) return static_cast<StoredTensor*>(nullptr);
  if (!calibration_) SLM_RETURN_IF_ERROR(Start());
  while (at_ < c.layer) {
    SLM_ASSIGN_OR_RETURN(layer_, calibration_->Next());
    ++at_;
    reports_.push_back(layer_.report);
    if (options_.layer_done) options_.layer_done(at_ + 1);
  }
  SLM_ASSERT(at_ == c.layer);
  const auto it = layer_.tensors.find(c.tensor);
  return it == layer_.tensors.end() ? nullptr : &it->second;
}

}  // namespace slm::quant
