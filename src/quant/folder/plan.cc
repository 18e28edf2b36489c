// What becomes of every tensor of a folder that is packed. See folder.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/grouped/grouped.h"
#include "quant/folder/folder.h"
#include "quant/folder/parts.h"
#include "quant/schemes.h"
#include "quant/trained_grids.h"

namespace slm::quant {
namespace {
using model::GroupedMatrix;
using model::Model;
using model::Role;
using model::Tensor;
using model::hf::PackedFormat;

class Planner {
 public:
  Planner(const Model& m, const FolderRecipe& recipe, SourceTypes source) : m_(m), source_(source) {
    plan_.recipe = recipe;
    plan_.spec.format = recipe.format;
  }

  Result<FolderPlan> Run() {
    if (m_.format != "hf")
      return Error(Code::kUnsupported, m_.path + ": a " + m_.format + " file cannot become a folder of packed weights",
                   "name the model's Hugging Face folder");
    SLM_RETURN_IF_ERROR(CheckRecipe());
    Gather();
    if (matrices_.empty()) return Error(Code::kUnsupported, m_.path + ": no matrices in the layers", "name a language model");
    const bool grouped = std::any_of(matrices_.begin(), matrices_.end(), [](const Tensor* t) { return t->grouped != nullptr; });
    if (grouped && source_ == SourceTypes::kFloatOnly) SLM_RETURN_IF_ERROR(KeepGroups());
    else SLM_RETURN_IF_ERROR(NewGroups());
    for (const Tensor* t : matrices_) SLM_RETURN_IF_ERROR(CheckShape(*t));
    NameFloats();
    if (plan_.recipe.how.calibrated())  // one layer is in memory at a time
      std::stable_sort(plan_.choices.begin(), plan_.choices.end(),
                       [](const FolderChoice& a, const FolderChoice& b) { return a.layer < b.layer; });
    return std::move(plan_);
  }

 private:
  // Storages and rounded inputs: which format and recipe they need.
  Status CheckRecipe() {
    using model::hf::CodeType;
    using model::hf::PackedInputs;
    FolderRecipe& r = plan_.recipe;
    const bool rounds = r.inputs != PackedInputs::kFloat, grid = r.storage == Storage::kGrid;
    if (r.format != PackedFormat::kCompressed && (rounds || !grid))
      return Error(Code::kInvalidArgument, "this format has integer codes and float activations only", "choose --to compressed-tensors");
    if (rounds && !grid) return Error(Code::kInvalidArgument, "rounded activations go with integer weights", "leave --activations out");
    if (rounds && r.bits != 0 && r.bits != 4 && r.bits != 8)
      return Error(Code::kInvalidArgument, fmt::format("{} bits and rounded activations", r.bits), "weights have 4 or 8 bits then");
    if (r.inputs == PackedInputs::kStatic && !r.how.calibrated())
      return Error(Code::kInvalidArgument, "static activations, and a recipe that sees none: " + r.how.name,
                   "add --recipe default or best, or choose --activations dynamic");
    if (r.down_bits > 0 &&
        (r.format != PackedFormat::kCompressed || rounds || r.storage == Storage::kMxFp4 || r.storage == Storage::kNvFp4))
      return Error(Code::kInvalidArgument, "down projections of their own bits go with integer codes and float activations",
                   "choose --to compressed-tensors with such a scheme");
    plan_.spec.inputs = r.inputs;
    plan_.spec.codes = r.storage == Storage::kMxFp4 ? CodeType::kMxFp4 : r.storage == Storage::kNvFp4 ? CodeType::kNvFp4 : CodeType::kInt;
    if (rounds || !grid) r.symmetric = true;
    return Ok();
  }

  void Gather() {
    constexpr size_t kRoles = static_cast<size_t>(Role::kCount);
    std::set<size_t> linear;
    std::map<size_t, int> layers;
    for (size_t i = 0; i < m_.role_index.size(); ++i) {
      if (m_.role_index[i] < 0) continue;
      layers[static_cast<size_t>(m_.role_index[i])] = static_cast<int>(i / kRoles) - 1;
      const auto role = static_cast<Role>(i % kRoles);
      if (model::IsLayerMatrix(role)) linear.insert(static_cast<size_t>(m_.role_index[i]));
      if (role == Role::kDown && plan_.recipe.down_bits > 0) down_.insert(&m_.tensors[static_cast<size_t>(m_.role_index[i])]);
    }
    for (size_t i = 0; i < m_.tensors.size(); ++i) {
      const Tensor& t = m_.tensors[i];
      const int layer = layers.contains(i) ? layers[i] : -1;
      const bool packed = linear.contains(i) && (t.grouped || source_ == SourceTypes::kAny || !AnyGrouped());
      if (!t.foreign_type.empty() && !t.grouped)
        plan_.notes.push_back(fmt::format("{} ({}) is left out: nothing is computed from it", t.name, t.foreign_type));
      else if (t.grouped && !packed) plan_.choices.push_back({&t, true, layer});  // an embedding or a head in groups
      else plan_.choices.push_back({&t, packed, layer});
      if (!plan_.choices.empty() && plan_.choices.back().tensor == &t && plan_.choices.back().packed) matrices_.push_back(&t);
    }
  }
  bool AnyGrouped() const {
    return std::any_of(m_.tensors.begin(), m_.tensors.end(), [](const Tensor& t) { return t.grouped != nullptr; });
  }

  static Error CannotKeep(const Tensor& t, const std::string& why) {
    return Error(Code::kUnsupported, fmt::format("{}: {}: its values would change", t.name, why),
                 "choose another format, start from the float model, or accept the loss with --requantize");
  }

  // All matrices are in groups already: the format must have room for every one as it is.
  Status KeepGroups() {
    if (plan_.recipe.how.calibrated())
      return Error(Code::kUnsupported,
                   fmt::format("--recipe {}: the weights are {} already, and are kept exactly", plan_.recipe.how.name,
                               model::TypeName(*matrices_[0])),
                   "leave --recipe out, start from the float model, or accept the loss with --requantize");
    const GroupedMatrix& first = *matrices_[0]->grouped;
    model::hf::PackedSpec& s = plan_.spec;
    s.bits = first.bits;
    for (const Tensor* t : matrices_)
      if (t->grouped->n_groups > 1) s.group = t->grouped->group;
    s.act_order = !first.group_of.empty();
    s.symmetric = true;
    const PackedFormat to = plan_.recipe.format;
    if (to == PackedFormat::kAwq) s.bits = std::max(s.bits, 4);
    if (to == PackedFormat::kCompressed && s.bits == 3) s.bits = 4;
    for (const Tensor* t : matrices_) {
      const GroupedMatrix& g = *t->grouped;
      if (g.bits > s.bits || g.bits != first.bits || (to == PackedFormat::kAwq && g.bits > 4))
        return CannotKeep(*t, fmt::format("{} bits", g.bits));
      const bool fits = g.n_groups > 1 ? g.group == s.group : s.group == 0 || g.k <= s.group;
      if (!fits) return CannotKeep(*t, "groups of another size");
      if (!g.group_of.empty() && to == PackedFormat::kAwq) return CannotKeep(*t, "columns in the order of activations");
      if (!g.facts.half_scales && to != PackedFormat::kCompressed) return CannotKeep(*t, "scales that are no f16");
      s.act_order = s.act_order || !g.group_of.empty();
      const int middle = 1 << (s.bits - 1);
      s.symmetric = s.symmetric && g.facts.lowest == -middle && g.facts.highest == (1 << g.bits) - 1 - middle;
    }
    if (plan_.recipe.storage != Storage::kGrid) return CannotKeep(*matrices_[0], "no FP4 or LPBQ");
    if (plan_.spec.inputs != model::hf::PackedInputs::kFloat && (!s.symmetric || s.act_order || (s.bits != 4 && s.bits != 8)))
      return CannotKeep(*matrices_[0], "zero points or columns out of order, which rounded activations do not go with");
    plan_.lossless = true;
    return Ok();
  }

  Status NewGroups() {
    model::hf::PackedSpec& s = plan_.spec;
    s.bits = plan_.recipe.bits == 0 ? 4 : plan_.recipe.bits;
    s.symmetric = plan_.recipe.symmetric;
    s.group = plan_.recipe.group;
    NameDown();
    for (const Tensor* t : matrices_) {
      const bool packed = t->grouped || Info(t->dtype).block > 1;
      if (packed && source_ == SourceTypes::kFloatOnly) return CannotKeep(*t, fmt::format("is already {}", model::TypeName(*t)));
      if (down_.contains(t)) continue;
      while (s.group > 16 && t->dims[1] % s.group != 0) s.group /= 2;
      if (s.group > 0 && t->dims[1] % s.group != 0)
        return Error(Code::kUnsupported, fmt::format("{}: width {} does not divide into groups of {}", t->name, t->dims[1], s.group),
                     "choose --group -1: a scale a row");
      if (plan_.spec.codes != model::hf::CodeType::kInt && s.group != plan_.recipe.group)
        return Error(Code::kUnsupported,
                     fmt::format("{}: width {} does not divide into groups of {}", t->name, t->dims[1], plan_.recipe.group),
                     "choose integer codes: --bits 4");
    }
    if (s.group != plan_.recipe.group)
      plan_.notes.push_back(fmt::format("groups of {}: {} does not divide every width", s.group, plan_.recipe.group));
    SLM_ASSIGN_OR_RETURN(const std::string note, NoteLattices(m_, matrices_, plan_.recipe.how, source_));
    if (!note.empty()) plan_.notes.push_back(note);
    return Ok();
  }

  void NameDown() {
    for (FolderChoice& c : plan_.choices) {
      c.is_down = c.packed && down_.contains(c.tensor);
      if (!c.is_down) continue;
      plan_.spec.row_bits = plan_.recipe.down_bits;
      plan_.spec.row_modules.push_back(c.tensor->name.substr(0, c.tensor->name.size() - std::string_view(".weight").size()));
    }
  }

  // Words of 32 bits must come out even; the formats of one config hold all matrices.
  Status CheckShape(const Tensor& t) const {
    const int bits = down_.contains(&t) && !plan_.lossless ? plan_.recipe.down_bits : plan_.spec.bits;
    const int64_t n = t.dims[0], k = t.dims[1];
    const PackedFormat to = plan_.recipe.format;
    const bool transposed = to != PackedFormat::kCompressed;
    const bool known = to == PackedFormat::kAwq ? bits == 4 : to == PackedFormat::kCompressed ? bits == 4 || bits == 8 || bits == 2 : true;
    if (!known || (bits != 2 && bits != 3 && bits != 4 && bits != 8))
      return Error(Code::kUnsupported, fmt::format("{} bits in this format", bits),
                   to == PackedFormat::kAwq          ? "AWQ has 4"
                   : to == PackedFormat::kCompressed ? "compressed-tensors: 4 or 8"
                                                     : "GPTQ has 2, 3, 4, 8");
    if (transposed && (n * bits % 32 != 0 || (to != PackedFormat::kAwq && k * bits % 32 != 0)))
      return Error(Code::kUnsupported, fmt::format("{}: [{}, {}] does not fill words of 32 bits with {} bits", t.name, n, k, bits),
                   "choose --to compressed-tensors");
    return Ok();
  }

  // Linear layers that stay float, by module.
  void NameFloats() {
    std::vector<std::string>& names = plan_.spec.left_float;
    for (const FolderChoice& c : plan_.choices)
      if (!c.packed && c.tensor->dims.size() == 2 && c.tensor->name.ends_with(".weight") &&
          c.tensor->name.find("embed_tokens") == std::string::npos)
        names.push_back(c.tensor->name.substr(0, c.tensor->name.size() - 7));
    if (std::none_of(names.begin(), names.end(), [](const std::string& n) { return n.ends_with("lm_head"); }) &&
        std::none_of(matrices_.begin(), matrices_.end(), [](const Tensor* t) { return t->name.ends_with("lm_head.weight"); }))
      names.emplace_back("lm_head");
  }

  const Model& m_;
  const SourceTypes source_;
  FolderPlan plan_;
  std::vector<const Tensor*> matrices_;
  std::set<const Tensor*> down_;  // down projections with bits of their own
};

double Bits(uint64_t bytes, uint64_t weights) { return weights == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(weights); }

}  // namespace

Status SetScheme(std::string_view name, FolderRecipe* recipe) {
  SLM_ASSIGN_OR_RETURN(const WeightScheme s, ParseScheme(name));
  const bool grid = s.storage == Storage::kGrid;
  if (grid && s.grid != Scheme::kSymmetric && s.grid != Scheme::kIntegerZero)
    return Error(Code::kInvalidArgument, fmt::format("--scheme {}: folders have no such grid", name), "choose sym or zp");
  recipe->storage = s.storage;
  recipe->bits = s.bits;
  recipe->group = s.group;
  recipe->symmetric = !grid || s.grid == Scheme::kSymmetric;
  return Ok();
}

std::string SchemeOf(const FolderRecipe& recipe) {
  return SchemeName({.storage = recipe.storage,
                     .grid = recipe.symmetric ? Scheme::kSymmetric : Scheme::kIntegerZero,
                     .bits = recipe.bits == 0 ? 4 : recipe.bits,
                     .group = static_cast<int>(recipe.group)});
}

Result<FolderPlan> PlanFolder(const Model& m, const FolderRecipe& recipe, SourceTypes source) { return Planner(m, recipe, source).Run(); }

uint64_t FolderPlan::data_bytes() const {
  uint64_t n = 0;
  for (const FolderChoice& c : choices)
    for (const FolderPart& p : PartsOf(*this, c)) n += p.bytes();
  return n;
}
double FolderPlan::bpw() const {
  uint64_t weights = 0;
  for (const FolderChoice& c : choices) weights += static_cast<uint64_t>(c.tensor->n_values());
  return Bits(data_bytes(), weights);
}
double FolderPlan::body_bpw() const {
  uint64_t bytes = 0, weights = 0;
  for (const FolderChoice& c : choices) {
    if (!c.packed) continue;
    weights += static_cast<uint64_t>(c.tensor->n_values());
    for (const FolderPart& p : PartsOf(*this, c)) bytes += p.bytes();
  }
  return Bits(bytes, weights);
}

}  // namespace slm::quant
