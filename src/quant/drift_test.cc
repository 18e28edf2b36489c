// A planted drift is found again: e = S x, x with correlated channels of several sizes.
#include "quant/drift.h"

#include <gtest/gtest.h>

#include <random>

namespace slm::quant {
namespace {

struct Planted {
  std::vector<float> shift;  // [rows][width]
  InputStatistics joint;
};
Planted Plant(const Machine& machine, int64_t width, int64_t rows) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  Planted p{.shift = std::vector<float>(static_cast<size_t>(rows * width)), .joint = InputStatistics(machine, width + rows, 0)};
  for (float& s : p.shift) s = 0.1f * normal(rng);
  constexpr int64_t kTokens = 400;
  for (int part = 0; part < 10; ++part) {
    std::vector<float> both(static_cast<size_t>(kTokens * (width + rows)));
    for (int64_t t = 0; t < kTokens; ++t) {
      float *x = both.data() + t * (width + rows), *e = x + width;
      for (int64_t j = 0; j < width; ++j) x[j] = normal(rng) * static_cast<float>(1 + j % 5) + (j > 0 ? 0.5f * x[j - 1] : 0.0f);
      for (int64_t r = 0; r < rows; ++r) {
        e[r] = 0;
        for (int64_t j = 0; j < width; ++j) e[r] += p.shift[static_cast<size_t>(r * width + j)] * x[j];
      }
    }
    p.joint.Add(both.data(), kTokens);
  }
  p.joint.Finish();
  return p;
}

TEST(Drift, APlantedShiftIsFound) {
  constexpr int64_t kWidth = 24, kRows = 7;
  std::vector<float> first;
  for (const int n_threads : {1, 3}) {
    const auto team = ThreadTeam::Create(n_threads).Take();
    const Machine machine{team.get(), Isa::kScalar};
    const Planted p = Plant(machine, kWidth, kRows);
    const Matrix found = ShiftFor(machine, p.joint, kWidth, 1e-6);
    std::vector<float> all;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t j = 0; j < kWidth; ++j) {
        EXPECT_NEAR(found.Row(r)[j], p.shift[static_cast<size_t>(r * kWidth + j)], 2e-3f) << r << " " << j;
        all.push_back(found.Row(r)[j]);
      }
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << "threads";
  }
}

TEST(Drift, NoErrorIsNoShift) {
  const auto team = ThreadTeam::Create(2).Take();
  const Machine machine{team.get(), Isa::kScalar};
  InputStatistics none(machine, 20, 0);
  std::vector<float> rows(20 * 50, 0.0f);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i % 20 < 16 ? static_cast<float>(i * 7919 % 101) : 0.0f;  // no error at all
  none.Add(rows.data(), 50);
  none.Finish();
  const Matrix found = ShiftFor(machine, none, 16, 0.1);
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t j = 0; j < 16; ++j) EXPECT_EQ(found.Row(r)[j], 0);
}

}  // namespace
}  // namespace slm::quant
