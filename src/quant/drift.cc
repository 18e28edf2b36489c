// See drift.h.
#include "quant/drift.h"

#include <vector>

#include "base/check.h"

namespace slm::quant {
namespace {

constexpr int kSteps = 12;

double Dot(const float* a, const float* b, const float* scale, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(a[j]) * static_cast<double>(b[j]) * static_cast<double>(scale[j]);
  return sum;
}

}  // namespace

Matrix ShiftFor(const Machine& machine, const InputStatistics& joint, int64_t width, double damping) {
  const int64_t rows = joint.width() - width;
  SLM_ASSERT(rows > 0);
  double mean = 0;
  for (int64_t j = 0; j < width; ++j) mean += static_cast<double>(joint.mean_square()[static_cast<size_t>(j)]) / static_cast<double>(width);
  Matrix h(width, width), found(rows, width), rest(rows, width), step(rows, width), product(rows, width);
  std::vector<float> inverse(static_cast<size_t>(width)), one(static_cast<size_t>(width), 1.0f);
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t j = 0; j < width; ++j) h.Row(i)[j] = joint.second().Row(i)[j];
    h.Row(i)[i] += static_cast<float>(damping * mean);
    inverse[static_cast<size_t>(i)] = h.Row(i)[i] > 0 ? 1 / h.Row(i)[i] : 0.0f;
  }
  const Multiplier times_h(machine, h);
  std::vector<double> power(static_cast<size_t>(rows));  // of what is left, by row
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; ++j) {
      rest.Row(r)[j] = joint.second().Row(width + r)[j];
      step.Row(r)[j] = rest.Row(r)[j] * inverse[static_cast<size_t>(j)];
    }
    power[static_cast<size_t>(r)] = Dot(rest.Row(r), rest.Row(r), inverse.data(), width);
  }
  for (int i = 0; i < kSteps; ++i) {
    times_h.Multiply(step, product);
    for (int64_t r = 0; r < rows; ++r) {
      float *x = found.Row(r), *left = rest.Row(r), *p = step.Row(r);
      const float* hp = product.Row(r);
      double& now = power[static_cast<size_t>(r)];
      const double curve = Dot(p, hp, one.data(), width);
      if (!(curve > 0) || !(now > 0)) continue;
      const auto by = static_cast<float>(now / curve);
      for (int64_t j = 0; j < width; ++j) {
        x[j] += by * p[j];
        left[j] -= by * hp[j];
      }
      const double next = Dot(left, left, inverse.data(), width);
      const auto turn = static_cast<float>(next / now);
      for (int64_t j = 0; j < width; ++j) p[j] = left[j] * inverse[static_cast<size_t>(j)] + turn * p[j];
      now = next;
    }
  }
  return found;
}

}  // namespace slm::quant
