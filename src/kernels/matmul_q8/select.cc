// What matmul_q8 offers: its table.inc as declarations, tables and the choice.
#include "kernels/matmul_q8/contract.h"

#define SLM_FAMILY MatMulQ8
#define SLM_TABLE "kernels/matmul_q8/table.inc"
#include "kernels/packed/select_family.inc"
