// The request for tile registers and the product that proves them.
#include "base/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#endif

namespace slm {

#if defined(__x86_64__) && defined(__linux__)
namespace {

constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;               // XFEATURE_XTILEDATA

// Layout of LDTILECFG's operand, palette 1.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

uint16_t BFloat16(int v) {  // exact for small integers
  const float f = static_cast<float>(v);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<uint16_t>(bits >> 16);
}

// C [16][16] = A [16][32] * B, small integers as bf16, against integer arithmetic. One asm: the compiler knows nothing of tiles, and
// every operand names all of its bytes.
bool ProductIsRight() {
  alignas(64) uint16_t a[16][32], b[16][16][2];
  alignas(64) float c[16][16] = {};
  TileConfig config;
  for (int t = 0; t < 3; ++t) {
    config.row_bytes[t] = 64;
    config.rows[t] = 16;
  }
  auto A = [](int m, int k) { return (m * 7 + k * 5) % 15 - 7; };
  auto B = [](int k, int n) { return (k * 3 + n * 11) % 15 - 7; };
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < 32; ++k) a[m][k] = BFloat16(A(m, k));
  for (int k = 0; k < 32; ++k)
    for (int n = 0; n < 16; ++n) b[k / 2][n][k % 2] = BFloat16(B(k, n));
  __asm__ volatile(
      "ldtilecfg %[config]\n\t"
      "tilezero %%tmm0\n\t"
      "tileloadd (%[pa], %[stride], 1), %%tmm1\n\t"
      "tileloadd (%[pb], %[stride], 1), %%tmm2\n\t"
      "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\t"
      "tilestored %%tmm0, (%[pc], %[stride], 1)\n\t"
      "tilerelease"
      : "=m"(c)
      : [config] "m"(config), [pa] "r"(a), [pb] "r"(b), [pc] "r"(c), [stride] "r"(int64_t{64}), "m"(a), "m"(b));
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      int sum = 0;
      for (int k = 0; k < 32; ++k) sum += A(m, k) * B(k, n);
      if (c[m][n] != static_cast<float>(sum)) return false;
    }
  return true;
}

}  // namespace

Status EnableAmx() {
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0)
    return Error(Code::kUnsupported, std::string("the system refuses the tile registers (arch_prctl: ") + std::strerror(errno) + ")",
                 "Linux 5.16 or newer grants them; a sandbox may forbid the call");
  if (!ProductIsRight()) return Error(Code::kUnsupported, "a product of two tiles came out wrong");
  return Ok();
}
#else
Status EnableAmx() { return Error(Code::kUnsupported, "tile registers are asked for on x86-64 Linux only"); }
#endif

}  // namespace slm
