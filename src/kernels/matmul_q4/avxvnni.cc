// 4-bit matmul for AVX-VNNI without AVX-512 (client CPUs since Alder Lake): the AVX2 tile with VPDPBUSD.
#include "kernels/matmul_q4/nibbles_ymm.h"
#include "kernels/packed/dpbusd_ymm.h"
#include "kernels/packed/matmul_ymm.h"

namespace slm::kernels {

void MatMulQ4AvxVnni(const MatMulArgs& args) { MatMulYmm<Dpbusd<Nibbles>, false>(args); }
void MatMulQ4MinAvxVnni(const MatMulArgs& args) { MatMulYmm<Dpbusd<Nibbles>, true>(args); }

}  // namespace slm::kernels
