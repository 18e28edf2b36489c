// What matmul_planes offers: its table.inc as declarations, tables and the choice.
#include "kernels/matmul_planes/contract.h"

#define SLM_FAMILY MatMulPlanes
#define SLM_TABLE "kernels/matmul_planes/table.inc"
#include "kernels/packed/select_family.inc"
