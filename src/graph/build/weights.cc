// See weights.h. The first error is kept and building goes on, so that the decoder builder reads like a forward pass.
#include "graph/build/weights.h"

#include <fmt/format.h>

#include "graph/infer.h"

namespace slm::graph {
namespace {

using model::Role;

const char* RoleName(Role role) {
  switch (role) {
    case Role::kEmbedding: return "token embedding";
    case Role::kFinalNorm: return "final norm";
    case Role::kHead: return "output head";
    case Role::kRopeFreqs: return "rope frequency factors";
    case Role::kRopeFactorsLong: return "long rope factors";
    case Role::kRopeFactorsShort: return "short rope factors";
    case Role::kAttnNorm: return "attention norm";
    case Role::kQ: return "query projection";
    case Role::kK: return "key projection";
    case Role::kV: return "value projection";
    case Role::kQkv: return "fused query/key/value projection";
    case Role::kO: return "attention output projection";
    case Role::kQBias: return "query bias";
    case Role::kKBias: return "key bias";
    case Role::kVBias: return "value bias";
    case Role::kQkvBias: return "fused query/key/value bias";
    case Role::kOBias: return "attention output bias";
    case Role::kQNorm: return "query norm";
    case Role::kKNorm: return "key norm";
    case Role::kAttnPostNorm: return "post-attention norm";
    case Role::kFfnNorm: return "MLP norm";
    case Role::kGate: return "gate projection";
    case Role::kUp: return "up projection";
    case Role::kGateUp: return "fused gate/up projection";
    case Role::kDown: return "down projection";
    case Role::kGateBias: return "gate bias";
    case Role::kUpBias: return "up bias";
    case Role::kDownBias: return "down bias";
    case Role::kFfnPostNorm: return "post-MLP norm";
    case Role::kCount: break;
  }
  return "tensor";
}

}  // namespace

const model::Tensor* Weights::Checked(Role role, int layer, const Shape& shape) {
  const model::Tensor* t = model_.Find(role, layer);
  if (!t) {
    if (status_.ok())
      status_ = Error(Code::kNotFound, fmt::format("{}: layer {}: the {} is missing", model_.path, layer, RoleName(role)),
                      "the file is incomplete, or its configuration names another architecture; fetch it again");
    return nullptr;
  }
  if (t->dims != shape) {
    if (status_.ok())
      status_ =
          Error(Code::kCorrupt,
                fmt::format("{}: {}: shape {}, the configuration asks for {}", model_.path, t->name, ShapeText(t->dims), ShapeText(shape)),
                "the tensors and the configuration do not belong together; fetch the model again");
    return nullptr;
  }
  return t;
}

ValueId Weights::Add(const model::Tensor& t, RowRange rows, const std::string& suffix) {
  const auto key = std::make_tuple(&t, rows.begin, rows.end);
  if (auto it = known_.find(key); it != known_.end()) return it->second;
  auto constant = std::make_shared<Constant>();
  constant->parts.push_back({&t, rows.begin, rows.end});
  Value v;
  v.name = suffix.empty() ? t.name : t.name + "." + suffix;
  v.shape = t.dims;
  v.shape[0] = rows.end - rows.begin;
  v.constant = std::move(constant);
  return known_[key] = graph_.AddValue(std::move(v));
}

ValueId Weights::Whole(Role role, int layer, const Shape& shape) {
  const model::Tensor* t = Checked(role, layer, shape);
  return t ? Add(*t, {0, t->dims[0]}, "") : kNoValue;
}

ValueId Weights::Rows(Role role, int layer, const Shape& shape, RowRange rows, const std::string& part) {
  const model::Tensor* t = Checked(role, layer, shape);
  return t ? Add(*t, rows, part) : kNoValue;
}

ValueId Weights::Computed(const std::string& name, Shape shape, std::vector<float> data) {
  auto constant = std::make_shared<Constant>();
  constant->data = std::move(data);
  Value v;
  v.name = name;
  v.shape = std::move(shape);
  v.constant = std::move(constant);
  return graph_.AddValue(std::move(v));
}

}  // namespace slm::graph
