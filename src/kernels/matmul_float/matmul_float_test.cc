#include "kernels/matmul_float/contract.h"

#include <gtest/gtest.h>

#include "kernels/packed/matmul_check.h"

namespace slm::kernels {

TEST(MatMulFloat, EveryTierGivesTheBitsOfTheScalarKernel) { check::ExpectBitsEqualScalar(MatMulFloatKernels()); }
TEST(MatMulFloat, TokenDoesNotDependOnItsCompany) { check::ExpectTokenIndependentOfM(MatMulFloatKernels()); }
TEST(MatMulFloat, AgreesWithNumpyInFloat64) { check::ExpectMatchesNumpy(MatMulFloatKernels()); }
TEST(MatMulFloat, SelectsTheTierThatWasAskedFor) { check::ExpectSelectsWhatItSays(MatMulFloatKernels(), MatMulFloat); }
TEST(MatMulFloat, NanReachesTheOutput) { check::ExpectNanShows(MatMulFloatKernels()); }

}  // namespace slm::kernels
