// What matmul_q4 offers: its table.inc as declarations, tables and the choice.
#include "kernels/matmul_q4/contract.h"

#define SLM_FAMILY MatMulQ4
#define SLM_TABLE "kernels/matmul_q4/table.inc"
#include "kernels/packed/select_family.inc"
