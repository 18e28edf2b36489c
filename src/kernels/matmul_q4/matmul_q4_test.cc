#include "kernels/matmul_q4/contract.h"

#include <gtest/gtest.h>

#include "kernels/packed/matmul_check.h"

namespace slm::kernels {

#if defined(__x86_64__)
void MatMulQ4Scalar(const MatMulArgs& args);
void MatMulQ4MinScalar(const MatMulArgs& args);
void MatMulQ4AvxVnniEmulated(const MatMulArgs& args);  // kernels/packed/avxvnni_emulated_test.cc
void MatMulQ4MinAvxVnniEmulated(const MatMulArgs& args);
#endif

TEST(MatMulQ4, EveryTierGivesTheBitsOfTheScalarKernel) { check::ExpectBitsEqualScalar(MatMulQ4Kernels()); }
TEST(MatMulQ4, TokenDoesNotDependOnItsCompany) { check::ExpectTokenIndependentOfM(MatMulQ4Kernels()); }
TEST(MatMulQ4, AgreesWithNumpyInFloat64) { check::ExpectMatchesNumpy(MatMulQ4Kernels()); }
TEST(MatMulQ4, SelectsTheTierThatWasAskedFor) { check::ExpectSelectsWhatItSays(MatMulQ4Kernels(), MatMulQ4); }
TEST(MatMulQ4, NanReachesTheOutput) { check::ExpectNanShows(MatMulQ4Kernels()); }

#if defined(__x86_64__)
// The tile of the AVX-VNNI tier in the encoding that CPUs with AVX-512 VNNI have.
TEST(MatMulQ4, AvxVnniBodyGivesTheBitsOfTheScalarKernel) {
  static constexpr KernelEntry kEntries[] = {
      {PackedKind::kQ4, Isa::kScalar, {MatMulQ4Scalar, "matmul_f32_q8_q4_scalar"}},
      {PackedKind::kQ4Min, Isa::kScalar, {MatMulQ4MinScalar, "matmul_f32_q8_q4min_scalar"}},
      {PackedKind::kQ4, Isa::kAvx512Vnni, {MatMulQ4AvxVnniEmulated, "matmul_f32_q8_q4_avxvnni"}},
      {PackedKind::kQ4Min, Isa::kAvx512Vnni, {MatMulQ4MinAvxVnniEmulated, "matmul_f32_q8_q4min_avxvnni"}},
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
