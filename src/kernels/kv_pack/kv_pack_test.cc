// f32 to f16 stores of every tier, bit for bit equal to base/float16.h (which has its own test against numpy's values).
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "base/float16.h"
#include "base/tiers_for_test.h"
#include "kernels/kv_pack/contract.h"

namespace slm::kernels {
namespace {

std::vector<Isa> Tiers() { return TiersOf(KvPack); }

void ExpectBits(const KvPackKernels& kernels, const std::vector<float>& x) {
  std::vector<uint16_t> h(x.size() + 1, 0xbeef);
  kernels.store_f16(x.data(), static_cast<int>(x.size()), h.data());
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(h[i], FloatToHalf(x[i])) << kernels.name << " of bits " << std::hex << std::bit_cast<uint32_t>(x[i]);
  ASSERT_EQ(h.back(), 0xbeef) << kernels.name << " wrote past the end";
}

TEST(KvPack, EveryHalfAndEveryMidpointAndItsNeighbours) {
  std::vector<float> x;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const uint32_t bits = std::bit_cast<uint32_t>(HalfToFloat(static_cast<uint16_t>(h)));
    for (const uint32_t step : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x1fffu}) x.push_back(std::bit_cast<float>(bits + step));
  }
  for (const Isa isa : Tiers()) ASSERT_NO_FATAL_FAILURE(ExpectBits(KvPack(isa), x));
}

TEST(KvPack, RandomBitsAndEveryLength) {
  std::mt19937 rng(5);
  for (const Isa isa : Tiers()) {
    for (int n = 0; n < 70; ++n) {
      std::vector<float> x(static_cast<size_t>(n));
      for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(rng()));
      ASSERT_NO_FATAL_FAILURE(ExpectBits(KvPack(isa), x));
    }
  }
}

TEST(KvPack, SelectGivesTheTierAskedFor) {
  EXPECT_STREQ(KvPack(Isa::kScalar).name, "kv_pack_scalar");
#if defined(__x86_64__)
  EXPECT_STREQ(KvPack(Isa::kAvx2).name, "kv_pack_avx2");
  EXPECT_STREQ(KvPack(Isa::kAvx512Vnni).name, "kv_pack_avx512vnni");
#elif defined(__aarch64__)
  EXPECT_STREQ(KvPack(Isa::kNeonDot).name, "kv_pack_neon_dotprod");
  EXPECT_STREQ(KvPack(Isa::kNeonI8mm).name, "kv_pack_neon_dotprod");
#endif
}

}  // namespace
}  // namespace slm::kernels
