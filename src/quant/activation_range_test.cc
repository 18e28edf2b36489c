// Ranges and smoothing factors against numpy (tests/tiny/make_ranges.py), and what smoothing is for.
#include "quant/activation_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mix_for_test.h"
#include "quant/smooth.h"

namespace slm::quant {
namespace {

std::vector<float> Values(uint32_t seed, uint32_t n, const std::string& kind) {
  std::vector<float> out;
  for (uint32_t i = 0; i < n; ++i) {
    const double a = static_cast<double>(static_cast<int>(Mix(seed, i) % 65536) - 32768), b = Mix(seed + 1, i) % 65536;
    double v = a * b * b * 0x1p-47 * 8;
    if (kind == "outlier" && i == 17) v = 500;
    if (kind == "positive") v = std::abs(v);
    if (kind == "shifted") v += 3;
    out.push_back(static_cast<float>(v));
  }
  return out;
}

nlohmann::json Fixture() {
  std::ifstream file(SLM_SOURCE_DIR "/src/quant/testdata/ranges.json");
  return nlohmann::json::parse(file);
}

TEST(ActivationRange, EveryRuleAgainstNumpy) {
  const nlohmann::json fixture = Fixture();
  ASSERT_EQ(fixture["cases"].size(), 4u);
  for (const auto& c : fixture["cases"]) {
    SCOPED_TRACE(c["kind"].get<std::string>());
    ValueHistogram h;
    h.Add(Values(c["seed"], c["n"], c["kind"]));
    EXPECT_EQ(h.extremes().low, c["low"].get<float>());
    EXPECT_EQ(h.extremes().high, c["high"].get<float>());
    int64_t counts = 0;
    for (int i = -ValueHistogram::kBins; i < ValueHistogram::kBins; ++i)
      counts += static_cast<int64_t>(h.at(i)) * (i + ValueHistogram::kBins);
    EXPECT_EQ(counts, c["counts"].get<int64_t>());
    const float low = std::min(c["low"].get<float>(), 0.0f), high = std::max(c["high"].get<float>(), 0.0f);
    const auto near = [&](const ValueRange& r, float a, float b) {
      EXPECT_NEAR(r.low, std::max(a, low), 1e-6f);
      EXPECT_NEAR(r.high, std::min(b, high), 1e-6f);
    };
    near(ChooseRange(h, {}), low, high);
    for (const char* share : {"99.9", "99.99", "99.999"}) {
      RangeOptions o{.rule = RangeRule::kPercentile, .percentile = std::stod(share)};
      const auto& want = c[std::string("percentile ") + share];
      near(ChooseRange(h, o), want[0], want[1]);
      o.symmetric = true;
      const ValueRange r = ChooseRange(h, o);
      EXPECT_EQ(r.low, -r.high);
      EXPECT_NEAR(r.high, std::min(c[std::string("symmetric ") + share].get<float>(), std::max(-low, high)), 1e-6f);
    }
    for (const int bits : {4, 8}) {
      const auto& want = c["mse " + std::to_string(bits)];
      const ValueRange r = ChooseRange(h, {.rule = RangeRule::kMse, .bits = bits});
      EXPECT_NEAR(r.low, want[1].get<float>(), 1e-5f);
      EXPECT_NEAR(r.high, want[2].get<float>(), 1e-5f);
      EXPECT_NEAR(RangeError(h, r, bits), want[0].get<double>(), 1e-3 * want[0].get<double>());
    }
    const auto most = c["entropy"].get<float>();
    near(ChooseRange(h, {.rule = RangeRule::kEntropy}), -most, most);
  }
}

TEST(ActivationRange, PartsInAnyOrderGiveTheSameHistogram) {
  const std::vector<float> v = Values(7, 3000, "outlier");
  ValueHistogram whole, forward, backward, parts[3];
  whole.Add(v);
  for (size_t i = 0; i < v.size(); ++i) parts[i / 1000].Add({&v[i], 1});
  for (int i = 0; i < 3; ++i) {
    forward.Merge(parts[i]);
    backward.Merge(parts[2 - i]);
  }
  EXPECT_EQ(whole.count(), 3000u);
  for (int i = -ValueHistogram::kBins; i < ValueHistogram::kBins; ++i) {
    ASSERT_EQ(forward.at(i), whole.at(i));
    ASSERT_EQ(backward.at(i), whole.at(i));
  }
  EXPECT_EQ(backward.extremes().high, 500);
}

TEST(ActivationRange, Degenerate) {
  ValueHistogram h;
  for (const RangeRule rule : {RangeRule::kMinMax, RangeRule::kPercentile, RangeRule::kMse, RangeRule::kEntropy}) {
    EXPECT_EQ(ChooseRange(h, {.rule = rule}).high, 0);
    for (const float v : {0.0f, 2.5f, -1e-30f}) {
      ValueHistogram one;
      one.Add(std::vector<float>(10, v));
      const ValueRange r = ChooseRange(one, {.rule = rule});
      EXPECT_LE(r.low, 0);
      EXPECT_GE(r.high, 0);
      EXPECT_LE(r.low, v);
      EXPECT_GE(r.high, v) << static_cast<int>(rule);
    }
  }
}

TEST(Smooth, FactorsAgainstNumpy) {
  const nlohmann::json fixture = Fixture();
  std::vector<float> x = Values(41, 24, "positive"), w = Values(51, 24, "positive");
  for (const char* alpha : {"0.25", "0.5", "0.8"}) {
    const std::vector<float> s = SmoothFactors(x, w, std::stod(alpha));
    for (size_t i = 0; i < s.size(); ++i) {
      const double want = fixture["smooth"][alpha][i];
      EXPECT_NEAR(s[i], want, 1e-6 * want) << alpha << " channel " << i;
    }
  }
  x[3] = 0;
  w[4] = 0;
  const std::vector<float> s = SmoothFactors(x, w, 0.5);
  EXPECT_EQ(s[3], 1);
  EXPECT_EQ(s[4], 1);
}

struct Sample {
  std::vector<float> x, w, most_x, most_w;
};
// 32 tokens and 16 rows of 64 channels; channel 9 is `factor` times the others in the activations.
Sample MakeSample(float factor) {
  Sample s{.x = Values(61, 32 * 64, "plain"),
           .w = Values(71, 16 * 64, "plain"),
           .most_x = std::vector<float>(64),
           .most_w = std::vector<float>(64)};
  for (size_t i = 9; i < s.x.size(); i += 64) s.x[i] *= factor;
  for (size_t i = 0; i < s.x.size(); ++i) s.most_x[i % 64] = std::max(s.most_x[i % 64], std::abs(s.x[i]));
  for (size_t i = 0; i < s.w.size(); ++i) s.most_w[i % 64] = std::max(s.most_w[i % 64], std::abs(s.w[i]));
  return s;
}

TEST(Smooth, AnOutlierChannelIsHeldByBothSides) {
  const Sample s = MakeSample(100);
  for (const backend::InputRounding inputs : {backend::InputRounding::kPerToken, backend::InputRounding::kStatic}) {
    const Smoothing found = SearchSmoothing(s.x, s.w, 64, s.most_x, s.most_w, {.inputs = inputs});
    ASSERT_EQ(found.scale.size(), 64u);
    EXPECT_LT(found.error, 0.1 * found.identity_error);
    EXPECT_GT(found.alpha, 0.2);
  }
}

TEST(Smooth, NeverWorseThanNone) {
  for (const float factor : {0.01f, 1.0f, 5.0f}) {
    const Sample s = MakeSample(factor);
    const Smoothing found = SearchSmoothing(s.x, s.w, 64, s.most_x, s.most_w, {});
    EXPECT_LE(found.error, found.identity_error);
    EXPECT_GT(found.identity_error, 0);
  }
}

}  // namespace
}  // namespace slm::quant
