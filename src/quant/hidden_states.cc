// See hidden_states.h.
#include "quant/hidden_states.h"

#include <fmt/format.h>

#include "base/check.h"

namespace slm::quant {

Result<std::vector<HiddenStates>> Embed(const model::Model& m, std::span<const std::vector<int32_t>> sequences) {
  const model::Tensor& table = *m.Find(model::Role::kEmbedding);
  const int64_t width = m.config.d_model;
  std::vector<HiddenStates> all;
  for (const auto& tokens : sequences) {
    HiddenStates s{static_cast<int>(tokens.size()), std::vector<float>(tokens.size() * static_cast<size_t>(width))};
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= m.config.vocab_size)
        return Error(Code::kInvalidArgument, fmt::format("token {} is outside the vocabulary of {}", tokens[i], m.config.vocab_size));
      model::Dequantize(table.dtype, table.data, tokens[i] * width, (tokens[i] + 1) * width,
                        s.rows.data() + i * static_cast<size_t>(width));
    }
    for (float& x : s.rows) x *= m.config.embedding_scale;
    all.push_back(std::move(s));
  }
  m.DropPages(table);
  return all;
}

double OutputError(std::span<const float> want, std::span<const float> got, int64_t width) {
  SLM_ASSERT(want.size() == got.size() && !want.empty());
  double sum = 0, n = 0;
  for (size_t i = 0; i < want.size(); i += static_cast<size_t>(width), n += 1) {
    double lost = 0, power = 0;
    for (size_t j = i; j < i + static_cast<size_t>(width); ++j) {
      const double d = static_cast<double>(got[j]) - static_cast<double>(want[j]);
      lost += d * d;
      power += static_cast<double>(want[j]) * static_cast<double>(want[j]);
    }
    sum += power > 0 ? lost / power : 0;
  }
  return sum / n;
}

}  // namespace slm::quant
