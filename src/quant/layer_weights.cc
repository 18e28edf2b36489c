// See layer_weights.h. Gemma's norms multiply by (offset + w), where files of its own format store w: the factor goes onto the sum.
#include "quant/layer_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/stored_form.h"

namespace slm::quant {
namespace {
using model::Role;
constexpr Role kMatrixAndVectorRoles[] = {Role::kAttnNorm, Role::kQ,        Role::kK,      Role::kV,       Role::kQkv,
                                          Role::kO,        Role::kQBias,    Role::kKBias,  Role::kVBias,   Role::kQkvBias,
                                          Role::kOBias,    Role::kFfnNorm,  Role::kGate,   Role::kUp,      Role::kGateUp,
                                          Role::kDown,     Role::kGateBias, Role::kUpBias, Role::kDownBias};
}  // namespace

std::vector<float> SomeRows(std::span<const float> values, int64_t rows, int64_t width, int64_t n) {
  n = std::min(rows, n);
  std::vector<float> out(static_cast<size_t>(n * width));
  for (int64_t i = 0; i < n; ++i) {
    const float* row = values.data() + i * rows / n * width;
    std::copy(row, row + width, out.data() + i * width);
  }
  return out;
}
LayerTensor SomeRows(const LayerTensor& t, int64_t n) {
  return {.role = t.role,
          .tensor = t.tensor,
          .rows = std::min(t.rows, n),
          .width = t.width,
          .values = SomeRows(t.values, t.rows, t.width, n),
          .is_changed = t.is_changed,
          .fold = t.fold};
}

Result<LayerWeights> LayerWeights::Read(const model::Model& m, int layer, VectorTypes vectors) {
  LayerWeights w;
  w.vectors_ = vectors;
  w.config_ = &m.config;
  for (const Role role : kMatrixAndVectorRoles) {
    const model::Tensor* t = m.Find(role, layer);
    if (t == nullptr) continue;
    LayerTensor& to = w.tensors_.emplace_back();
    to.role = role;
    to.tensor = t;
    to.width = t->dims.back();
    to.rows = to.width == 0 ? 0 : t->n_values() / to.width;
    to.values = model::DequantizeAll(*t);
    m.DropPages(*t);
    for (size_t i = 0; i < to.values.size(); ++i)
      if (!std::isfinite(to.values[i]))
        return Error(Code::kCorrupt,
                     fmt::format("{}: {}: row {} holds NaN or infinity", m.path, t->name, static_cast<int64_t>(i) / to.width),
                     "the weights are damaged: fetch or convert the model again");
  }
  return w;
}

const LayerTensor* LayerWeights::Find(Role role) const {
  for (const LayerTensor& t : tensors_)
    if (t.role == role) return &t;
  return nullptr;
}
LayerTensor* LayerWeights::Find(Role role) { return const_cast<LayerTensor*>(std::as_const(*this).Find(role)); }

std::vector<const LayerTensor*> LayerWeights::Members(FoldPlace place) const {
  std::vector<const LayerTensor*> out;
  const auto add = [&](std::initializer_list<Role> roles) {
    for (const Role r : roles)
      if (const LayerTensor* t = Find(r)) out.push_back(t);
  };
  switch (place) {
    case FoldPlace::kAttentionInput:
      if (Find(Role::kAttnNorm)) add({Role::kQ, Role::kK, Role::kV, Role::kQkv});
      break;
    case FoldPlace::kValueOutput:
      if (Find(Role::kV) || Find(Role::kQkv)) add({Role::kO});
      break;
    case FoldPlace::kMlpInput:
      if (Find(Role::kFfnNorm)) add({Role::kGate, Role::kUp, Role::kGateUp});
      break;
    case FoldPlace::kUpOutput:
      if (Find(Role::kUp) || Find(Role::kGateUp)) add({Role::kDown});
      break;
    case FoldPlace::kCount: break;
  }
  return out;
}

const LayerTensor* LayerWeights::Source(FoldPlace place) const {
  const auto either = [&](Role own, Role fused) { return Find(own) ? Find(own) : Find(fused); };
  if (place == FoldPlace::kValueOutput) return either(Role::kV, Role::kQkv);
  return place == FoldPlace::kUpOutput ? either(Role::kUp, Role::kGateUp) : nullptr;
}

std::vector<int32_t> LayerWeights::Tied(FoldPlace place) const {
  if (place != FoldPlace::kValueOutput) return {};
  const int d = config_->head_dim, per_kv = config_->n_heads / config_->n_kv_heads;
  std::vector<int32_t> tied(static_cast<size_t>(config_->n_heads * d));
  for (int h = 0; h < config_->n_heads; ++h)
    for (int i = 0; i < d; ++i) tied[static_cast<size_t>(h * d + i)] = h / per_kv * d + i;
  return tied;
}

void LayerWeights::ScaleColumns(LayerTensor& t, std::span<const float> scale) {
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t j = 0; j < t.width; ++j) t.values[static_cast<size_t>(r * t.width + j)] *= scale[static_cast<size_t>(j)];
  t.fold.assign(scale.begin(), scale.end());
  t.is_changed = true;
}

void LayerWeights::DivideNorm(LayerTensor& norm, std::span<float> scale) const {
  const float offset = config_->norm_offset;
  const DType dtype = StoredType(norm);
  for (size_t j = 0; j < scale.size(); ++j) {
    const float whole = offset + norm.values[j], exact = whole / scale[j] - offset;
    if (dtype == DType::kF32 || dtype == DType::kF64) {
      norm.values[j] = exact;
      continue;
    }
    const float stored = AsStored(dtype, exact), held = whole / (offset + stored);
    const bool close = held > scale[j] / 2 && held < scale[j] * 2;  // not past the type's range, nor a whole of 0
    if (close) norm.values[j] = stored;
    scale[j] = close ? held : 1.0f;
  }
  norm.is_changed = true;
}

void LayerWeights::DivideRows(LayerTensor& matrix, LayerTensor* bias, int64_t first_row, std::span<const float> by_row) const {
  for (size_t r = 0; r < by_row.size(); ++r) {
    float* row = matrix.values.data() + (first_row + static_cast<int64_t>(r)) * matrix.width;
    for (int64_t j = 0; j < matrix.width; ++j) row[j] /= by_row[r];
    if (!bias) continue;
    float& b = bias->values[static_cast<size_t>(first_row) + r];
    b = AsStored(StoredType(*bias), b / by_row[r]);
  }
  matrix.is_changed = true;
  if (bias) bias->is_changed = true;
}

void LayerWeights::Apply(FoldPlace place, std::span<const float> factors) {
  std::vector<float> scale(factors.begin(), factors.end());
  if (place == FoldPlace::kAttentionInput) DivideNorm(*Find(Role::kAttnNorm), scale);
  if (place == FoldPlace::kMlpInput) DivideNorm(*Find(Role::kFfnNorm), scale);
  for (const LayerTensor* member : Members(place)) ScaleColumns(*Find(member->role), scale);
  switch (place) {
    case FoldPlace::kAttentionInput:
    case FoldPlace::kMlpInput: return;
    case FoldPlace::kValueOutput: {
      const int64_t d = config_->head_dim, kv_rows = config_->n_kv_heads * d, per_kv = config_->n_heads / config_->n_kv_heads;
      std::vector<float> by_row(static_cast<size_t>(kv_rows));
      for (int64_t r = 0; r < kv_rows; ++r) by_row[static_cast<size_t>(r)] = scale[static_cast<size_t>(r / d * per_kv * d + r % d)];
      if (LayerTensor* v = Find(Role::kV)) return DivideRows(*v, Find(Role::kVBias), 0, by_row);
      return DivideRows(*Find(Role::kQkv), Find(Role::kQkvBias), config_->n_heads * d + kv_rows, by_row);
    }
    case FoldPlace::kUpOutput:
      if (LayerTensor* up = Find(Role::kUp)) return DivideRows(*up, Find(Role::kUpBias), 0, scale);
      return DivideRows(*Find(Role::kGateUp), nullptr, config_->d_ff, scale);
    case FoldPlace::kCount: return;
  }
}

}  // namespace slm::quant
