// QuantizeMatrices: see static.h.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "quant/calibrated_tensors.h"
#include "quant/lpbq.h"
#include "quant/static/static.h"

namespace slm::quant {
namespace {
using model::Model;
using model::Role;
using model::Tensor;

class Rows {
 public:
  Rows(const Model& m, const StaticRecipe& recipe, const CalibrationText* text, const StaticWork& work)
      : m_(m), recipe_(recipe), text_(text), work_(work) {}

  Result<StaticMatrices> Run() {
    SLM_RETURN_IF_ERROR(Gather());
    CalibrationTask task{.recipe = recipe_.how, .matrices = {}, .vectors = VectorTypes::kF32};
    task.recipe.fold = false;  // ranges of activations are those of the float model
    for (const Entry& e : entries_)
      if (e.layer >= 0) task.matrices[e.tensor] = StoredForm::Of(e.form);
    const WriteOptions options{.n_threads = work_.machine.team->size(),
                               .progress = {},
                               .layer_done = work_.layer_done,
                               .cancelled = work_.cancelled,
                               .text = text_,
                               .isa = work_.machine.isa,
                               .work = nullptr};
    CalibratedTensors calibrated(m_, std::move(task), options, work_.machine);
    for (const Entry& e : entries_) {
      if (work_.cancelled && work_.cancelled()) return Error(Code::kCancelled, "interrupted");
      SLM_ASSIGN_OR_RETURN(StoredTensor * stored, calibrated.Find(e.tensor, e.layer));
      CodedRows coded;
      if (stored) {
        coded = std::move(stored->coded);
      } else {
        SLM_ASSIGN_OR_RETURN(coded, Plain(e));
      }
      out_.matrices[e.tensor] = Take(e, std::move(coded));
      m_.DropPages(*e.tensor);
    }
    out_.layers = calibrated.TakeReports();
    return std::move(out_);
  }

 private:
  struct Entry {
    const Tensor* tensor = nullptr;
    int layer = -1;
    BlockForm form;
  };

  // Layer by layer, as calibration walks; the head last.
  Status Gather() {
    for (int layer = 0; layer < m_.config.n_layers; ++layer)
      for (int r = 0; r < static_cast<int>(Role::kCount); ++r) {
        const auto role = static_cast<Role>(r);
        const Tensor* t = model::IsLayerMatrix(role) ? m_.Find(role, layer) : nullptr;
        if (t) SLM_RETURN_IF_ERROR(AddEntry(t, layer, role == Role::kDown ? recipe_.down : recipe_.body));
      }
    const Tensor* head = m_.Find(m_.config.tied_head ? Role::kEmbedding : Role::kHead);
    return AddEntry(head, -1, recipe_.head);
  }
  Status AddEntry(const Tensor* t, int layer, const WeightScheme& scheme) {
    WeightScheme s = scheme;
    SLM_ASSIGN_OR_RETURN(const GroupChoice choice, ChooseGroup(t->dims[1], s.group));
    s.group = choice.group;
    if (!choice.note.empty() && noted_.insert(choice.note).second) out_.notes.push_back(choice.note);
    BlockForm form = s.storage == Storage::kLpbq ? LpbqForm(s.group) : FormOf(s, t->dims[1], Store::kF32);
    entries_.push_back({t, layer, form});
    return Ok();
  }

  Result<CodedRows> Plain(const Entry& e) const {
    const std::vector<float> values = model::DequantizeAll(*e.tensor);
    for (size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        return Error(Code::kCorrupt,
                     fmt::format("{}: row {} holds NaN or infinity", e.tensor->name, static_cast<int64_t>(i) / e.tensor->dims[1]),
                     "the weights are damaged: fetch or convert the model again");
    return QuantizeGrid(e.form, recipe_.how.search, values.data(), e.tensor->dims[0], e.tensor->dims[1], nullptr, *work_.machine.team);
  }

  static model::CodedMatrix Take(const Entry& e, CodedRows coded) {
    model::CodedMatrix m{.bits = e.form.bits,
                         .rows = coded.rows,
                         .width = coded.width,
                         .group = e.form.group == coded.width && e.form.row_multiples == 0 ? 0 : e.form.group,
                         .codes = std::move(coded.codes),
                         .scales = {}};
    m.scales.reserve(coded.grids.size());
    for (const Grid& g : coded.grids) m.scales.push_back(g.scale > 0 ? g.scale : 1.0f);  // of zeros: any scale is right but 0
    return m;
  }

  const Model& m_;
  const StaticRecipe& recipe_;
  const CalibrationText* text_;
  const StaticWork& work_;
  std::vector<Entry> entries_;
  std::set<std::string> noted_;
  StaticMatrices out_;
};

}  // namespace

Result<StaticMatrices> QuantizeMatrices(const Model& m, const StaticRecipe& recipe, const CalibrationText* text, const StaticWork& work) {
  return Rows(m, recipe, text, work).Run();
}

}  // namespace slm::quant
