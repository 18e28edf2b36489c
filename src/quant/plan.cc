// Which tensor gets which type: the recipe, the widths, the budget. See quant.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "quant/allocation/sensitivity.h"
#include "quant/ggml_blocks.h"
#include "quant/quant.h"
#include "quant/trained_grids.h"

namespace slm::quant {
namespace {
using model::Model;
using model::Role;
using model::Tensor;

uint64_t BytesOf(const Choice& c) { return RowBytes(c.dtype, static_cast<uint64_t>(c.tensor->n_values())); }
uint64_t WeightsOf(const Choice& c) { return static_cast<uint64_t>(c.tensor->n_values()); }
double BitsPer(uint64_t bytes, uint64_t weights) {
  return weights == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
}

// What a tensor is for; kCount: nothing that this build knows.
struct Use {
  Role role = Role::kCount;
  int layer = -1;
};
std::vector<Use> UsesOfTensors(const Model& m) {
  constexpr size_t kRoles = static_cast<size_t>(Role::kCount);
  std::vector<Use> uses(m.tensors.size());
  for (size_t i = 0; i < m.role_index.size(); ++i)
    if (m.role_index[i] >= 0)
      uses[static_cast<size_t>(m.role_index[i])] = {static_cast<Role>(i % kRoles), static_cast<int>(i / kRoles) - 1};
  return uses;
}

bool SameValues(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.dims == b.dims && a.data.size() == b.data.size() &&
         std::memcmp(a.data.data(), b.data.data(), a.data.size()) == 0;
}

class Planner {
 public:
  Planner(const Model& m, const Recipe& recipe, SourceTypes source) : m_(m), source_(source) { plan_.recipe = recipe; }

  Result<Plan> Run() {
    SLM_RETURN_IF_ERROR(CheckRecipe());
    SLM_RETURN_IF_ERROR(CheckSource());
    const std::vector<Use> uses = UsesOfTensors(m_);
    const Tensor *embedding = m_.Find(Role::kEmbedding), *head = m_.Find(Role::kHead);
    const bool twice = head && embedding && head != embedding && SameValues(*head, *embedding);
    for (const Tensor* t : {embedding, head})  // comparing has read them, and the head may never be read again
      if (twice) m_.DropPages(*t);
    for (size_t i = 0; i < uses.size(); ++i) {
      const Tensor& t = m_.tensors[i];
      if (twice && &t == head) plan_.notes.push_back(t.name + " equals " + embedding->name + ": stored once");
      else if (!t.foreign_type.empty())
        plan_.notes.push_back(t.name + " (" + std::string(t.foreign_type) + ") is left out: nothing is computed from it");
      else SLM_RETURN_IF_ERROR(Add(t, uses[i]));
    }
    if (plan_.recipe.allocates()) {
      SLM_RETURN_IF_ERROR(CheckTypes());
    } else {
      HoldBody();
      SLM_RETURN_IF_ERROR(CheckBody(plan_));
    }
    SLM_RETURN_IF_ERROR(MeasureLattices());
    for (const auto& [what, count] : fallbacks_) plan_.notes.push_back(fmt::format("{} ({})", what, count));
    if (plan_.recipe.bpw > 0 && !plan_.recipe.allocates()) SLM_RETURN_IF_ERROR(SpendBudget());
    if (plan_.recipe.calibrated())  // one layer is in memory at a time
      std::stable_sort(plan_.choices.begin(), plan_.choices.end(), [](const Choice& a, const Choice& b) { return a.layer < b.layer; });
    return std::move(plan_);
  }

 private:
  // Each matrix whose type is chosen has one to choose.
  Status CheckTypes() const {
    for (const Choice& c : plan_.choices) {
      const int64_t width = c.tensor->dims.back();
      const auto fits = [&](DType t) { return width % Info(t).block == 0; };
      if (IsAllocated(c, plan_.recipe) && std::none_of(plan_.recipe.types.begin(), plan_.recipe.types.end(), fits))
        return Error(Code::kInvalidArgument,
                     fmt::format("{}: its width {} does not divide into the blocks of any type to choose", c.tensor->name, width),
                     "name one with blocks of 32 too: q4_0, q4_1, q5_0, q5_1 or q8_0");
    }
    return CheckSmallest();
  }
  // Budgets that not even the smallest types keep to are refused before anything is measured.
  Status CheckSmallest() const {
    Plan smallest = plan_;
    for (Choice& c : smallest.choices) {
      if (!IsAllocated(c, plan_.recipe)) continue;
      c.dtype = DType::kF32;
      for (const DType t : plan_.recipe.types)
        if (c.tensor->dims.back() % Info(t).block == 0 && Bits(t) < Bits(c.dtype)) c.dtype = t;
    }
    if (plan_.recipe.bpw > 0 && smallest.bpw() > plan_.recipe.bpw) return TooFewBits("--bpw", plan_.recipe.bpw, smallest.bpw());
    return CheckBody(smallest);
  }
  static double Bits(DType t) { return BitsPer(Info(t).block_bytes, Info(t).block); }
  static Status TooFewBits(const char* option, double asked, double taken) {
    return Error(Code::kLimit, fmt::format("{} {:.3f}: the types take {:.3f} bits per weight at least", option, asked, taken),
                 fmt::format("raise {}, or choose smaller types", option));
  }
  // A limit of the user's; the usual one gives way.
  Status CheckBody(const Plan& plan) const {
    const Recipe& r = plan_.recipe;
    return r.body_bpw > 0 && !r.body_bpw_is_wish && plan.body_bpw() > r.body_bpw ? TooFewBits("--body-bpw", r.body_bpw, plan.body_bpw())
                                                                                 : Ok();
  }
  Status CheckRecipe() const {
    for (const DType t : {plan_.recipe.body, plan_.recipe.head})
      if (!CanEncode(t))
        return Error(Code::kInvalidArgument, std::string(Info(t).name) + " cannot be written",
                     "choose F16, Q8_0, Q6_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0 or MXFP4");
    return Ok();
  }
  Status CheckSource() const {
    if (m_.format == "gguf") return Ok();
    return Error(Code::kUnsupported, m_.path + ": a " + m_.format + " cannot be quantized", "name a float GGUF file or model folder");
  }

  Status Add(const Tensor& t, const Use& use) {
    const Role role = use.role;
    const bool body = model::IsLayerMatrix(role), head = role == Role::kEmbedding || role == Role::kHead;
    if (!body && !head) {
      const bool to_float = t.dtype == DType::kF16 || t.dtype == DType::kBF16 || t.dtype == DType::kF64;
      plan_.choices.push_back({&t, to_float && role != Role::kCount ? DType::kF32 : t.dtype, false, use.layer});
      return Ok();
    }
    const DType wanted = body ? plan_.recipe.body : plan_.recipe.head;
    const DType dtype = FittingType(wanted, t.dims.back());
    if (Info(t.dtype).block > 1 && t.dtype != dtype && source_ == SourceTypes::kFloatOnly && !KeepsValues(t.dtype, dtype, plan_.recipe))
      return Error(
          Code::kUnsupported,
          fmt::format("{}: {} is already {} ({:.1f} bits); as {} it would lose again what rounding costs, on top of what is gone", m_.path,
                      t.name, Info(t.dtype).name, BitsPer(Info(t.dtype).block_bytes, Info(t.dtype).block), Info(dtype).name),
          KeepsValues(t.dtype, DType::kQ4_0, plan_.recipe) ? "--type q4_0 keeps its values; --requantize accepts the loss"
                                                           : "quantize the float model, or accept the loss with --requantize");
    if (dtype != wanted) ++fallbacks_[body && plan_.recipe.allocates() ? Unfit(t, dtype) : StandIn(t, dtype, wanted)];
    plan_.choices.push_back({&t, dtype, body, use.layer, head});
    return Ok();
  }

  Status MeasureLattices() {
    std::vector<const Tensor*> body;
    for (const Choice& c : plan_.choices)
      if (c.is_body) body.push_back(c.tensor);
    SLM_ASSIGN_OR_RETURN(const std::string note, NoteLattices(m_, body, plan_.recipe, source_));
    if (!note.empty()) plan_.notes.push_back(note);
    return Ok();
  }

  static std::string StandIn(const Tensor& t, DType dtype, DType wanted) {
    return fmt::format("width {} does not divide into blocks of {}: {} instead of {}", t.dims.back(), Info(wanted).block, Info(dtype).name,
                       Info(wanted).name);
  }

  // Of a matrix whose type is chosen later: what it cannot become.
  static std::string Unfit(const Tensor& t, DType dtype) {
    return fmt::format("width {} does not divide into blocks of {}: {}", t.dims.back(), dtype == DType::kF16 ? 32 : 256,
                       dtype == DType::kF16 ? "F16" : "none of Q4_K, Q6_K");
  }

  // Stand-ins with a minimum lose it until the layers keep to body_bpw: first what suffers least from it, in each kind of matrix the
  // middle layers first.
  void HoldBody() {
    if (plan_.recipe.body_bpw <= 0 || plan_.recipe.body != DType::kQ4_K) return;
    uint64_t bytes = 0, weights = 0;
    for (const Choice& c : plan_.choices) {
      if (!c.is_body) continue;
      bytes += BytesOf(c);
      weights += WeightsOf(c);
    }
    const double most = plan_.recipe.body_bpw / 8 * static_cast<double>(weights);
    const int n = m_.config.n_layers;
    for (const Role role : {Role::kQ, Role::kUp, Role::kGate, Role::kGateUp, Role::kK, Role::kQkv, Role::kO, Role::kV, Role::kDown})
      for (int i = 0; i<n&& static_cast<double>(bytes)> most; ++i) {
        const int layer = n / 2 + (i % 2 == 0 ? i / 2 : -(i + 1) / 2);  // the middle, then its neighbours in turn
        const Tensor* t = m_.Find(role, layer);
        const auto c = std::find_if(plan_.choices.begin(), plan_.choices.end(), [&](const Choice& x) { return x.tensor == t; });
        if (!t || c == plan_.choices.end() || c->dtype != DType::kQ4_1 || t->dtype == DType::kQ4_1) continue;
        bytes -= BytesOf(*c);
        --fallbacks_[StandIn(*t, c->dtype, DType::kQ4_K)];
        c->dtype = DType::kQ4_0;
        ++fallbacks_[StandIn(*t, c->dtype, DType::kQ4_K)];
        bytes += BytesOf(*c);
      }
    std::erase_if(fallbacks_, [](const auto& f) { return f.second == 0; });
  }

  // In the order in which they earn more bits.
  std::vector<const Tensor*> Picks() const {
    std::vector<const Tensor*> out;
    const int n = m_.config.n_layers, edge = std::max(1, n / 8);
    const auto add = [&](Role role, int layer) {
      if (const Tensor* t = m_.Find(role, layer)) out.push_back(t);
    };
    for (int layer = 0; layer < n; ++layer) add(Role::kV, layer);
    for (int i = 0; i < edge && i < n; ++i) {
      add(Role::kDown, i);
      if (n - 1 - i > i) add(Role::kDown, n - 1 - i);
    }
    return out;
  }
  Status SpendBudget() {
    const double budget = plan_.recipe.bpw;
    if (plan_.bpw() > budget)
      return Error(Code::kLimit, fmt::format("{:.3f} bits per weight are asked for, the types take {:.3f}", budget, plan_.bpw()),
                   "raise --bpw, or choose a smaller --type or --head");
    const double most = budget / 8 * static_cast<double>(plan_.weights());
    uint64_t bytes = plan_.data_bytes(), body = 0, body_weights = 0;
    for (const Choice& c : plan_.choices)
      if (c.is_body) {
        body += BytesOf(c);
        body_weights += WeightsOf(c);
      }
    const bool limited = plan_.recipe.body_bpw > 0 && !plan_.recipe.body_bpw_is_wish;
    std::map<std::string, int> picked;  // what is in a layer, without the layer
    for (const Tensor* t : Picks()) {
      const auto c = std::find_if(plan_.choices.begin(), plan_.choices.end(), [&](const Choice& x) { return x.tensor == t; });
      const Choice better{t, FittingType(DType::kQ6_K, t->dims.back()), true, c == plan_.choices.end() ? -1 : c->layer};
      if (c == plan_.choices.end() || BytesOf(better) <= BytesOf(*c)) continue;
      if (Info(t->dtype).block > 1 && c->dtype == t->dtype) continue;  // it is kept as it is: more bits would hold nothing
      if (static_cast<double>(bytes + BytesOf(better) - BytesOf(*c)) > most) break;
      body += BytesOf(better) - BytesOf(*c);
      if (limited && BitsPer(body, body_weights) > plan_.recipe.body_bpw) break;
      bytes += BytesOf(better) - BytesOf(*c);
      ++picked[fmt::format("{} as {}", t->name.substr(std::min(t->name.find('.', 4), t->name.size() - 1) + 1), Info(better.dtype).name)];
      *c = better;
    }
    for (const auto& [what, count] : picked) plan_.notes.push_back(fmt::format("the budget holds {} in {} layers", what, count));
    return Ok();
  }

  const Model& m_;
  const SourceTypes source_;
  Plan plan_;
  std::map<std::string, int> fallbacks_;
};

}  // namespace

uint64_t Plan::weights() const {
  uint64_t n = 0;
  for (const Choice& c : choices) n += WeightsOf(c);
  return n;
}
uint64_t Plan::data_bytes() const {
  uint64_t n = 0;
  for (const Choice& c : choices) n += BytesOf(c);
  return n;
}
double Plan::bpw() const { return BitsPer(data_bytes(), weights()); }
double Plan::body_bpw() const {
  uint64_t bytes = 0, n = 0;
  for (const Choice& c : choices) {
    if (!c.is_body) continue;
    bytes += BytesOf(c);
    n += WeightsOf(c);
  }
  return BitsPer(bytes, n);
}

Result<Plan> PlanTensors(const Model& m, const Recipe& recipe, SourceTypes source) { return Planner(m, recipe, source).Run(); }

}  // namespace slm::quant
