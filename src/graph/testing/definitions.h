// The arithmetic of the reference interpreter: functions of one value, a norm, one head of attention, in f64. Test-only.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace slm::graph::testing {

using Array = std::vector<double>;

inline double Tanh(double x) { return std::tanh(x); }
inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double Silu(double x) { return x / (1 + std::exp(-x)); }
inline double GeluTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))); }
inline double GeluErf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

// Over the last axis, as wide as w.
inline Array RmsNorm(const Array& x, const Array& w, double epsilon) {
  Array y(x.size());
  for (size_t row = 0; row < x.size(); row += w.size()) {
    double squares = 0;
    for (size_t i = 0; i < w.size(); ++i) squares += x[row + i] * x[row + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(w.size()) + epsilon);
    for (size_t i = 0; i < w.size(); ++i) y[row + i] = x[row + i] * scale * w[i];
  }
  return y;
}

struct KvRows {
  Array k, v;  // [position, Hkv * D]
};

// Which keys one query head sees and where they lie.
struct HeadView {
  int64_t first, last, column, stride, d;
  double scale, softcap;
};
// out [D] += softmax(cap(scale * q . k)) v
inline void AttendHead(const double* q, const KvRows& rows, const HeadView& h, double* out) {
  Array weight;
  for (int64_t j = h.first; j <= h.last; ++j) {
    double score = 0;
    for (int64_t i = 0; i < h.d; ++i) score += q[i] * rows.k[j * h.stride + h.column + i];
    score *= h.scale;
    weight.push_back(h.softcap > 0 ? h.softcap * std::tanh(score / h.softcap) : score);
  }
  const double top = *std::max_element(weight.begin(), weight.end());
  double sum = 0;
  for (double& w : weight) sum += w = std::exp(w - top);
  for (size_t j = 0; j < weight.size(); ++j)
    for (int64_t i = 0; i < h.d; ++i) out[i] += weight[j] / sum * rows.v[(h.first + static_cast<int64_t>(j)) * h.stride + h.column + i];
}

}  // namespace slm::graph::testing
