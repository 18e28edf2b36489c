// Scalar law of the f64 update.
#include "kernels/update_f64/contract.h"

namespace slm::kernels {
namespace {

void Update(const UpdateF64Args& args) {
  for (int p = 0; p < args.panels; ++p)
    for (int i = 0; i < args.m; ++i) {
      const double* a = args.a + i * args.a_stride;
      const double* b = args.b + int64_t{p} * args.k * kUpdateColumns;
      double sum[kUpdateColumns] = {};
      for (int k = 0; k < args.k; ++k)
        for (int j = 0; j < kUpdateColumns; ++j) sum[j] += a[k] * b[k * kUpdateColumns + j];
      for (int j = 0; j < kUpdateColumns; ++j) args.c[i * args.c_stride + p * kUpdateColumns + j] -= sum[j];
    }
}

}  // namespace

extern const UpdateF64Kernel kUpdateF64Ref;
const UpdateF64Kernel kUpdateF64Ref = {Update, "update_f64_scalar"};

}  // namespace slm::kernels
