// What a calibration takes: its text, its matrices, its memory. See calibrate.h.
#include <algorithm>

#include "quant/calibrate.h"

namespace slm::quant {
using model::Model;

int64_t CalibrationText::tokens() const {
  int64_t n = 0;
  for (const auto& s : sequences) n += static_cast<int64_t>(s.size());
  return n;
}
int64_t CalibrationText::longest() const {
  size_t n = 0;
  for (const auto& s : sequences) n = std::max(n, s.size());
  return static_cast<int64_t>(n);
}

CalibrationTask TaskOf(const Plan& plan) {
  CalibrationTask task{.recipe = plan.recipe, .matrices = {}, .vectors = VectorTypes::kF32};
  for (const Choice& c : plan.choices)
    if (c.tensor->dims.size() == 2 && (c.dtype != c.tensor->dtype || Info(c.dtype).block == 1))
      task.matrices[c.tensor] = StoredForm::Of(c.dtype);
  return task;
}

uint64_t CalibrationBytes(const Model& m, const Recipe& recipe, int64_t tokens, int64_t longest, int n_threads) {
  const model::ModelConfig& c = m.config;
  const int64_t e = c.d_model, f = c.d_ff, q = int64_t{c.n_heads} * c.head_dim, kv = int64_t{c.n_kv_heads} * c.head_dim;
  const int64_t layer = 4 * (e * (q + 2 * kv) + q * e + 3 * e * f);  // f32
  const int64_t second = 4 * (2 * e * e + q * q + f * f);
  const int64_t widest = std::max({e, f, q});
  const bool stored = recipe.inputs == LayerInputs::kStored;
  const int64_t streams = 4 * e * ((stored ? 2 : 1) * tokens + 2 * recipe.gate_sequences * longest);
  const int64_t activations = 4 * longest * (4 * e + 4 * (q + 2 * kv) + 4 * f) + 4 * longest * 2 * kv + int64_t{n_threads} * (1 << 20);
  // GPTQ: what the moments are factored in, and codes and grids of the widest matrix. Else the moments packed for products.
  const int64_t largest = std::max({e * f, e * q, e * kv}) * 2;
  const int64_t codes =
      recipe.gptq || recipe.signround ? static_cast<int64_t>(GptqBytes(0, widest, n_threads)) + 2 * largest : 4 * widest * widest;
  // Of the candidate in work the weights and the values as rounded, and these packed for the forward pass; where layers read what is stored
  // the same of the best one so far, which is but its bytes elsewhere; the parts of a matrix that errors are summed over.
  const int64_t candidates = stored ? 5 * layer : 3 * layer;
  const int64_t shift = stored ? layer + 4 * ((f + e) * (f + e) + 2 * f * f + 4 * e * f + (f + e) * longest) : 0;
  // Signed gradients: of 512 rows places, factors, changes and products, and the moments once more.
  const int64_t moved = recipe.signround ? 8 * widest * widest + 512 * 18 * widest : 0;
  const int64_t samples = recipe.smooth ? 4 * kSampleTokens * (2 * e + q + f) : 0;
  return static_cast<uint64_t>(moved + samples + shift + streams + activations + candidates + second + 8 * widest * 1024 + codes);
}

}  // namespace slm::quant
