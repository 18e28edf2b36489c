// Turns table.inc into declarations, the table and the choice. Kernels of other processors are left out here and by CMake.
#include "kernels/matmul_float/contract.h"
#include "kernels/packed/table.h"

namespace slm::kernels {

#if defined(__x86_64__)
#define SLM_KERNEL_X86(kind, isa, function, name) SLM_KERNEL(kind, isa, function, name)
#else
#define SLM_KERNEL_X86(kind, isa, function, name)
#endif
#if defined(__aarch64__)
#define SLM_KERNEL_ARM(kind, isa, function, name) SLM_KERNEL(kind, isa, function, name)
#else
#define SLM_KERNEL_ARM(kind, isa, function, name)
#endif

#define SLM_KERNEL(kind, isa, function, name) void function(const MatMulArgs& args);
#include "kernels/matmul_float/table.inc"
#undef SLM_KERNEL

namespace {
constexpr KernelEntry kTable[] = {
#define SLM_KERNEL(kind, isa, function, name) {PackedKind::kind, Isa::isa, {function, name}},
#include "kernels/matmul_float/table.inc"
#undef SLM_KERNEL
};
}  // namespace

KernelTable MatMulFloatKernels() { return {kTable, kTable + sizeof(kTable) / sizeof(kTable[0])}; }

MatMulKernel MatMulFloat(PackedKind kind, Isa isa) { return SelectKernel(MatMulFloatKernels(), kind, isa); }

}  // namespace slm::kernels
