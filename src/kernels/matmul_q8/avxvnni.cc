// 8-bit matmul for AVX-VNNI without AVX-512 (client CPUs since Alder Lake): the AVX2 tile with VPDPBUSD on unsigned weights; the
// zero point 128 is paid in advance by starting every dot at -128 * sum(a).
#include "kernels/matmul_q8/bytes_ymm.h"
#include "kernels/packed/dpbusd_ymm.h"
#include "kernels/packed/matmul_ymm.h"

namespace slm::kernels {

void MatMulQ8AvxVnni(const MatMulArgs& args) { MatMulYmm<Dpbusd<Bytes>, false>(args); }
void MatMulQ8MinAvxVnni(const MatMulArgs& args) { MatMulYmm<Dpbusd<Bytes>, true>(args); }

}  // namespace slm::kernels
