// Attention over the int8 cache, every tier: the stores against the rule of the contract, attention against float64 softmax
// attention on the values that the codes stand for, and what the engine relies on (cuts, unused slots, shown NaNs).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/tiers_for_test.h"
#include "kernels/attention_int8/contract.h"
#include "kernels/packed/matmul_check.h"

namespace slm::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
constexpr double kEps = 0x1p-24;

std::vector<Isa> Tiers() { return TiersOf(AttentionInt8); }

// One KV head's cache and what its codes stand for, read back by the words of the contract.
struct Head {
  int dim;
  std::vector<uint8_t> k, v;
  Head(int d, int slots) : dim(d) {
    const size_t tiles = static_cast<size_t>(slots + kTileSlots - 1) / kTileSlots;
    k.assign(tiles * static_cast<size_t>(KeyTileBytes(d)), 0xff);  // scales: NaN
    v.assign(tiles * static_cast<size_t>(ValueTileBytes(d)), 0xff);
  }
  float KeyScale(int slot, int d) const {
    uint16_t h;
    std::memcpy(&h, &k[slot / 16 * KeyTileBytes(dim) + (d / 32 * 16 + slot % 16) * 2], 2);
    return HalfToFloat(h);
  }
  float ValueScale(int slot) const {
    float x;
    std::memcpy(&x, &v[slot / 16 * ValueTileBytes(dim) + slot % 16 * 4], 4);
    return x;
  }
  int KeyCode(int slot, int d) const {
    return k[slot / 16 * KeyTileBytes(dim) + (dim + 31) / 32 * 32 + (d / 4 * 16 + slot % 16) * 4 + d % 4] - 128;
  }
  int ValueCode(int slot, int d) const {
    return static_cast<int8_t>(v[slot / 16 * ValueTileBytes(dim) + 64 + (slot % 16 / 4 * dim + d) * 4 + slot % 4]);
  }
};

// Row i of H: +1 or -1 by the parity of the common bits of i and j inside a block (Sylvester's construction).
std::vector<double> Rotated(const float* x, int dim) {
  const int n = RotationSize(dim);
  std::vector<double> y(static_cast<size_t>(dim), 0.0);
  for (int i = 0; i < dim; ++i)
    for (int j = i / n * n; j < i / n * n + n; ++j)
      y[static_cast<size_t>(i)] += std::popcount(static_cast<unsigned>(i & j & (n - 1))) % 2 ? -double{x[j]} : double{x[j]};
  return y;
}

TEST(AttentionInt8, CodesAreWithinHalfAStepAndWriteTheirSlotOnly) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  for (const int dim : {8, 24, 64, 80, 96, 128, 256}) {
    std::vector<float> x(static_cast<size_t>(dim));
    for (int round = 0; round < 20; ++round) {
      const float size = std::exp2(static_cast<float>(round - 10));
      for (float& value : x) value = normal(rng) * size;
      if (round == 3) std::fill(x.begin(), x.end(), 0.0f);
      if (round == 4) x[static_cast<size_t>(dim / 2)] = 500;  // an outlier is felt in its own group of a key only
      const int slot = static_cast<int>(rng() % 40);
      Head law(dim, 40);
      for (const Isa isa : Tiers()) {
        Head h(dim, 40);
        const AttentionInt8Kernels kernels = AttentionInt8(isa);
        kernels.store_key(x.data(), dim, slot, h.k.data());
        kernels.store_value(x.data(), dim, slot, h.v.data());
        if (isa == Isa::kScalar) law = h;
        EXPECT_EQ(h.k, law.k) << kernels.name;
        EXPECT_EQ(h.v, law.v) << kernels.name;
      }
      float all = 0;
      for (const float value : x) all = std::max(all, std::fabs(value));
      EXPECT_FLOAT_EQ(law.ValueScale(slot), all / 127);
      const std::vector<double> key = Rotated(x.data(), dim);
      for (int d = 0; d < dim; ++d) {
        double most = 0;
        for (int i = d / 32 * 32; i < std::min(dim, d / 32 * 32 + 32); ++i) most = std::max(most, std::fabs(key[static_cast<size_t>(i)]));
        const double step = law.KeyScale(slot, d);
        // The scale is rounded to f16: up to 2^-11 of the largest magnitude is cut off.
        EXPECT_NEAR(step, most / 127, most / 127 * 0x1p-11 + 0x1p-25);
        EXPECT_NEAR(law.KeyCode(slot, d) * step, key[static_cast<size_t>(d)], step * 0.501 + most * 0x1p-10);
        EXPECT_NEAR(double{law.ValueScale(slot)} * law.ValueCode(slot, d), x[static_cast<size_t>(d)], law.ValueScale(slot) * 0.501);
      }
      // Put back what the slot may write: everything else must still be as it was.
      for (int d = 0; d < dim; ++d) {
        law.k[slot / 16 * KeyTileBytes(dim) + (dim + 31) / 32 * 32 + (d / 4 * 16 + slot % 16) * 4 + d % 4] = 0xff;
        law.v[slot / 16 * ValueTileBytes(dim) + 64 + (slot % 16 / 4 * dim + d) * 4 + slot % 4] = 0xff;
      }
      for (int g = 0; g < (dim + 31) / 32; ++g) std::memset(&law.k[slot / 16 * KeyTileBytes(dim) + (g * 16 + slot % 16) * 2], 0xff, 2);
      std::memset(&law.v[slot / 16 * ValueTileBytes(dim) + slot % 16 * 4], 0xff, 4);
      EXPECT_EQ(law.k, Head(dim, 40).k);
      EXPECT_EQ(law.v, Head(dim, 40).v);
    }
  }
}

struct Shape {
  int hq, hkv, dim, m, position, window;
  float softcap;
};
std::string Text(const Shape& s) {
  return "Hq " + std::to_string(s.hq) + " Hkv " + std::to_string(s.hkv) + " D " + std::to_string(s.dim) + " m " + std::to_string(s.m) +
         " p " + std::to_string(s.position) + " w " + std::to_string(s.window) + " cap " + std::to_string(s.softcap);
}

// Inputs of one case. Slots that no query of the case may see keep 0xff: scales of NaN.
struct Case {
  Shape shape;
  std::vector<Head> heads;
  std::vector<float> q, out, partial, scratch;
  std::vector<uint8_t> k, v;
  AttentionArgs args;

  explicit Case(const Shape& s, uint32_t seed = 1, float bad_key = 0, float bad_value = 0, int more_slots = 3) : shape(s) {
    const int slots = s.position + s.m + more_slots;
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    const int q_stride = s.hq * s.dim + 24;
    q.assign(static_cast<size_t>(s.m) * q_stride, kNan);
    for (int i = 0; i < s.m; ++i)
      for (int d = 0; d < s.hq * s.dim; ++d) q[i * q_stride + d] = normal(rng);
    const AttentionInt8Kernels law = AttentionInt8(Isa::kScalar);
    std::vector<float> x(static_cast<size_t>(s.dim));
    const int first = s.window > 0 && s.position + 1 > s.window ? s.position + 1 - s.window : 0;
    for (int h = 0; h < s.hkv; ++h) {
      heads.emplace_back(s.dim, slots);
      for (int j = first; j < s.position + s.m; ++j) {
        for (float& value : x) value = normal(rng);
        if (bad_key != 0 && h == 1 && j == 130) x[5] = bad_key;
        law.store_key(x.data(), s.dim, j, heads.back().k.data());
        for (float& value : x) value = normal(rng);
        if (bad_value != 0 && h == 1 && j == 130) x[5] = bad_value;
        law.store_value(x.data(), s.dim, j, heads.back().v.data());
      }
      k.insert(k.end(), heads.back().k.begin(), heads.back().k.end());
      v.insert(v.end(), heads.back().v.begin(), heads.back().v.end());
    }
    out.assign(static_cast<size_t>(s.m) * (s.hq * s.dim + 8), -7.0f);
    partial.assign(static_cast<size_t>(PartialFloats(s.hq, s.dim, slots)), kNan);
    scratch.assign(static_cast<size_t>(AttentionScratchFloats(s.hq, s.hkv, s.dim)), kNan);
    args.q = q.data();
    args.q_stride = q_stride;
    args.k = k.data();
    args.v = v.data();
    args.kv_head_stride = int64_t{(slots + kTileSlots - 1) / kTileSlots} * kTileSlots * s.dim;
    args.kv_type = KvType::kInt8;
    args.n_heads = s.hq;
    args.n_kv_heads = s.hkv;
    args.head_dim = s.dim;
    args.m = s.m;
    args.position = s.position;
    args.window = s.window;
    args.scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
    args.softcap = s.softcap;
    args.out = out.data();
    args.out_stride = s.hq * s.dim + 8;
  }
  float* Scratch() {
    std::fill(scratch.begin(), scratch.end(), kNan);
    return scratch.data();
  }
  void Run(Isa isa) {
    std::fill(out.begin(), out.end(), -7.0f);
    if (shape.m > 1) return AttentionInt8(isa).prefill(args, 0, PrefillItems(args), Scratch());
    AttentionInt8(isa).decode(args, 0, DecodeItems(args), partial.data(), Scratch());
    if (DecodeChunks(args) > 1) Attention(isa).merge(args, 0, args.n_heads, partial.data());
  }
  float At(int token, int head, int d) const { return out[token * args.out_stride + head * shape.dim + d]; }
};

// Softmax attention in double. The bound has what f32 arithmetic may do (see attention_test.cc), and in decode half a step of a
// query code on every value of a key, and half a step of a weight code on every value.
void ExpectClose(const Case& c, const std::string& what) {
  const Shape& s = c.shape;
  const double unit = kEps * (8 + 4 * std::sqrt(s.dim));
  for (int i = 0; i < s.m; ++i) {
    for (int h = 0; h < s.hq; ++h) {
      const int last = s.position + i, first = s.window > 0 ? std::max(0, last + 1 - s.window) : 0;
      std::vector<double> q = Rotated(c.q.data() + i * c.args.q_stride + h * s.dim, s.dim);
      for (double& x : q) x /= RotationSize(s.dim);
      const Head& head = c.heads[static_cast<size_t>(h / (s.hq / s.hkv))];
      double most_q = 0, max = -1e300, sum = 0, score_error = 0, most_weight = 0;
      for (int d = 0; d < s.dim; ++d) most_q = std::max(most_q, std::fabs(q[d]));
      std::vector<double> p;
      for (int j = first; j <= last; ++j) {
        double dot = 0, size = 0, keys = 0;
        for (int d = 0; d < s.dim; ++d) {
          const double key = double{head.KeyScale(j, d)} * head.KeyCode(j, d);
          dot += q[d] * key;
          size += std::fabs(q[d] * key);
          keys += std::fabs(key);
        }
        dot *= double{c.args.scale};
        score_error = std::max(score_error, c.args.scale * (size * unit + (s.m == 1 ? keys * most_q / kQuerySteps / 2 : 0)));
        if (s.softcap > 0) dot = s.softcap * std::tanh(dot / s.softcap);
        p.push_back(dot);
        max = std::max(max, dot);
      }
      for (double& x : p) sum += x = std::exp(x - max);
      for (int j = first; j <= last; ++j) most_weight = std::max(most_weight, p[j - first] / sum * head.ValueScale(j));
      const double relative = 2 * score_error + kEps * (16 + 4 * std::sqrt(static_cast<double>(p.size())));
      for (int d = 0; d < s.dim; ++d) {
        double want = 0, size = 0, codes = 0;
        for (int j = first; j <= last; ++j) {
          const double x = p[j - first] / sum * head.ValueScale(j) * head.ValueCode(j, d);
          want += x;
          size += std::fabs(x);
          codes += std::fabs(double{static_cast<double>(head.ValueCode(j, d))});
        }
        const double bound = relative * size + (s.m == 1 ? 0.502 * codes * most_weight / kWeightSteps : 0);
        ASSERT_LE(std::fabs(c.At(i, h, d) - want), bound) << what << " " << Text(s) << " token " << i << " head " << h << " at " << d;
      }
    }
    for (int d = s.hq * s.dim; d < c.args.out_stride; ++d)
      ASSERT_EQ(c.out[i * c.args.out_stride + d], -7.0f) << what << " wrote past its heads";
  }
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  const int heads[][2] = {{1, 1}, {9, 3}, {4, 1}, {14, 2}, {8, 8}, {5, 1}, {12, 2}, {16, 2}, {11, 1}};
  const int ms[] = {5, 16, 17, 50}, positions[] = {0, 7, 100, 300}, windows[] = {0, 0, 1, 9, 64, 100};
  const int decode_positions[] = {0, 3, 15, 16, 126, 127, 128, 254, 255, 256, 700, 1023};
  std::mt19937 rng(7);
  for (const int dim : {8, 16, 24, 64, 72, 80, 96, 128, 256}) {
    for (int i = 0; i < 18; ++i) {
      const auto& h = heads[rng() % 9];
      Shape s = {h[0], h[1], dim, 1, decode_positions[rng() % 12], windows[rng() % 6], rng() % 3 == 0 ? 2.5f : 0.0f};
      if (i % 3 == 0) {
        s.m = ms[rng() % 4];
        s.position = positions[rng() % 4];
      }
      shapes.push_back(s);
    }
  }
  return shapes;
}

TEST(AttentionInt8, MatchesFloat64) {
  for (const Shape& s : Shapes()) {
    Case c(s, static_cast<uint32_t>(s.dim + s.m + s.position));
    for (const Isa isa : Tiers()) {
      c.Run(isa);
      ASSERT_NO_FATAL_FAILURE(ExpectClose(c, AttentionInt8(isa).name));
    }
  }
}

TEST(AttentionInt8, BitsDoNotDependOnTheSplitOrTheCapacity) {
  for (const Isa isa : Tiers()) {
    const AttentionInt8Kernels kernels = AttentionInt8(isa);
    Case whole({14, 2, 64, 1, 900, 700, 0}), cut(whole.shape), roomy(whole.shape, 1, 0, 0, 5000);
    whole.Run(isa);
    for (int64_t i = DecodeItems(cut.args); i-- > 0;) kernels.decode(cut.args, i, i + 1, cut.partial.data(), cut.Scratch());
    Attention(isa).merge(cut.args, 0, 14, cut.partial.data());
    EXPECT_EQ(std::memcmp(whole.out.data(), cut.out.data(), whole.out.size() * 4), 0) << kernels.name;
    roomy.Run(isa);
    EXPECT_EQ(std::memcmp(whole.out.data(), roomy.out.data(), whole.out.size() * 4), 0) << kernels.name;
  }
}

// As Attention.OnlySlotsInUseAreTouched, for tiles: those in use lie between closed pages.
TEST(AttentionInt8, OnlyTilesInUseAreTouched) {
  for (const int m : {1, 32}) {
    Case c({6, 1, 64, m, 1024 - m, 496, 0});
    const int64_t first = (1024 - m - 495) / kTileSlots, n = 1024 / kTileSlots - first;
    const int64_t k_bytes = KeyTileBytes(64), v_bytes = ValueTileBytes(64);
    check::Guarded k(static_cast<size_t>(n * k_bytes), check::Touch::kEnd), v(static_cast<size_t>(n * v_bytes), check::Touch::kEnd);
    std::memcpy(k.As<uint8_t>(), c.k.data() + first * k_bytes, static_cast<size_t>(n * k_bytes));
    std::memcpy(v.As<uint8_t>(), c.v.data() + first * v_bytes, static_cast<size_t>(n * v_bytes));
    k.Freeze();
    v.Freeze();
    for (const Isa isa : Tiers()) {
      c.args.k = c.k.data();
      c.args.v = c.v.data();
      c.Run(isa);
      const std::vector<float> want = c.out;
      c.args.k = k.As<uint8_t>() - first * k_bytes;
      c.args.v = v.As<uint8_t>() - first * v_bytes;
      c.Run(isa);
      EXPECT_EQ(c.out, want) << AttentionInt8(isa).name;
    }
  }
}

TEST(AttentionInt8, PrefillBitsDoNotDependOnTheCut) {
  for (const int window : {0, 40}) {
    const Shape s = {6, 2, 72, 75, 90, window, 0};
    for (const Isa isa : Tiers()) {
      const AttentionInt8Kernels kernels = AttentionInt8(isa);
      Case whole(s), cut(s);
      whole.Run(isa);
      const AttentionArgs all = cut.args;
      for (int at = 0, step = 2; at < s.m; at += step, step = 1 + (step * 7) % 31) {
        cut.args.m = std::min(step, s.m - at);
        cut.args.position = s.position + at;
        cut.args.q = all.q + at * all.q_stride;
        cut.args.out = all.out + at * all.out_stride;
        for (int64_t i = 0; i < PrefillItems(cut.args); ++i) kernels.prefill(cut.args, i, i + 1, cut.Scratch());
      }
      EXPECT_EQ(std::memcmp(whole.out.data(), cut.out.data(), whole.out.size() * 4), 0) << kernels.name << " window " << window;
    }
  }
}

TEST(AttentionInt8, NonFiniteInputsAreShown) {
  for (const Isa isa : Tiers()) {
    for (const int m : {1, 20}) {
      for (const float softcap : {0.0f, 30.0f}) {
        for (const float bad : {kNan, kInf, -kInf, 3e38f}) {
          for (const bool key : {true, false}) {
            if (bad == 3e38f && !key) continue;  // a value's scale is an f32 and holds it; a key's is an f16
            Case c({4, 2, 64, m, 300, 0, softcap}, 1, key ? bad : 0, key ? 0 : bad);
            c.Run(isa);
            for (int i = 0; i < m; ++i)
              for (int h = 0; h < 4; ++h)
                for (int d = 0; d < 64; ++d)
                  ASSERT_EQ(std::isfinite(c.At(i, h, d)), h < 2)
                      << AttentionInt8(isa).name << " hides " << bad << " m " << m << " key " << key;
          }
          if (bad == 3e38f) continue;
          Case c({4, 2, 64, m, 300, 0, softcap});
          c.q[2 * 64 + 5] = bad;
          c.Run(isa);
          for (int h = 0; h < 4; ++h)
            ASSERT_EQ(std::isfinite(c.At(0, h, 9)), h != 2) << AttentionInt8(isa).name << " hides a query of " << bad;
        }
      }
    }
  }
}

TEST(AttentionInt8, SelectGivesTheTierAskedFor) {
  EXPECT_STREQ(AttentionInt8(Isa::kScalar).name, "attention_int8_scalar");
#if defined(__x86_64__)
  EXPECT_STREQ(AttentionInt8(Isa::kAvx2).name, "attention_int8_avx2");
  EXPECT_STREQ(AttentionInt8(Isa::kAvx512Vnni).name, "attention_int8_avx512vnni");
  EXPECT_STREQ(AttentionInt8(Isa::kAvx512Amx).name, "attention_int8_avx512vnni");
#endif
}

}  // namespace
}  // namespace slm::kernels
