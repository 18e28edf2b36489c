#include "kernels/matmul_q8/contract.h"

#include <gtest/gtest.h>

#include "kernels/packed/matmul_check.h"

namespace slm::kernels {

#if defined(__x86_64__)
void MatMulQ8Scalar(const MatMulArgs& args);
void MatMulQ8MinScalar(const MatMulArgs& args);
void MatMulQ8AvxVnniEmulated(const MatMulArgs& args);  // kernels/packed/avxvnni_emulated_test.cc
void MatMulQ8MinAvxVnniEmulated(const MatMulArgs& args);
#endif

TEST(MatMulQ8, EveryTierGivesTheBitsOfTheScalarKernel) { check::ExpectBitsEqualScalar(MatMulQ8Kernels()); }
TEST(MatMulQ8, TokenDoesNotDependOnItsCompany) { check::ExpectTokenIndependentOfM(MatMulQ8Kernels()); }
TEST(MatMulQ8, AgreesWithNumpyInFloat64) { check::ExpectMatchesNumpy(MatMulQ8Kernels()); }
TEST(MatMulQ8, SelectsTheTierThatWasAskedFor) { check::ExpectSelectsWhatItSays(MatMulQ8Kernels(), MatMulQ8); }
TEST(MatMulQ8, NanReachesTheOutput) { check::ExpectNanShows(MatMulQ8Kernels()); }

#if defined(__x86_64__)
// The tile of the AVX-VNNI tier in the encoding that CPUs with AVX-512 VNNI have.
TEST(MatMulQ8, AvxVnniBodyGivesTheBitsOfTheScalarKernel) {
  static constexpr KernelEntry kEntries[] = {
      {PackedKind::kQ8, Isa::kScalar, {MatMulQ8Scalar, "matmul_f32_q8_q8_scalar"}},
      {PackedKind::kQ8Min, Isa::kScalar, {MatMulQ8MinScalar, "matmul_f32_q8_q8min_scalar"}},
      {PackedKind::kQ8, Isa::kAvx512Vnni, {MatMulQ8AvxVnniEmulated, "matmul_f32_q8_q8_avxvnni"}},
      {PackedKind::kQ8Min, Isa::kAvx512Vnni, {MatMulQ8MinAvxVnniEmulated, "matmul_f32_q8_q8min_avxvnni"}},
  };
  constexpr KernelTable kTable = {kEntries, kEntries + 4};
  if (check::Runnable(kTable).size() < 4) GTEST_SKIP() << "this CPU has no AVX-512 VNNI";
  check::ExpectBitsEqualScalar(kTable);
  check::ExpectTokenIndependentOfM(kTable);
  check::ExpectMatchesNumpy(kTable);
  check::ExpectNanShows(kTable);
}
#endif

}  // namespace slm::kernels
