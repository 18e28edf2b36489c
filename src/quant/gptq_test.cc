// Codes against the published form of GPTQ (numpy, tests/tiny/make_gptq.py), and what holds for every matrix: never worse than plain
// rounding, whatever the input's moments look like.
#include "quant/gptq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/mix_for_test.h"
#include "model/model.h"
#include "quant/ggml_blocks.h"
#include "quant/lpbq.h"
#include "quant/schemes.h"

namespace slm::quant {
namespace {

struct Problem {
  int64_t rows = 6, k = 0;
  std::vector<float> w, h;
};
// As make_gptq.py has it; the inputs are whole numbers, their moments exact in f64.
Problem Make(uint32_t seed, int64_t k, const std::string& kind, int64_t rows = 6, int64_t tokens = 300) {
  Problem p{.rows = rows, .k = k};
  const auto n = static_cast<size_t>(k);
  for (uint32_t i = 0; i < rows * k; ++i)
    p.w.push_back(static_cast<float>(static_cast<int>(Mix(seed, i) % (1 << 20)) - (1 << 19)) * 0x1p-23f);
  std::vector<double> h(n * n), x(n), seen(n);
  for (uint32_t t = 0; t < tokens; ++t) {
    const auto a = [&](size_t j) {
      return static_cast<double>(Mix(seed + 1, t * static_cast<uint32_t>(k) + static_cast<uint32_t>(j)) % 101) - 50;
    };
    for (size_t j = 0; j < n; ++j) {
      x[j] = (a(j) + a((j + n - 1) % n) + 2 * a((j + n - 7) % n)) * static_cast<double>(1 + j % 5);
      if (kind == "massive" && j == 5) x[j] *= 200;
      if (kind == "massive" && j == 40 && t < 2) x[j] *= 300;
      if (kind == "dead" && (j == 9 || j == 33)) x[j] = 0;
    }
    for (size_t j = 0; j < n; ++j) seen[j] = kind == "alike" ? x[j % 11] : x[j];
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) h[i * n + j] += seen[i] * seen[j];
  }
  p.h.assign(h.begin(), h.end());
  return p;
}

// (w - v) H (w - v)^T of a row, the long way; `added` to the diagonal.
double ErrorOf(const Problem& p, int64_t row, const std::vector<float>& v, double added = 0) {
  const auto n = static_cast<size_t>(p.k);
  std::vector<double> d(n);
  for (size_t j = 0; j < n; ++j) d[j] = static_cast<double>(p.w[static_cast<size_t>(row) * n + j]) - static_cast<double>(v[j]);
  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += static_cast<double>(p.h[i * n + j]) * d[j];
    total += d[i] * (sum + added * d[i] + (p.h[i * n + i] == 0 ? added / 0.01 * d[i] : 0));
  }
  return total;
}
double ErrorOf(const Problem& p, const CodedRows& coded) {
  std::vector<float> v(static_cast<size_t>(p.k));
  double sum = 0;
  for (int64_t i = 0; i < p.rows; ++i) {
    coded.Values(i, v.data());
    sum += ErrorOf(p, i, v);
  }
  return sum;
}
double MeanDiagonal(const Problem& p) {
  double sum = 0;
  for (int64_t i = 0; i < p.k; ++i) sum += static_cast<double>(p.h[static_cast<size_t>(i * (p.k + 1))]);
  return sum / static_cast<double>(p.k);
}

class Gptq : public testing::Test {
 protected:
  void SetUp() override { team_ = ThreadTeam::Create(2).Take(); }
  Curvature Moments(const Problem& p, const BlockForm& form) {
    auto c = Curvature::Create({p.h.data(), p.k, p.k}, form, {.damping = 0.01}, isa_, *team_);
    EXPECT_TRUE(c.ok());
    return c.Take();
  }
  CodedRows Solve(const Problem& p, const BlockForm& form, const GptqOptions& options, GptqReport* report = nullptr) {
    CodedRows out;
    const GptqReport r = SolveGptq(Moments(p, form), form, p.w.data(), p.rows, options, *team_, &out);
    if (report) *report = r;
    return out;
  }
  const Isa isa_ = BestIsa(DetectCpu());
  std::unique_ptr<ThreadTeam> team_;
};

TEST_F(Gptq, CodesOfThePublishedFormAndBetterOnes) {
  std::ifstream file(SLM_SOURCE_DIR "/src/quant/testdata/gptq.json");
  const nlohmann::json fixture = nlohmann::json::parse(file);
  ASSERT_EQ(fixture["cases"].size(), 6u);
  for (const auto& c : fixture["cases"]) {
    const std::string kind = c["case"], scheme = c["scheme"];
    SCOPED_TRACE(kind + ", " + scheme + ", " + std::to_string(c["k"].get<int>()));
    const Problem p = Make(c["seed"], c["k"], kind);
    const BlockForm form{.scheme = scheme == "symmetric" ? Scheme::kSymmetric : Scheme::kIntegerZero, .store = Store::kF32};
    const CodedRows same = Solve(p, form, {.grids = GridTime::kStatic, .search = Search::kNearest, .sweeps = 0, .guard = Guard::kNone});
    for (int64_t i = 0; i < p.rows; ++i) {
      std::string codes;
      for (int64_t j = 0; j < p.k; ++j) codes += "0123456789abcdef"[same.codes[static_cast<size_t>(i * p.k + j)]];
      EXPECT_EQ(codes, c["codes"][static_cast<size_t>(i)].get<std::string>()) << "row " << i;
    }
    const double published = c["error"];
    EXPECT_NEAR(ErrorOf(p, same), published, 1e-4 * published);
    EXPECT_LT(ErrorOf(p, Solve(p, form, {.grids = GridTime::kStatic, .search = Search::kNearest, .sweeps = 2})), 0.97 * published);
    EXPECT_LT(ErrorOf(p, Solve(p, form, {})), 0.9 * published);
  }
}

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K};
const char* const kKinds[] = {"plain", "massive", "dead", "alike"};

TEST_F(Gptq, NeverWorseThanRoundingRowByRow) {
  for (const DType dtype : kTypes)
    for (const char* kind : kKinds) {
      SCOPED_TRACE(std::string(Info(dtype).name) + ", " + kind);
      const Problem p = Make(100, 256, kind, 5);
      const BlockForm form = FormOf(dtype);
      GptqReport report;
      const CodedRows coded = Solve(p, form, {}, &report);
      std::vector<float> diagonal, v(256);
      for (size_t i = 0; i < 256; ++i) diagonal.push_back(p.h[i * 257]);
      const double added = 0.01 * MeanDiagonal(p);
      double total = 0, nearest_total = 0;
      for (int64_t i = 0; i < p.rows; ++i) {
        coded.Values(i, v.data());
        const double error = ErrorOf(p, i, v, added);
        total += error;
        std::vector<std::byte> bytes(RowBytes(dtype, 256));
        for (const Search search : {Search::kNearest, Search::kRefit}) {
          EncodeRow(dtype, search, std::span(p.w).subspan(static_cast<size_t>(i) * 256, 256), nullptr, bytes.data());
          model::Dequantize(dtype, bytes, 0, 256, v.data());
          const double plain = ErrorOf(p, i, v, added);
          if (search == Search::kNearest) {
            nearest_total += plain;
            EXPECT_LE(error, plain * (1 + 1e-4)) << "row " << i;
          }
        }
      }
      EXPECT_NEAR(report.error, total, 1e-3 * total);
      EXPECT_NEAR(report.nearest, nearest_total, 1e-3 * nearest_total);
      EXPECT_LE(report.error, report.refit);
      EXPECT_LT(report.error, 0.75 * report.nearest);
    }
}

// Rows whose grids hang together: better than each weight for itself, and still multiples of a 16th of the largest.
TEST_F(Gptq, MultiplesOfARowsNumberStayMultiples) {
  for (const char* kind : kKinds) {
    SCOPED_TRACE(kind);
    const Problem p = Make(100, 256, kind, 5);
    const BlockForm form = LpbqForm(32);
    GptqReport report;
    const CodedRows coded = Solve(p, form, {}, &report);
    const CodedRows plain = QuantizeGrid(form, Search::kNearest, p.w.data(), p.rows, p.k, nullptr, *team_);
    const double added = 0.01 * MeanDiagonal(p);
    std::vector<float> v(256);
    for (int64_t i = 0; i < p.rows; ++i) {
      plain.Values(i, v.data());
      const double nearest = ErrorOf(p, i, v, added);
      coded.Values(i, v.data());
      EXPECT_LE(ErrorOf(p, i, v, added), nearest * (1 + 1e-4)) << "row " << i;
      float most = 0;
      for (int64_t b = 0; b < 8; ++b) most = std::max(most, coded.grids[static_cast<size_t>(i * 8 + b)].scale);
      for (int64_t b = 0; b < 8; ++b) {
        const float scale = coded.grids[static_cast<size_t>(i * 8 + b)].scale, number = std::nearbyint(scale / (most / 16));
        EXPECT_EQ(scale, most / 16 * number);
        EXPECT_GE(number, 1);
      }
    }
    EXPECT_LT(report.error, 0.75 * report.nearest);
  }
}

TEST_F(Gptq, SweepsNeverRaiseTheError) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ4_K, DType::kQ6_K}) {
    const Problem p = Make(200, 512, "plain", 4);
    double last = std::numeric_limits<double>::infinity();
    for (int sweeps = 0; sweeps < 5; ++sweeps) {
      GptqReport report;
      Solve(p, FormOf(dtype), {.sweeps = sweeps}, &report);
      EXPECT_LE(report.error, last * (1 + 1e-5)) << Info(dtype).name << " sweep " << sweeps;
      if (sweeps == 1) {
        EXPECT_LT(report.error, 0.99 * last) << Info(dtype).name;
      }
      last = report.error;
    }
  }
}

TEST_F(Gptq, SameCodesForAnyNumberOfThreadsAndAnyRowsBeside) {
  const Problem p = Make(300, 576, "massive", 150, 700);
  const BlockForm form = FormOf(DType::kQ4_1);
  CodedRows one, three, part;
  for (CodedRows* out : {&one, &three}) {
    const auto team = ThreadTeam::Create(out == &one ? 1 : 3).Take();
    const auto h = Curvature::Create({p.h.data(), p.k, p.k}, form, {}, isa_, *team).Take();
    SolveGptq(h, form, p.w.data(), p.rows, {}, *team, out);
    if (out == &one) SolveGptq(h, form, p.w.data() + 77 * p.k, 3, {}, *team, &part);
  }
  EXPECT_EQ(one.codes, three.codes);
  for (size_t i = 0; i < one.grids.size(); ++i) {
    ASSERT_EQ(one.grids[i].scale, three.grids[i].scale);
    ASSERT_EQ(one.grids[i].min, three.grids[i].min);
  }
  EXPECT_TRUE(std::equal(part.codes.begin(), part.codes.end(), one.codes.begin() + 77 * p.k));
}

TEST_F(Gptq, BlocksOnFileHoldWhatWasChosen) {
  for (const DType dtype : kTypes) {
    const Problem p = Make(400, 512, "plain", 3);
    const CodedRows coded = Solve(p, FormOf(dtype), {});
    std::vector<std::byte> bytes(RowBytes(dtype, 512));
    std::vector<float> read(512), meant(512);
    for (int64_t i = 0; i < p.rows; ++i) {
      EncodeCoded(dtype, coded, i, bytes.data());
      model::Dequantize(dtype, bytes, 0, 512, read.data());
      coded.Values(i, meant.data());
      ASSERT_EQ(read, meant) << Info(dtype).name << " row " << i;
    }
  }
}

// Groups of every length, up to the whole row, whose step of treatment is shorter than the group.
TEST_F(Gptq, EveryGroupLength) {
  for (const int group : {16, 32, 64, 96, 128, 192, 256, 288, 576})
    for (const Scheme scheme : {Scheme::kSymmetric, Scheme::kSignedExtreme, Scheme::kIntegerZero, Scheme::kFloatMin}) {
      const Problem p = Make(500, 576 % group == 0 ? 576 : 2 * group, "plain", 3);
      GptqReport report;
      const CodedRows coded = Solve(p, {.scheme = scheme, .group = group}, {}, &report);
      EXPECT_LT(report.error, 0.75 * report.nearest) << "group " << group << " scheme " << static_cast<int>(scheme);
      EXPECT_LE(ErrorOf(p, coded), report.error * (1 + 1e-4));
    }
}

TEST_F(Gptq, MomentsThatCannotBeAreErrors) {
  const BlockForm form = FormOf(DType::kQ4_0);
  const auto make = [&](const Problem& p) { return Curvature::Create({p.h.data(), p.k, p.k}, form, {}, isa_, *team_); };
  Problem p = Make(600, 64, "plain");
  p.h[70] = NAN;
  EXPECT_EQ(make(p).error().code(), Code::kCorrupt);
  p = Make(600, 64, "plain");
  p.h[65] = -1;
  EXPECT_EQ(make(p).error().code(), Code::kCorrupt);
  p = Make(600, 48, "plain");
  EXPECT_EQ(make(p).error().code(), Code::kInvalidArgument);
  p = Make(600, 64, "plain");
  for (size_t i = 0; i < 64; ++i)
    for (size_t j = 0; j < 64; ++j)
      if (i != j) p.h[i * 64 + j] = -p.h[0];  // far from positive semidefinite
  EXPECT_EQ(make(p).error().code(), Code::kCorrupt);
}

TEST_F(Gptq, DampingRisesUntilTheFactorHolds) {
  Problem p = Make(700, 64, "alike");
  const double mean = MeanDiagonal(p);
  const auto add = [&](double v) {
    for (size_t i = 0; i < 64; ++i) p.h[i * 65] += static_cast<float>(v);
  };
  add(-0.025 * mean);  // the null space of the moments is pushed below zero by more than two steps of damping hold
  const auto c = Curvature::Create({p.h.data(), p.k, p.k}, FormOf(DType::kQ4_0), {.damping = 0.01}, isa_, *team_);
  ASSERT_TRUE(c.ok());
  EXPECT_NEAR(c.value().damping(), 0.03, 1e-9);
}

TEST_F(Gptq, BytesGrowAsTheMatricesDo) {
  // 8 bytes of the factor and 4 of C for each pair of channels; what else there is stays below a tenth at this size.
  const double pairs = 8192.0 * 8192.0;
  EXPECT_GE(static_cast<double>(GptqBytes(2048, 8192, 2)), 12 * pairs + 1.75 * 2048 * 8192);
  EXPECT_LE(static_cast<double>(GptqBytes(2048, 8192, 2)), 1.1 * 12 * pairs);
}

TEST_F(Gptq, NoInputAtAllIsPlainRounding) {
  Problem p = Make(800, 64, "plain");
  std::fill(p.h.begin(), p.h.end(), 0.0f);
  GptqReport report;
  Solve(p, FormOf(DType::kQ4_1), {}, &report);
  EXPECT_LE(report.error, report.nearest);
  EXPECT_TRUE(std::isfinite(report.error));
}

}  // namespace
}  // namespace slm::quant
