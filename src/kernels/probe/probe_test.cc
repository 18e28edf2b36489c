// Every loop that this CPU runs reads all that it was given and does the operations it claims (counted again from the time
// that they take: none is faster than the machine's widest unit could be).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/probe/contract.h"

namespace slm::kernels {
namespace {

struct alignas(64) Line {
  uint8_t bytes[64] = {};
};

std::vector<ProbeKernels> Runnable() {
  const CpuFeatures f = DetectCpu();
  const bool wide = f.avx512f && f.avx512bw && f.avx512vl && f.avx512vnni;
  std::vector<ProbeKernels> all{Probe(Isa::kScalar)};
  if (f.avx2) all.push_back(Probe(Isa::kAvx2));
  if (f.avx_vnni) all.push_back(Probe(Isa::kAvxVnni));
  if (wide) all.push_back(Probe(Isa::kAvx512Vnni));
  if (f.amx_ready && f.amx_int8) all.push_back(Probe(Isa::kAvx512Amx));
  if (f.neon_dotprod) all.push_back(Probe(Isa::kNeonDot));
  if (f.neon_i8mm) all.push_back(Probe(Isa::kNeonI8mm));
  return all;
}

TEST(Probe, ReadsEveryByte) {
  for (const ProbeKernels& k : Runnable()) {
    if (k.read == nullptr) continue;
    std::vector<Line> memory(16);  // two rounds of the longest loop
    auto* p = reinterpret_cast<uint8_t*>(memory.data());
    const int64_t bytes = static_cast<int64_t>(memory.size() * sizeof(Line));
    EXPECT_EQ(k.read(p, bytes), 0) << k.name;
    EXPECT_EQ(k.read(p, 0), 0) << k.name;
    for (int64_t i = 0; i < bytes; ++i) {
      p[i] = 0x80 | 0x01;  // a bit that the sign mask and the low bits both see
      EXPECT_NE(k.read(p, bytes), 0) << k.name << " skips byte " << i;
      p[i] = 0;
    }
  }
}

TEST(Probe, OperationsGrowWithTheRounds) {
  for (const ProbeKernels& k : Runnable()) {
    if (k.multiply == nullptr) continue;
    EXPECT_EQ(k.multiply(0), 0) << k.name;
    EXPECT_EQ(k.multiply(2000), 2 * k.multiply(1000)) << k.name;
    const auto start = std::chrono::steady_clock::now();
    const double ops = k.multiply(1 << 16);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(ops / seconds, 40e12) << k.name << ": faster than a tile unit at 10 GHz: the products were dropped";
  }
}

}  // namespace
}  // namespace slm::kernels
