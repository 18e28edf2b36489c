// See fp4.h.
#include "quant/fp4.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"

namespace slm::quant {
namespace {

constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
constexpr float kMostE2M1 = 6, kMostE4M3 = 448;
constexpr uint8_t kMostE4M3Code = 0x7e;
constexpr int kE8M0Bias = 127, kMostExponent = 2;  // 6 = 1.5 * 2^2

float ScaleValue(Fp4 kind, uint8_t code, float shared) { return kind == Fp4::kMx ? E8M0Value(code) : E4M3Value(code) * shared; }

float MostOf(std::span<const float> w) {
  float most = 0;
  for (const float v : w) most = std::max(most, std::abs(v));
  return most;
}

uint8_t RangeCode(Fp4 kind, std::span<const float> w, float shared) {
  const float most = MostOf(w);
  if (kind == Fp4::kNv) return NearestE4M3(most / kMostE2M1 / shared);
  if (most == 0) return 0;
  return static_cast<uint8_t>(std::clamp(std::ilogb(most) - kMostExponent + kE8M0Bias, 0, 254));
}

double ErrorOf(std::span<const float> w, const float* u, float scale) {
  const float inverse = scale > 0 ? 1 / scale : 0.0f;
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double d = static_cast<double>(w[i]) - static_cast<double>(E2M1Value(NearestE2M1(w[i] * inverse)) * scale);
    sum += d * d * (u ? static_cast<double>(u[i]) : 1.0);
  }
  return sum;
}

uint8_t ChooseScale(Fp4 kind, Search search, std::span<const float> w, const float* u, float shared) {
  const uint8_t near = RangeCode(kind, w, shared);
  if (search == Search::kNearest) return near;
  const int down = kind == Fp4::kMx ? 1 : 5, up = kind == Fp4::kMx ? 1 : 3, most = kind == Fp4::kMx ? 254 : kMostE4M3Code;
  uint8_t best = near;
  double least = ErrorOf(w, u, ScaleValue(kind, near, shared));
  for (int c = std::max(near - down, 0); c <= std::min(near + up, most); ++c) {
    const double error = ErrorOf(w, u, ScaleValue(kind, static_cast<uint8_t>(c), shared));
    if (error >= least) continue;
    least = error;
    best = static_cast<uint8_t>(c);
  }
  return best;
}

}  // namespace

uint8_t NearestE2M1(float v) {
  const float size = std::abs(v);
  uint8_t code = 0;  // how many middles lie below; a middle belongs to the even neighbour
  for (uint8_t i = 0; i < 7; ++i) {
    const float middle = (kValues[i] + kValues[i + 1]) / 2;
    if (size > middle || (size == middle && i % 2 == 1)) code = static_cast<uint8_t>(i + 1);
  }
  return static_cast<uint8_t>(code | (std::signbit(v) ? 8 : 0));
}

uint8_t NearestE4M3(float v) {
  if (v >= kMostE4M3) return kMostE4M3Code;
  const int exponent = v > 0 ? std::max(std::ilogb(v), -6) : -6;
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(v, 3 - exponent)));  // 8 to 16, below 8 under the smallest normal number
  return static_cast<uint8_t>((exponent + 6) * 8 + steps);                           // 16 steps carry into the exponent
}

float SharedScale(Fp4 kind, float most) { return kind == Fp4::kNv && most > 0 ? most / (kMostE2M1 * kMostE4M3) : 1.0f; }

uint8_t QuantizeFp4Group(Fp4 kind, Search search, std::span<const float> w, const float* u, float shared, uint8_t* codes) {
  const uint8_t code = ChooseScale(kind, search, w, u, shared);
  const float scale = ScaleValue(kind, code, shared), inverse = scale > 0 ? 1 / scale : 0.0f;
  for (size_t i = 0; i < w.size(); ++i) codes[i] = NearestE2M1(w[i] * inverse);
  return code;
}

void StoreFp4Row(Fp4 kind, Search search, std::span<const float> w, const float* u, float* values) {
  const auto group = static_cast<size_t>(GroupOf(kind));
  const float shared = SharedScale(kind, MostOf(w));
  uint8_t codes[32];
  for (size_t at = 0; at < w.size(); at += group) {
    const float scale = ScaleValue(kind, QuantizeFp4Group(kind, search, w.subspan(at, group), u ? u + at : nullptr, shared, codes), shared);
    for (size_t i = 0; i < group; ++i) values[at + i] = E2M1Value(codes[i]) * scale;
  }
}

void Fp4Rows::Values(int64_t i, float* out) const {
  const int group = GroupOf(kind);
  for (int64_t j = 0; j < width; ++j)
    out[j] = E2M1Value(codes[static_cast<size_t>(i * width + j)]) *
             ScaleValue(kind, scales[static_cast<size_t>(i * (width / group) + j / group)], shared);
}

Fp4Rows QuantizeFp4(Fp4 kind, Search search, const float* w, int64_t rows, int64_t width, const float* u, ThreadTeam& team) {
  const int group = GroupOf(kind);
  const auto n = static_cast<size_t>(group);
  SLM_ASSERT(width % group == 0);
  Fp4Rows out{.kind = kind, .rows = rows, .width = width};
  out.scales.resize(static_cast<size_t>(rows * width / group));
  out.codes.resize(static_cast<size_t>(rows * width));
  out.shared = SharedScale(kind, MostOf({w, static_cast<size_t>(rows * width)}));
  auto work = [&](int thread, int n_threads) {
    const Range mine = SplitRange(rows * width / group, 1, thread, n_threads);
    for (int64_t g = mine.begin; g < mine.end; ++g) {
      const std::span<const float> part(w + g * group, n);
      const float* weights = u ? u + g * group % width : nullptr;
      out.scales[static_cast<size_t>(g)] = QuantizeFp4Group(kind, search, part, weights, out.shared, out.codes.data() + g * group);
    }
  };
  team.Run(work);
  return out;
}

}  // namespace slm::quant
