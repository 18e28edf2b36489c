#include "kernels/matmul_planes/contract.h"

#include <gtest/gtest.h>

#include "kernels/packed/matmul_check.h"

namespace slm::kernels {

TEST(MatMulPlanes, EveryTierGivesTheBitsOfTheScalarKernel) { check::ExpectBitsEqualScalar(MatMulPlanesKernels()); }
TEST(MatMulPlanes, TokenDoesNotDependOnItsCompany) { check::ExpectTokenIndependentOfM(MatMulPlanesKernels()); }
TEST(MatMulPlanes, AgreesWithNumpyInFloat64) { check::ExpectMatchesNumpy(MatMulPlanesKernels()); }
TEST(MatMulPlanes, SelectsTheTierThatWasAskedFor) { check::ExpectSelectsWhatItSays(MatMulPlanesKernels(), MatMulPlanes); }
TEST(MatMulPlanes, NanReachesTheOutput) { check::ExpectNanShows(MatMulPlanesKernels()); }

}  // namespace slm::kernels
