// Attention of every tier against a float64 reference, plus the properties the engine relies on: results do not depend on how
// the work is cut, slots out of sight are never read, and non-finite inputs are never hidden.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/tiers_for_test.h"
#include "kernels/attention/contract.h"
#include "kernels/packed/matmul_check.h"

namespace slm::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kEps = 0x1p-24;

std::vector<Isa> Tiers() { return TiersOf(Attention); }

struct Shape {
  int hq, hkv, dim, m, position, window;
  float softcap;
  KvType type;
};

std::string Text(const Shape& s) {
  return "Hq " + std::to_string(s.hq) + " Hkv " + std::to_string(s.hkv) + " D " + std::to_string(s.dim) + " m " + std::to_string(s.m) +
         " p " + std::to_string(s.position) + " w " + std::to_string(s.window) + " cap " + std::to_string(s.softcap) +
         (s.type == KvType::kF16 ? " f16" : " f32");
}

// Inputs of one case. Slots that no query of the case may see hold NaN.
struct Case {
  Shape shape;
  int slots;
  std::vector<float> q, k, v;  // k, v: [Hkv][slots][D], already rounded to the cache type
  std::vector<uint16_t> k16, v16;
  std::vector<float> out, partial, scratch;
  AttentionArgs args;

  explicit Case(const Shape& s, uint32_t seed = 1, float spread = 1) : shape(s), slots(s.position + s.m + 3) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0, spread);
    const int q_stride = s.hq * s.dim + 24;
    q.assign(static_cast<size_t>(s.m) * q_stride, kNan);
    for (int i = 0; i < s.m; ++i)
      for (int d = 0; d < s.hq * s.dim; ++d) q[i * q_stride + d] = normal(rng);
    const size_t n = static_cast<size_t>(s.hkv) * slots * s.dim;
    k.assign(n, kNan);
    v.assign(n, kNan);
    const int first = s.window > 0 && s.position + 1 > s.window ? s.position + 1 - s.window : 0;
    for (int h = 0; h < s.hkv; ++h) {
      for (int j = first; j < s.position + s.m; ++j) {
        for (int d = 0; d < s.dim; ++d) {
          const size_t at = (static_cast<size_t>(h) * slots + j) * s.dim + d;
          k[at] = Round(normal(rng));
          v[at] = Round(normal(rng));
        }
      }
    }
    out.assign(static_cast<size_t>(s.m) * (s.hq * s.dim + 8), -7.0f);
    partial.assign(static_cast<size_t>(PartialFloats(s.hq, s.dim, slots)), kNan);
    scratch.assign(static_cast<size_t>(AttentionScratchFloats(s.hq, s.hkv, s.dim)) + 32, kNan);
    args.q_stride = q_stride;
    args.out_stride = s.hq * s.dim + 8;
    args.kv_head_stride = int64_t{slots} * s.dim;
    args.kv_type = s.type;
    args.n_heads = s.hq;
    args.n_kv_heads = s.hkv;
    args.head_dim = s.dim;
    args.m = s.m;
    args.position = s.position;
    args.window = s.window;
    args.scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
    args.softcap = s.softcap;
    Bind();
  }
  float Round(float x) const { return shape.type == KvType::kF16 ? HalfToFloat(FloatToHalf(x)) : x; }
  // Call after k, v or q were changed.
  void Bind() {
    args.q = q.data();
    args.out = out.data();
    args.k = k.data();
    args.v = v.data();
    if (shape.type == KvType::kF32) return;
    k16.resize(k.size());
    v16.resize(v.size());
    for (size_t i = 0; i < k.size(); ++i) {
      k16[i] = FloatToHalf(k[i]);
      v16[i] = FloatToHalf(v[i]);
    }
    args.k = k16.data();
    args.v = v16.data();
  }
  float* Scratch() {
    std::fill(scratch.begin(), scratch.end(), kNan);  // kernels may rely on nothing in it
    return scratch.data();
  }
  void Prefill(const AttentionKernels& kernels) { kernels.prefill(args, 0, PrefillItems(args), Scratch()); }
  void Decode(const AttentionKernels& kernels) {
    kernels.decode(args, 0, DecodeItems(args), partial.data(), Scratch());
    if (DecodeChunks(args) > 1) kernels.merge(args, 0, args.n_heads, partial.data());
  }
  std::vector<float> Output() const {
    std::vector<float> r;
    for (int i = 0; i < shape.m; ++i)
      r.insert(r.end(), out.begin() + i * args.out_stride, out.begin() + i * args.out_stride + shape.hq * shape.dim);
    return r;
  }
};

struct Expected {
  std::vector<double> value, bound;
};

// Softmax attention in double, and the error that f32 arithmetic may make: the relative error of a weight is the absolute
// error of its score (twice, the maximum moves too), and the weighted sum adds its own rounding.
// `rounded`: bf16 rounds both factors of every product by 2^-9 relative.
Expected Reference(const Case& c, bool rounded = false) {
  const Shape& s = c.shape;
  Expected r;
  const double factors = rounded ? 0x1.02p-8 : 0, unit = factors + kEps * (8 + 4 * std::sqrt(s.dim));
  for (int i = 0; i < s.m; ++i) {
    for (int h = 0; h < s.hq; ++h) {
      const int last = s.position + i, first = s.window > 0 ? std::max(0, last + 1 - s.window) : 0;
      const float* q = c.q.data() + i * c.args.q_stride + h * s.dim;
      const size_t base = static_cast<size_t>(h / (s.hq / s.hkv)) * c.slots * s.dim;
      std::vector<double> p;
      double max = -1e300, magnitude = 0, sum = 0;
      for (int j = first; j <= last; ++j) {
        double dot = 0, size = 0;
        for (int d = 0; d < s.dim; ++d) {
          const double x = double{q[d]} * c.k[base + j * s.dim + d];
          dot += x;
          size += std::fabs(x);
        }
        dot *= double{c.args.scale};
        magnitude = std::max(magnitude, size * c.args.scale);
        if (s.softcap > 0) dot = s.softcap * std::tanh(dot / s.softcap);
        p.push_back(dot);
        max = std::max(max, dot);
      }
      for (double& x : p) sum += x = std::exp(x - max);
      const double relative = factors + 2 * magnitude * unit + kEps * (16 + 4 * std::sqrt(static_cast<double>(p.size())));
      for (int d = 0; d < s.dim; ++d) {
        double acc = 0, size = 0;
        for (int j = first; j <= last; ++j) {
          const double x = p[j - first] / sum * c.v[base + j * s.dim + d];
          acc += x;
          size += std::fabs(x);
        }
        r.value.push_back(acc);
        r.bound.push_back(relative * size);
      }
    }
  }
  return r;
}

void ExpectClose(const Case& c, const Expected& want, const std::string& what) {
  const std::vector<float> got = c.Output();
  ASSERT_EQ(got.size(), want.value.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(got[i] - want.value[i]), want.bound[i])
        << what << " " << Text(c.shape) << " at " << i << ": " << got[i] << " want " << want.value[i];
  }
  for (int i = 0; i < c.shape.m; ++i)
    for (int d = c.shape.hq * c.shape.dim; d < c.args.out_stride; ++d)
      ASSERT_EQ(c.out[i * c.args.out_stride + d], -7.0f) << what << " wrote past its heads";
}

std::vector<Shape> Shapes(bool decode) {
  std::vector<Shape> shapes;
  const int heads[][2] = {{1, 1}, {9, 3}, {4, 1}, {14, 2}, {8, 8}, {5, 1}, {12, 2}, {11, 1}, {16, 2}};
  const int dims[] = {8, 16, 24, 64, 72, 80, 96, 128, 256};
  const int ms[] = {1, 5, 16, 17, 33, 50}, positions[] = {0, 7, 100, 300}, windows[] = {0, 1, 9, 64, 100};
  const int decode_positions[] = {0, 3, 254, 255, 256, 700, 1023};
  std::mt19937 rng(7);
  for (const int dim : dims) {
    for (int i = 0; i < 10; ++i) {
      const auto& h = heads[rng() % 9];
      Shape s = {h[0],
                 h[1],
                 dim,
                 ms[rng() % 6],
                 positions[rng() % 4],
                 windows[rng() % 5],
                 rng() % 3 == 0 ? 2.5f : 0.0f,
                 rng() % 2 ? KvType::kF16 : KvType::kF32};
      if (decode) {
        s.m = 1;
        s.position = decode_positions[rng() % 7];
        if (rng() % 4 == 0) s.window = 512;
      }
      shapes.push_back(s);
    }
  }
  return shapes;
}

TEST(Attention, PrefillMatchesFloat64) {
  for (const Shape& s : Shapes(false)) {
    Case c(s, static_cast<uint32_t>(s.dim + s.m));
    const Expected want = Reference(c), rounded = Reference(c, true);
    for (const Isa isa : Tiers()) {
      std::fill(c.out.begin(), c.out.end(), -7.0f);
      c.Prefill(Attention(isa));
      const bool pairs = isa == Isa::kAvx512Bf16 && s.m >= kWideTokens && s.type == KvType::kF16;
      ASSERT_NO_FATAL_FAILURE(ExpectClose(c, pairs ? rounded : want, Attention(isa).name));
    }
  }
}

TEST(Attention, DecodeMatchesFloat64) {
  for (const Shape& s : Shapes(true)) {
    Case c(s, static_cast<uint32_t>(s.dim + s.position));
    const Expected want = Reference(c);
    for (const Isa isa : Tiers()) {
      std::fill(c.out.begin(), c.out.end(), -7.0f);
      c.Decode(Attention(isa));
      ASSERT_NO_FATAL_FAILURE(ExpectClose(c, want, Attention(isa).name));
    }
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  // Scores of several hundred: exp of the raw score would be infinite.
  for (const int m : {1, 20}) {
    Case c({4, 2, 64, m, 70, 0, 0, KvType::kF32}, 3, 12.0f);
    const Expected want = Reference(c);
    for (const Isa isa : Tiers()) {
      c.Prefill(Attention(isa));
      ASSERT_NO_FATAL_FAILURE(ExpectClose(c, want, Attention(isa).name));
      if (m > 1) continue;
      c.Decode(Attention(isa));
      ASSERT_NO_FATAL_FAILURE(ExpectClose(c, want, Attention(isa).name));
    }
  }
}

// A query's bits are the same alone, in any run of items, and in a prompt cut into other chunks.
TEST(Attention, PrefillBitsDoNotDependOnTheCut) {
  for (const int window : {0, 40}) {
    const Shape s = {6, 2, 72, 75, 90, window, 0, KvType::kF16};
    for (const Isa isa : Tiers()) {
      if (isa == Isa::kScalar) continue;  // the law's chunks start at each query's own first key
      const AttentionKernels kernels = Attention(isa);
      Case whole(s);
      whole.Prefill(kernels);
      Case items(s);
      for (int64_t i = 0; i < PrefillItems(items.args); ++i) kernels.prefill(items.args, i, i + 1, items.Scratch());
      EXPECT_EQ(std::memcmp(whole.out.data(), items.out.data(), whole.out.size() * sizeof(float)), 0) << kernels.name;
      Case cut(s);
      const AttentionArgs all = cut.args;
      const int least = isa == Isa::kAvx512Bf16 ? kWideTokens : 1;  // calls of fewer tokens have other kernels there
      for (int at = 0, step = least; at < s.m; at += step, step = std::max(least, 1 + (step * 7) % 31)) {
        if (s.m - at - step < least) step = s.m - at;
        cut.args = all;
        cut.args.m = std::min(step, s.m - at);
        cut.args.position = s.position + at;
        cut.args.q = all.q + at * all.q_stride;
        cut.args.out = all.out + at * all.out_stride;
        cut.Prefill(kernels);
      }
      EXPECT_EQ(std::memcmp(whole.out.data(), cut.out.data(), whole.out.size() * sizeof(float)), 0) << kernels.name << window;
    }
  }
}

TEST(Attention, DecodeBitsDoNotDependOnTheSplit) {
  for (const Isa isa : Tiers()) {
    const AttentionKernels kernels = Attention(isa);
    Case whole({14, 2, 64, 1, 900, 700, 0, KvType::kF16}), cut(whole.shape);
    whole.Decode(kernels);
    const int64_t n = DecodeItems(cut.args);
    ASSERT_EQ(n, 2 * 4);
    for (int64_t i = n; i-- > 0;) kernels.decode(cut.args, i, i + 1, cut.partial.data(), cut.Scratch());
    for (int h = 0; h < 14; h += 3) kernels.merge(cut.args, h, std::min(14, h + 3), cut.partial.data());
    EXPECT_EQ(std::memcmp(whole.out.data(), cut.out.data(), whole.out.size() * sizeof(float)), 0) << kernels.name;
  }
}

enum class Where { kQuery, kKey, kValue };

// One bad value; every head that sees it must come out non-finite, everything that does not must stay as it was.
void ExpectShown(const AttentionKernels& kernels, Where where, float bad, int m, float softcap, float q_sign) {
  const Shape s = {4, 2, 64, m, 300, 0, softcap, KvType::kF16};
  Case c(s);
  for (float& x : c.q) x = std::fabs(x) * q_sign;
  const int key = 130, dim = 5;  // seen by every query
  const size_t at = (static_cast<size_t>(1) * c.slots + key) * s.dim + dim;
  if (where == Where::kQuery) c.q[2 * s.dim + dim] = bad;
  if (where == Where::kKey) c.k[at] = bad;
  if (where == Where::kValue) c.v[at] = bad;
  c.Bind();
  if (m == 1) c.Decode(kernels);
  else c.Prefill(kernels);
  const std::vector<float> out = c.Output();
  for (int i = 0; i < m; ++i) {
    for (int h = 0; h < s.hq; ++h) {
      const float* o = out.data() + (i * s.hq + h) * s.dim;
      const bool hit = where == Where::kQuery ? h == 2 && i == 0 : h >= 2;
      for (int d = 0; d < s.dim; ++d) {
        const bool bad_here = hit && (where != Where::kValue || d == dim);
        if (bad_here && where != Where::kValue)
          ASSERT_TRUE(std::isnan(o[d])) << kernels.name << " hides " << bad << " of input " << static_cast<int>(where) << " m " << m;
        else ASSERT_EQ(std::isfinite(o[d]), !bad_here) << kernels.name << " input " << static_cast<int>(where) << " m " << m << " h " << h;
      }
    }
  }
}

TEST(Attention, NonFiniteInputsAreShown) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Isa isa : Tiers())
    for (const int m : {1, 20})
      for (const float softcap : {0.0f, 30.0f})
        for (const float bad : {kNan, inf, -inf})
          for (const float sign : {1.0f, -1.0f})
            for (const Where where : {Where::kQuery, Where::kKey, Where::kValue})
              ASSERT_NO_FATAL_FAILURE(ExpectShown(Attention(isa), where, bad, m, softcap, sign));
}

// What is not in use costs nothing: pages past the last slot in use, and before a window, may not even be touched, so the cost is
// that of the keys in use however large the cache is. K and V end exactly where the inaccessible page begins.
TEST(Attention, OnlySlotsInUseAreTouched) {
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    for (const int m : {1, 32}) {
      Case c({6, 1, 64, m, 1024 - m, 512, 0, type});
      const size_t slot_bytes = type == KvType::kF16 ? 128 : 256;
      // The window of the first query begins at slot 1024 - m - 511: the pages before that stay closed.
      const int first = 1024 - m - 511;
      const auto copy = [&](check::Guarded& to, const void* from) {
        std::memcpy(to.As<uint8_t>(), static_cast<const uint8_t*>(from) + first * slot_bytes, (1024 - first) * slot_bytes);
        to.Freeze();
      };
      check::Guarded k((1024 - first) * slot_bytes, check::Touch::kEnd), v((1024 - first) * slot_bytes, check::Touch::kEnd);
      copy(k, c.args.k);
      copy(v, c.args.v);
      for (const Isa isa : Tiers()) {
        c.Bind();
        if (m == 1) c.Decode(Attention(isa));
        else c.Prefill(Attention(isa));
        const std::vector<float> want = c.Output();
        c.args.k = k.As<uint8_t>() - first * slot_bytes;
        c.args.v = v.As<uint8_t>() - first * slot_bytes;
        std::fill(c.out.begin(), c.out.end(), 0.0f);
        if (m == 1) c.Decode(Attention(isa));
        else c.Prefill(Attention(isa));
        EXPECT_EQ(c.Output(), want) << Attention(isa).name;
      }
    }
  }
}

TEST(Attention, SelectGivesTheTierAskedFor) {
  EXPECT_STREQ(Attention(Isa::kScalar).name, "attention_scalar");
#if defined(__x86_64__)
  EXPECT_STREQ(Attention(Isa::kAvx2).name, "attention_avx2");
  EXPECT_STREQ(Attention(Isa::kAvx512Vnni).name, "attention_avx512vnni");
  EXPECT_STREQ(Attention(Isa::kAvx512Bf16).name, "attention_avx512bf16");
  EXPECT_STREQ(Attention(Isa::kAvx512Amx).name, "attention_avx512bf16");
#elif defined(__aarch64__)
  EXPECT_STREQ(Attention(Isa::kNeonDot).name, "attention_neon_dotprod");
  EXPECT_STREQ(Attention(Isa::kNeonI8mm).name, "attention_neon_dotprod");
#endif
}

}  // namespace
}  // namespace slm::kernels
