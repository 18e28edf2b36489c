// A cache cut into runs of 256 slots with gaps between them gives the bits of one that lies in a piece, in every tier and for every
// type. (That the latter are right is what attention_test.cc and attention_int8_test.cc show.) Gaps hold NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "base/tiers_for_test.h"
#include "kernels/attention_int8/contract.h"
#include "kernels/packed/matmul_check.h"

namespace slm::kernels {
namespace {

constexpr int kHq = 6, kHkv = 2, kDim = 64, kSlots = 1024;
constexpr int64_t kGap = 4160;

// Bytes of the slots [0, 256) of one head.
int64_t RunBytes(KvType type, bool keys) {
  if (type == KvType::kInt8) return kDecodeChunk / kTileSlots * (keys ? KeyTileBytes(kDim) : ValueTileBytes(kDim));
  return int64_t{kDecodeChunk} * kDim * (type == KvType::kF16 ? 2 : 4);
}

// Keys or values [Hkv][kSlots][D] in a piece.
std::vector<uint8_t> Filled(KvType type, bool keys, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  const int64_t head_bytes = RunBytes(type, keys) * (kSlots / kDecodeChunk);
  std::vector<uint8_t> cache(static_cast<size_t>(kHkv * head_bytes) + 64);
  const AttentionInt8Kernels int8 = AttentionInt8(Isa::kScalar);
  float x[kDim];
  for (int h = 0; h < kHkv; ++h) {
    uint8_t* head = cache.data() + h * head_bytes;
    for (int slot = 0; slot < kSlots; ++slot) {
      for (float& value : x) value = normal(rng);
      if (type == KvType::kInt8) {
        (keys ? int8.store_key : int8.store_value)(x, kDim, slot, head);
        continue;
      }
      for (int d = 0; d < kDim; ++d) {
        const uint16_t half = FloatToHalf(x[d]);
        if (type == KvType::kF16) std::memcpy(head + (slot * kDim + d) * 2, &half, 2);
        else std::memcpy(head + (slot * kDim + d) * 4, &x[d], 4);
      }
    }
  }
  return cache;
}

// The same in blocks of 256 slots of all heads, kGap bytes between blocks.
std::vector<uint8_t> Cut(const std::vector<uint8_t>& whole, int64_t run) {
  const int64_t runs = kSlots / kDecodeChunk, block = kHkv * run + kGap;
  std::vector<uint8_t> cut(static_cast<size_t>(runs * block), 0xff);
  for (int64_t h = 0; h < kHkv; ++h)
    for (int64_t i = 0; i < runs; ++i)
      std::memcpy(&cut[static_cast<size_t>(i * block + h * run)], &whole[static_cast<size_t>((h * runs + i) * run)],
                  static_cast<size_t>(run));
  return cut;
}

std::vector<float> AttentionOf(Isa isa, const AttentionArgs& given) {
  AttentionArgs a = given;
  std::vector<float> out(static_cast<size_t>(a.m * kHq * kDim)), partial(static_cast<size_t>(PartialFloats(kHq, kDim, kSlots)));
  std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(kHq, kHkv, kDim)) + 16);
  float* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / 4;
  a.out = out.data();
  const AttentionKernels plain = Attention(isa);
  const AttentionInt8Kernels int8 = AttentionInt8(isa);
  const bool is_int8 = a.kv_type == KvType::kInt8;
  if (a.m > 1) {
    (is_int8 ? int8.prefill : plain.prefill)(a, 0, PrefillItems(a), aligned);
  } else {
    (is_int8 ? int8.decode : plain.decode)(a, 0, DecodeItems(a), partial.data(), aligned);
    if (DecodeChunks(a) > 1) plain.merge(a, 0, kHq, partial.data());
  }
  return out;
}

TEST(Attention, GapsBetweenRunsOfSlotsChangeNothing) {
  std::mt19937 rng(3);
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kInt8}) {
    const std::vector<uint8_t> k = Filled(type, true, rng), v = Filled(type, false, rng);
    const int64_t k_run = RunBytes(type, true), v_run = RunBytes(type, false);
    const std::vector<uint8_t> k_cut = Cut(k, k_run), v_cut = Cut(v, v_run);
    std::vector<float> q(40 * kHq * kDim);
    std::normal_distribution<float> normal;
    for (float& x : q) x = normal(rng);
    for (const int m : {1, 40}) {
      for (const int window : {0, 300}) {
        AttentionArgs a{.q = q.data(),
                        .q_stride = kHq * kDim,
                        .k = k.data(),
                        .v = v.data(),
                        .kv_head_stride = int64_t{kSlots} * kDim,
                        .kv_type = type,
                        .n_heads = kHq,
                        .n_kv_heads = kHkv,
                        .head_dim = kDim,
                        .m = m,
                        .position = 900,
                        .window = window,
                        .scale = 0.125f,
                        .out_stride = kHq * kDim};
        AttentionArgs cut = a;
        cut.k = k_cut.data();
        cut.v = v_cut.data();
        cut.kv_head_stride = int64_t{kDecodeChunk} * kDim;
        cut.k_gap = kHkv * k_run + kGap - k_run;
        cut.v_gap = kHkv * v_run + kGap - v_run;
        for (const Isa isa : TiersOf(Attention)) {
          const std::vector<float> want = AttentionOf(isa, a), got = AttentionOf(isa, cut);
          for (const float x : want) ASSERT_TRUE(std::isfinite(x));
          EXPECT_EQ(got, want) << Attention(isa).name << " type " << static_cast<int>(type) << " m " << m << " window " << window;
        }
      }
    }
  }
}

}  // namespace
}  // namespace slm::kernels
