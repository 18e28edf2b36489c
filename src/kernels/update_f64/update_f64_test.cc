// Every tier of the f64 update against sums in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/tiers_for_test.h"
#include "kernels/update_f64/contract.h"

namespace slm::kernels {
namespace {

void Check(const UpdateF64Kernel& kernel, int m, int panels, int k) {
  std::mt19937_64 rng(static_cast<uint64_t>(m * 1000 + panels * 100 + k));
  std::normal_distribution<double> normal;
  const int64_t columns = int64_t{panels} * kUpdateColumns, c_stride = columns + 3, a_stride = k + 5;
  std::vector<double> a(static_cast<size_t>(m * a_stride)), b(static_cast<size_t>(columns * k)), c(static_cast<size_t>(m * c_stride));
  for (std::vector<double>* v : {&a, &b, &c})
    for (double& x : *v) x = normal(rng);
  std::vector<double> y = c;
  kernel.fn({.c = y.data(), .c_stride = c_stride, .a = a.data(), .a_stride = a_stride, .b = b.data(), .m = m, .panels = panels, .k = k});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < c_stride; ++j) {
      const double before = c[static_cast<size_t>(i * c_stride + j)], after = y[static_cast<size_t>(i * c_stride + j)];
      if (j >= columns) {
        ASSERT_EQ(after, before) << "column past the end changed";
        continue;
      }
      long double sum = 0, size = std::fabs(before);
      for (int64_t n = 0; n < k; ++n) {
        const long double product =
            static_cast<long double>(a[static_cast<size_t>(i * a_stride + n)]) *
            static_cast<long double>(b[static_cast<size_t>((j / kUpdateColumns * k + n) * kUpdateColumns + j % kUpdateColumns)]);
        sum += product;
        size += std::fabs(product);
      }
      const auto bound = static_cast<double>(0x1p-53L * (k + 2) * size);
      ASSERT_NEAR(after, static_cast<double>(before - sum), bound)
          << kernel.name << " " << m << "x" << columns << "x" << k << " at " << i << ", " << j;
    }
}

TEST(UpdateF64, EveryTierSubtractsTheProduct) {
  for (const Isa isa : TiersOf(UpdateF64))
    for (const int m : {1, 2, 3, 4, 5, 6, 7, 13, 64})
      for (const int panels : {1, 2, 9})
        for (const int k : {1, 7, 64}) ASSERT_NO_FATAL_FAILURE(Check(UpdateF64(isa), m, panels, k));
}

}  // namespace
}  // namespace slm::kernels
