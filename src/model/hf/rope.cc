// See rope.h.
#include "model/hf/rope.h"

#include <cmath>

#include "model/hf/keys.h"

namespace slm::model::hf {
namespace {

using Json = nlohmann::json;

Result<std::vector<float>> ReadFactors(const Keys& params, const char* name) {
  std::vector<float> out;
  SLM_ASSIGN_OR_RETURN(const Json* list, params.List(name));
  if (!list) return out;
  for (const Json& v : *list) {
    if (!v.is_number()) return Keys::Wrong(name, "a list of numbers");
    out.push_back(static_cast<float>(v.get<double>()));
  }
  return out;
}

// LongRoPE (arXiv 2402.13753): two lists of factors, and a factor on cos and sin that follows from how far the context was
// stretched unless the file states it.
Status ReadLongRope(const Keys& config, const Keys& params, int max_context, RopeConfig* r) {
  r->scaling = RopeScaling::kLongRope;
  SLM_ASSIGN_OR_RETURN(r->long_factors, ReadFactors(params, "long_factor"));
  SLM_ASSIGN_OR_RETURN(r->short_factors, ReadFactors(params, "short_factor"));
  r->original_context = max_context;
  SLM_RETURN_IF_ERROR(params.Int("original_max_position_embeddings", &r->original_context));
  SLM_RETURN_IF_ERROR(config.Int("original_max_position_embeddings", &r->original_context));
  if (r->original_context < 2) return Keys::Wrong("original_max_position_embeddings", "a context length");
  double stretch = static_cast<double>(max_context) / r->original_context;
  SLM_RETURN_IF_ERROR(params.Float("factor", &stretch));
  r->attention_factor = stretch <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(stretch) / std::log(static_cast<double>(r->original_context)));
  return params.Float("attention_factor", &r->attention_factor);
}

Status ReadLlama3(const Keys& params, int max_context, RopeConfig* r) {
  r->scaling = RopeScaling::kLlama3;
  r->original_context = max_context;
  for (const char* name : {"factor", "low_freq_factor", "high_freq_factor"})
    if (!params.Has(name)) return Keys::Wrong(name, "there, and this rope type needs it");
  SLM_RETURN_IF_ERROR(params.Float("factor", &r->factor));
  SLM_RETURN_IF_ERROR(params.Float("low_freq_factor", &r->low_freq_factor));
  SLM_RETURN_IF_ERROR(params.Float("high_freq_factor", &r->high_freq_factor));
  return params.Int("original_max_position_embeddings", &r->original_context);
}

// One set of parameters. `config` supplies what older files keep outside of it, `c` the widths.
Status ReadParameters(const Keys& config, const Json& object, const Architecture& arch, const ModelConfig& c, RopeConfig* r) {
  const Keys params(object);
  double partial = 1.0;
  SLM_RETURN_IF_ERROR(config.Float("partial_rotary_factor", &partial));
  SLM_RETURN_IF_ERROR(params.Float("partial_rotary_factor", &partial));
  if (!(partial > 0 && partial <= 1)) return Keys::Wrong("partial_rotary_factor", "a fraction of the head width");
  if (partial < 1 && arch.partial_rotary == Feature::kNo)
    return Keys::Wrong("partial_rotary_factor", fmt::format("1, but {}: models of this type rotate whole heads", partial));
  r->rotary_dim = static_cast<int>(c.head_dim * partial);
  SLM_RETURN_IF_ERROR(params.Float("rope_theta", &r->theta));
  std::string type = "default";
  SLM_RETURN_IF_ERROR(params.Text("type", &type));
  SLM_RETURN_IF_ERROR(params.Text("rope_type", &type));
  SLM_ASSIGN_OR_RETURN(const RopeScaling scaling,
                       RopeScalingByName(type, params.Has("long_factor") ? FactorLists::kYes : FactorLists::kNo));
  switch (scaling) {
    case RopeScaling::kNone: return Ok();
    case RopeScaling::kLlama3: return ReadLlama3(params, c.max_context, r);
    case RopeScaling::kLongRope: return ReadLongRope(config, params, c.max_context, r);
    case RopeScaling::kLinear: break;
  }
  r->scaling = RopeScaling::kLinear;
  if (!params.Has("factor")) return Keys::Wrong("factor", "there, and linear rope scaling needs it");
  return params.Float("factor", &r->factor);
}

}  // namespace

Status ReadRope(const Json& config, const Architecture& arch, ModelConfig* c) {
  const Keys keys(config);
  const Json none = Json::object();
  c->rope.theta = arch.hf_defaults.rope.theta;
  SLM_RETURN_IF_ERROR(keys.Float("rope_theta", &c->rope.theta));
  SLM_ASSIGN_OR_RETURN(const Json* scaling, keys.Object("rope_scaling"));
  SLM_ASSIGN_OR_RETURN(const Json* parameters, keys.Object("rope_parameters"));
  // Where a file states both, transformers takes the older name, which counts for global layers where the newer one tells kinds apart.
  const bool scaled = scaling && !scaling->empty();
  Json chosen = parameters ? *parameters : scaled ? *scaling : none;
  const bool by_kind = chosen.contains("full_attention") || chosen.contains("sliding_attention");
  if (parameters && scaled && !by_kind) chosen = *scaling;
  if (parameters && scaled && by_kind && chosen["full_attention"].is_object()) chosen["full_attention"].update(*scaling);
  SLM_ASSIGN_OR_RETURN(const Json* global, Keys(chosen).Object("full_attention"));
  SLM_ASSIGN_OR_RETURN(const Json* local, Keys(chosen).Object("sliding_attention"));
  const bool nested = global || local;
  if (!nested) global = &chosen;
  RopeConfig base = c->rope;
  SLM_RETURN_IF_ERROR(ReadParameters(keys, global ? *global : none, arch, *c, &c->rope));
  if (!nested && arch.local_theta == 0) {
    c->rope_local = c->rope;
    return Ok();
  }
  if (arch.local_theta != 0) base.theta = arch.local_theta;
  SLM_RETURN_IF_ERROR(keys.Float("rope_local_base_freq", &base.theta));
  c->rope_local = base;
  return ReadParameters(keys, local ? *local : none, arch, *c, &c->rope_local);
}

}  // namespace slm::model::hf
