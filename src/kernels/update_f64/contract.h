// C -= A B^T in f64: the inner loop of a blocked Cholesky factorisation (quant/factor.h), where f32 would lose small pivots.
#pragma once
#include <stdint.h>

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

// Columns of C that lie side by side in packed B.
inline constexpr int kUpdateColumns = 8;

struct UpdateF64Args {
  double* c = nullptr;        // [m][c_stride], columns 0 to 8 * panels - 1 are changed
  int64_t c_stride = 0;       // values
  const double* a = nullptr;  // [m][a_stride], columns 0 to k - 1 are read
  int64_t a_stride = 0;
  const double* b = nullptr;  // packed B: [panels][k][8]
  int m = 0, panels = 0, k = 0;
};
struct UpdateF64Kernel {
  void (*fn)(const UpdateF64Args& args);
  const char* name;
};
// Best tier <= isa; pure. Every element of C: the products summed in K order (fused or not is the tier's), then subtracted.
UpdateF64Kernel UpdateF64(Isa isa);

}  // namespace slm::kernels
