// The AVX-VNNI kernels once more with the EVEX encoding of their one special instruction, for the tests of matmul_q4 and matmul_q8 on
// CPUs that have AVX-512 VNNI instead. Compiled with the flags that cmake/isa_flags.cmake gives this name; no test stands here,
// because test code must run on every CPU.
#include "kernels/matmul_q4/nibbles_ymm.h"
#include "kernels/matmul_q8/bytes_ymm.h"
#include "kernels/packed/dpbusd_ymm.h"
#include "kernels/packed/matmul_ymm.h"

namespace slm::kernels {

void MatMulQ4AvxVnniEmulated(const MatMulArgs& args) { MatMulYmm<Dpbusd<Nibbles>, false>(args); }
void MatMulQ4MinAvxVnniEmulated(const MatMulArgs& args) { MatMulYmm<Dpbusd<Nibbles>, true>(args); }
void MatMulQ8AvxVnniEmulated(const MatMulArgs& args) { MatMulYmm<Dpbusd<Bytes>, false>(args); }
void MatMulQ8MinAvxVnniEmulated(const MatMulArgs& args) { MatMulYmm<Dpbusd<Bytes>, true>(args); }

}  // namespace slm::kernels
