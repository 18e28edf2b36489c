// The stream of a packed folder: every matrix is taken apart or quantized by all threads, packed, written. See folder.h.
#include "quant/folder/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/threads.h"
#include "model/grouped/grouped.h"
#include "quant/calibrated_tensors.h"
#include "quant/folder/packing.h"
#include "quant/folder/parts.h"
#include "quant/schemes.h"

namespace slm::quant {
namespace {
using model::GroupedCodes;
using model::Model;
using model::Role;
using model::Tensor;
using model::hf::PackedFormat;

constexpr uint64_t kFixedBytes = uint64_t{4} << 20;
constexpr size_t kPartBytes = size_t{1} << 20;

// Sums of squares of a row.
struct RowSums {
  double lost = 0, power = 0;
};

class MatrixMaker {
 public:
  MatrixMaker(const Model& m, const FolderPlan& plan, ThreadTeam& team) : m_(m), plan_(plan), team_(team) {}

  // One matrix, and its relative error.
  Result<PackedCodes> Make(const Tensor& t, double* error) {
    *error = 0;
    if (plan_.lossless) {
      SLM_ASSIGN_OR_RETURN(GroupedCodes kept, Keep(t));
      return PackedCodes{.codes = std::move(kept)};
    }
    const StoredForm form = FormOf(plan_, t.dims[1]);
    const std::vector<float> power = InputPower(t);
    const float* u = power.empty() ? nullptr : power.data();
    sums_.assign(static_cast<size_t>(t.dims[0]), {});
    CodedRows coded;
    if (form.is_fp4()) {
      SLM_ASSIGN_OR_RETURN(coded, Whole(t, form, u));
    } else {
      coded = ByRow(t, form, u);
    }
    SLM_ASSIGN_OR_RETURN(*error, ErrorOf(t));
    return CodesOf(std::move(coded));
  }

 private:
  // A row in memory at a time for each thread. Rows that are not finite stay without codes.
  CodedRows ByRow(const Tensor& t, const StoredForm& form, const float* u) {
    CodedRows coded(form.block(), t.dims[0], t.dims[1]);
    auto work = [&](int thread, int n_threads) {
      std::vector<float> row(static_cast<size_t>(coded.width)), stored(row.size());
      const Range mine = SplitRange(coded.rows, 1, thread, n_threads);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        model::ReadRows(t, i, i + 1, row.data());
        double& power = sums_[static_cast<size_t>(i)].power;
        power = Squares(row);
        if (!std::isfinite(power)) continue;
        QuantizeRow(plan_.recipe.how.search, row, u, i, &coded);
        coded.Values(i, stored.data());
        sums_[static_cast<size_t>(i)].lost = Lost(row, stored);
      }
    };
    team_.Run(work);
    return coded;
  }

  // A matrix that is in memory in f32: its scales are made of all rows.
  Result<CodedRows> Whole(const Tensor& t, const StoredForm& form, const float* u) {
    const std::vector<float> w = model::DequantizeAll(t);
    const int64_t n = t.dims[0], k = t.dims[1];
    const auto row = [&](int64_t i) { return std::span(w).subspan(static_cast<size_t>(i * k), static_cast<size_t>(k)); };
    for (int64_t i = 0; i < n; ++i) sums_[static_cast<size_t>(i)].power = Squares(row(i));
    SLM_RETURN_IF_ERROR(ErrorOf(t));  // not finite
    CodedRows coded = QuantizeStored(form, plan_.recipe.how.search, w.data(), n, k, u, team_);
    std::vector<float> stored(static_cast<size_t>(k));
    for (int64_t i = 0; i < n; ++i) {
      coded.Values(i, stored.data());
      sums_[static_cast<size_t>(i)].lost = Lost(row(i), stored);
    }
    return coded;
  }

  static double Squares(std::span<const float> v) {
    double sum = 0;
    for (const float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
    return sum;
  }
  static double Lost(std::span<const float> w, std::span<const float> stored) {
    double sum = 0;
    for (size_t j = 0; j < w.size(); ++j) {
      const double d = static_cast<double>(w[j]) - static_cast<double>(stored[j]);
      sum += d * d;
    }
    return sum;
  }

  Result<GroupedCodes> Keep(const Tensor& t) const {
    GroupedCodes c = model::TakeApart(*t.grouped);
    c.bits = plan_.spec.bits;
    if (plan_.recipe.format != PackedFormat::kGptq) return c;
    if (std::find(c.zeros.begin(), c.zeros.end(), 0) != c.zeros.end())
      return Error(Code::kUnsupported, t.name + ": a zero point of 0, which GPTQ's first version cannot say", "choose --to gptq-v2");
    return c;
  }

  // What is known of E[x^2] of a matrix's input without data, by channel, in some unit: behind a norm, the square of its weights. Empty:
  // nothing.
  std::vector<float> InputPower(const Tensor& t) const {
    const Tensor* norm = nullptr;
    for (int layer = 0; layer < m_.config.n_layers && !norm; ++layer) {
      for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kQkv})
        if (m_.Find(role, layer) == &t) norm = m_.Find(Role::kAttnNorm, layer);
      for (const Role role : {Role::kGate, Role::kUp, Role::kGateUp})
        if (m_.Find(role, layer) == &t) norm = m_.Find(Role::kFfnNorm, layer);
    }
    if (!norm) return {};
    std::vector<float> u = model::DequantizeAll(*norm);
    for (float& x : u) x = (m_.config.norm_offset + x) * (m_.config.norm_offset + x);
    return u;
  }

  Result<double> ErrorOf(const Tensor& t) const {
    RowSums total;
    for (size_t i = 0; i < sums_.size(); ++i) {
      if (!std::isfinite(sums_[i].power))
        return Error(Code::kCorrupt, fmt::format("{}: {}: row {} holds NaN or infinity", m_.path, t.name, i),
                     "the weights are damaged: fetch or convert the model again");
      if (!std::isfinite(sums_[i].lost))
        return Error(Code::kUnsupported, fmt::format("{}: {}: row {} is beyond the range of f16 scales", m_.path, t.name, i),
                     "no format with f16 scales can hold it");
      total.lost += sums_[i].lost;
      total.power += sums_[i].power;
    }
    return total.power > 0 ? std::sqrt(total.lost / total.power) : 0.0;
  }

  const Model& m_;
  const FolderPlan& plan_;
  ThreadTeam& team_;
  std::vector<RowSums> sums_;
};

Status CopyTensor(const Model& m, const Tensor& t, model::safetensors::FileWriter& out) {
  for (size_t at = 0; at < t.data.size(); at += kPartBytes) {
    const auto part = t.data.subspan(at, std::min(kPartBytes, t.data.size() - at));
    SLM_RETURN_IF_ERROR(out.Data(part));
    m.DropPages(part);
  }
  return Ok();
}

}  // namespace

StoredForm FormOf(const FolderPlan& plan, int64_t k) {
  const int group = static_cast<int>(GroupOfWidth(plan, k));
  if (plan.recipe.storage != Storage::kGrid) return StoredForm::Of(plan.recipe.storage, group);
  return StoredForm::Of(BlockForm{.scheme = plan.spec.symmetric ? Scheme::kSymmetric : Scheme::kIntegerZero,
                                  .bits = plan.spec.bits,
                                  .group = group,
                                  .store = Store::kF16,
                                  .least_zero = plan.recipe.format == PackedFormat::kGptq ? 1 : 0});  // its first version keeps zero - 1
}

std::string CodesText(const FolderPlan& plan) {
  const bool rounds = plan.spec.inputs != model::hf::PackedInputs::kFloat;
  switch (plan.recipe.storage) {
    case Storage::kMxFp4: return "mxfp4";
    case Storage::kNvFp4: return "nvfp4";
    case Storage::kLpbq: return "lpbq";
    case Storage::kGrid: break;
  }
  return fmt::format("int{}{}", plan.spec.bits, rounds ? " (inputs int8)" : "");
}

uint64_t FolderPart::bytes() const {
  uint64_t n = dtype == "I64" || dtype == "F64"                       ? 8
               : dtype == "I8" || dtype == "U8" || dtype == "F8_E4M3" ? 1
               : dtype == "F16" || dtype == "BF16" || dtype == "I16"  ? 2
                                                                      : 4;
  for (const int64_t d : dims) n *= static_cast<uint64_t>(d);
  return n;
}

std::vector<FolderPart> PartsOf(const FolderPlan& plan, const FolderChoice& choice) {
  const Tensor& t = *choice.tensor;
  if (!choice.packed) return {{Part::kWhole, t.name, Info(t.dtype).name, t.dims}};
  const std::string stem = t.name.substr(0, t.name.size() - std::string_view("weight").size());
  const int bits = plan.spec.bits;
  const int64_t n = t.dims[0], k = t.dims[1], group = GroupOfWidth(plan, k), groups = (k + group - 1) / group, per_word = 32 / bits;
  // Scales of a source in bf16 or f32 keep their type where the format allows it.
  const bool keeps = plan.lossless && plan.recipe.format == PackedFormat::kCompressed;
  const std::string_view scale = keeps ? Info(ScaleTypeOf(*t.grouped)).name : plan.recipe.storage == Storage::kLpbq ? "F32" : "F16";
  switch (plan.recipe.format) {
    case PackedFormat::kAwq:
      return {{Part::kCodes, stem + "qweight", "I32", {k, n / 8}},
              {Part::kZeros, stem + "qzeros", "I32", {groups, n / 8}},
              {Part::kScales, stem + "scales", scale, {groups, n}}};
    case PackedFormat::kGptq:
    case PackedFormat::kGptqV2:
      return {{Part::kCodes, stem + "qweight", "I32", {k * bits / 32, n}},
              {Part::kZeros, stem + "qzeros", "I32", {groups, n * bits / 32}},
              {Part::kScales, stem + "scales", scale, {groups, n}},
              {Part::kGroupOf, stem + "g_idx", "I32", {k}}};
    case PackedFormat::kCompressed: break;
  }
  if (plan.spec.codes != model::hf::CodeType::kInt) {
    const bool nv = plan.spec.codes == model::hf::CodeType::kNvFp4;
    std::vector<FolderPart> parts = {{Part::kCodes, stem + "weight_packed", "U8", {n, k / 2}},
                                     {Part::kScales, stem + "weight_scale", nv ? "F8_E4M3" : "U8", {n, groups}}};
    if (nv) parts.push_back({Part::kGlobalScale, stem + "weight_global_scale", "F32", {1}});
    return parts;
  }
  if (plan.spec.inputs != model::hf::PackedInputs::kFloat) {
    std::vector<FolderPart> parts = {{Part::kCodes, stem + "weight", "I8", {n, k}},
                                     {Part::kScales, stem + "weight_scale", scale, {n, groups}}};
    if (plan.spec.inputs == model::hf::PackedInputs::kStatic) parts.push_back({Part::kInputScale, stem + "input_scale", "F32", {1}});
    return parts;
  }
  std::vector<FolderPart> parts = {{Part::kCodes, stem + "weight_packed", "I32", {n, (k + per_word - 1) / per_word}},
                                   {Part::kScales, stem + "weight_scale", scale, {n, groups}},
                                   {Part::kShape, stem + "weight_shape", "I64", {2}}};
  if (!plan.spec.symmetric) parts.push_back({Part::kZeros, stem + "weight_zero_point", "I32", {(n + per_word - 1) / per_word, groups}});
  if (plan.spec.act_order) parts.push_back({Part::kGroupOf, stem + "weight_g_idx", "I32", {k}});
  return parts;
}

uint64_t FolderNeedBytes(const Model& m, const FolderPlan& plan, const WriteOptions& options) {
  uint64_t most = kPartBytes;
  std::map<int, uint64_t> in_layer;  // weights that are packed
  for (const FolderChoice& c : plan.choices) {
    if (!c.packed) continue;
    const auto n = static_cast<uint64_t>(c.tensor->n_values());
    // Codes as bytes, packed words, scales and zeros twice; the floats of FP4, which takes whole matrices.
    most = std::max(most, n * (FormOf(plan, c.tensor->dims[1]).is_fp4() ? 8 : 3));
    in_layer[c.layer] += n;
  }
  if (!plan.recipe.how.calibrated() || !options.text) return kFixedBytes + most;
  uint64_t layer = 0;
  for (const auto& [index, n] : in_layer) layer = std::max(layer, n);
  return kFixedBytes + most + 3 * layer +  // the codes and grids of two candidates
         CalibrationBytes(m, plan.recipe.how, options.text->tokens(), options.text->longest(), options.n_threads);
}

namespace {
CalibrationTask TaskOf(const FolderPlan& plan) {
  using backend::InputRounding;
  using model::hf::PackedInputs;
  CalibrationTask task{.recipe = plan.recipe.how, .matrices = {}, .vectors = VectorTypes::kOwn};
  if (plan.spec.inputs == PackedInputs::kDynamic) task.inputs = InputRounding::kPerToken;
  if (plan.spec.inputs == PackedInputs::kStatic) task.inputs = InputRounding::kStatic;
  task.range = plan.recipe.range;
  for (const FolderChoice& c : plan.choices)
    if (c.packed && c.layer >= 0) task.matrices[c.tensor] = FormOf(plan, c.tensor->dims[1]);
  return task;
}
}  // namespace

Result<FolderReport> WriteFolder(const Model& m, const FolderPlan& plan, const WriteOptions& options,
                                 const model::safetensors::ByteSink& sink) {
  if (options.n_threads < 1) return Error(Code::kInvalidArgument, fmt::format("{} threads", options.n_threads), "ask for at least 1");
  SLM_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create(options.n_threads));
  model::safetensors::FileWriter out;
  for (const FolderChoice& c : plan.choices)
    for (const FolderPart& p : PartsOf(plan, c)) out.Tensor(p.name, p.dtype, p.dims, p.bytes());
  SLM_RETURN_IF_ERROR(out.Begin(sink));
  FolderReport report;
  MatrixMaker maker(m, plan, *team);
  CalibratedTensors layers(m, TaskOf(plan), options, {team.get(), options.isa});
  uint64_t written = 0;
  for (const FolderChoice& c : plan.choices) {
    FolderTensorReport r{c.tensor->name, std::string(model::TypeName(*c.tensor)), std::string(model::TypeName(*c.tensor)), 0, 0};
    const std::vector<FolderPart> parts = PartsOf(plan, c);
    SLM_ASSIGN_OR_RETURN(StoredTensor * stored, layers.Find(c.tensor, c.layer));
    if (c.packed) {
      PackedCodes codes;
      if (stored) {
        r.error = stored->error;
        codes = CodesOf(std::move(stored->coded));
        codes.input_most = stored->input_most;
      } else {
        SLM_ASSIGN_OR_RETURN(codes, maker.Make(*c.tensor, &r.error));
      }
      r.scheme = fmt::format("{} in groups of {}", CodesText(plan), codes.codes.group);
      for (const FolderPart& p : parts) SLM_RETURN_IF_ERROR(WritePart(p, plan, codes, out));
      m.DropPages(*c.tensor);
    } else if (stored) {
      SLM_RETURN_IF_ERROR(out.Data(stored->bytes));
    } else {
      SLM_RETURN_IF_ERROR(CopyTensor(m, *c.tensor, out));
    }
    for (const FolderPart& p : parts) r.bytes += p.bytes();
    written += r.bytes;
    report.tensors.push_back(std::move(r));
    if (options.progress) options.progress(written);
  }
  report.layers = layers.TakeReports();
  SLM_RETURN_IF_ERROR(out.Finish());
  report.bytes = out.bytes_written();
  return report;
}

}  // namespace slm::quant
