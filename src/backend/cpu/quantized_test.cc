// The quantized path on tiny files of mixed block types (tests/tiny/make_quantized.py): near the f32 arithmetic of the same
// file, and the same bits however the work is split, called or fused.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "backend/cpu/packed_matrix.h"
#include "backend/cpu/tiny_for_test.h"

namespace slm::backend {
namespace {

const std::vector<std::string> kFiles{"quantized.gguf", "quantized_tied.gguf"};
const std::vector<int32_t> kPrompt{20, 48, 76, 55, 74, 43, 21, 20, 46, 49, 28, 19, 46, 27, 25, 68, 19, 50, 3, 78, 81, 73, 63, 24};

CpuOptions Native() {
  CpuOptions o;
  o.n_threads = 2;
  o.context = 64;
  o.kv_type = kernels::KvType::kF32;
  o.isa = TestIsa();
  o.logits = LogitsOf::kAllTokens;
  return o;
}

std::vector<float> Rows(const std::string& file, const CpuOptions& o, const std::vector<std::string>& passes_off = {},
                        size_t at_once = kPrompt.size()) {
  auto b = OpenTiny(TinyPath(file), passes_off, o);
  return b ? AllRows(*b, kPrompt, at_once) : std::vector<float>{};
}

double Rms(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// The files are made so that each layer has a fused and a mixed projection; if a file lost its types, the rest would prove nothing.
TEST(Quantized, TheFilesRunEveryKind) {
  std::set<std::string> types;
  std::map<std::string, int> kernels;
  for (const auto& file : kFiles) {
    auto model = model::LoadModel(TinyPath(file)).Take();
    for (const auto& t : model->tensors) types.insert(std::string(Info(t.dtype).name));
    auto b = OpenTiny(TinyPath(file), {}, Native());
    ASSERT_TRUE(b);
    for (const auto& row : b->Placement()) kernels[row.kernel] += row.count;
  }
  EXPECT_EQ(types, (std::set<std::string>{"F32", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"}));
  std::string all;
  for (const auto& [name, count] : kernels) all += name + " ";
  for (const char* kind : {"_q4_", "_q4min_", "_q5_", "_q5min_", "_q8_"})
    EXPECT_NE(all.find(kind), std::string::npos) << kind << " in " << all;
  EXPECT_EQ(all.find("_f32_f32_f32"), std::string::npos) << all;
}

// Rounding activations to int8 adds noise of step / sqrt(12) to a value, step = max|x| / 127 in a block of 32. Relative to the
// block's rms that is crest / (127 sqrt(12)) <= 0.91 % with the crest factor of kCrest = 4, above which a block keeps 16 bits.
// Nine products stand one behind the other (4 in each of 2 layers, and the head); their noises are independent: 0.91 % * sqrt(9)
// = 2.7 % of the logits' rms at most, and about half of it for blocks of normal values (crest 2.1). Weights are the same in both.
TEST(Quantized, IsNearF32ByTheStepOfTheActivations) {
  for (const auto& file : kFiles) {
    CpuOptions exact = Native();
    exact.compute = ComputeMode::kF32;
    const auto want = Rows(file, exact), got = Rows(file, Native());
    ASSERT_EQ(want.size(), got.size());
    ASSERT_FALSE(want.empty());
    std::vector<float> error(want.size());
    for (size_t i = 0; i < want.size(); ++i) error[i] = got[i] - want[i];
    const double relative = Rms(error) / Rms(want);
    EXPECT_LE(relative, 0.027) << file;
    EXPECT_GE(relative, 1e-5) << file << ": was this the quantized path?";
    const auto [low, high] = std::minmax_element(want.begin(), want.end());
    double worst = 0;
    for (const float e : error) worst = std::max(worst, std::fabs(double{e}));
    EXPECT_LE(worst, 0.027 * (double{*high} - *low)) << file;  // no single value is far off
  }
}

TEST(Quantized, PassesDoNotChangeABit) {
  for (const auto& file : kFiles) {
    const auto want = Rows(file, Native());
    EXPECT_EQ(Rows(file, Native(), {"all"}), want) << file;
    for (const auto& pass : graph::AllPasses()) EXPECT_EQ(Rows(file, Native(), {pass.name}), want) << file << " without " << pass.name;
  }
}

TEST(Quantized, ThreadsDoNotChangeABit) {
  for (const auto& file : kFiles)
    for (const auto kv : {kernels::KvType::kF16, kernels::KvType::kF32, kernels::KvType::kInt8}) {
      CpuOptions o = Native();
      o.kv_type = kv;
      o.n_threads = 1;
      const auto want = Rows(file, o);
      for (const int n : {2, 3, 5}) {
        o.n_threads = n;
        EXPECT_EQ(Rows(file, o), want) << file << " with " << n << " threads";
      }
    }
}

// In a long call two threads take rows of their own through whole products; one and three threads take panels.
TEST(Quantized, RowsOfAThreadsOwnDoNotChangeABit) {
  std::vector<int32_t> prompt(200);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = kPrompt[i * 7 % kPrompt.size()];
  for (const auto& file : kFiles)
    for (const auto compute : {ComputeMode::kNative, ComputeMode::kF32}) {
      CpuOptions o = Native();
      o.context = 256;
      o.compute = compute;
      std::vector<std::vector<float>> rows;
      for (const int n : {1, 2, 3}) {
        o.n_threads = n;
        auto b = OpenTiny(TinyPath(file), {}, o);
        ASSERT_TRUE(b);
        rows.push_back(AllRows(*b, prompt, prompt.size()));
        EXPECT_EQ(rows.back(), rows.front()) << file << " with " << n << " threads";
      }
    }
}

// Relative difference of two evaluations that differ in the order of attention's sums only: that is in the last bits of a float,
// but now and then it turns an activation to the next of its 127 steps. One such step changes a product over a block of 32 by
// crest / (127 sqrt(32)) = 0.56 % of its rms for a crest factor of 4; two are allowed.
constexpr double kFewSteps = 2 * 0.0056;
double Difference(std::span<const float> got, std::span<const float> want) {
  EXPECT_EQ(got.size(), want.size());
  if (got.size() != want.size()) return INFINITY;
  std::vector<float> d(want.size());
  for (size_t i = 0; i < d.size(); ++i) d[i] = got[i] - want[i];
  return Rms(d) / Rms(want);
}

// An int8 cache rounds keys and values to steps of max|x| / 127. A rounding error of step / sqrt(12) is crest / (127 sqrt(12)) of
// the rms: 0.5 % for normal values in a group of 32 (crest 2.1) and at most 0.91 % (crest 4). Keys and values of each of the two
// layers add theirs, 2 * sqrt(2) roundings in all that attention can at most hand on whole.
constexpr double kInt8Cache = 2.83 * 0.0091;
TEST(Quantized, Int8CacheIsNearF16) {
  for (const auto& file : kFiles) {
    CpuOptions o = Native();
    o.compute = ComputeMode::kF32;  // so that the cache is the only difference
    o.kv_type = kernels::KvType::kF16;
    const auto want = Rows(file, o);
    o.kv_type = kernels::KvType::kInt8;
    for (const size_t at_once : {kPrompt.size(), size_t{5}, size_t{1}}) {  // prefill's form of attention, and decode's
      const auto got = Rows(file, o, {}, at_once);
      const double difference = Difference(got, want);
      EXPECT_LE(difference, kInt8Cache) << file << " by " << at_once;
      EXPECT_GE(difference, 1e-5) << file << " by " << at_once << ": was this the int8 cache?";
    }
  }
}

// What decode's 16-bit queries and 15-bit weights lose is far below what the cache does: a prompt may be cut anywhere. But a key or
// value of the second layer that lies at half a step may be rounded the other way for it: some of the codes, a tenth of the cache's loss.
TEST(Quantized, Int8CacheGivesTheSameTokenByToken) {
  for (const auto& file : kFiles) {
    CpuOptions o = Native();
    o.compute = ComputeMode::kF32;
    o.kv_type = kernels::KvType::kInt8;
    const auto whole = Rows(file, o);
    EXPECT_EQ(Rows(file, o, {}, 7), whole) << file;
    EXPECT_LE(Difference(Rows(file, o, {}, 1), whole), 0.1 * kInt8Cache) << file;
  }
}

// Heads of 8 values carry as many bytes of scales: the tiny files save a quarter, real ones nearly half (kv_test.cc).
TEST(Quantized, Int8CacheRewindsAndTakesLessMemory) {
  for (const auto& file : kFiles) {
    CpuOptions o = Native();
    o.kv_type = kernels::KvType::kInt8;
    auto b = OpenTiny(TinyPath(file), {}, o);
    ASSERT_TRUE(b);
    const auto first = AllRows(*b, kPrompt, 12);  // calls too short for the wide products of tier amx, before and after
    ASSERT_TRUE(b->Rewind(9).ok());               // in the middle of a tile
    const auto again = AllRows(*b, std::span(kPrompt).subspan(9), 12);
    const size_t from = 9 * static_cast<size_t>(b->capabilities().vocab_size);
    ASSERT_EQ(again.size(), first.size() - from);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), first.begin() + static_cast<std::ptrdiff_t>(from))) << file;
    o.kv_type = kernels::KvType::kF16;
    EXPECT_LT(b->capabilities().kv_bytes, OpenTiny(TinyPath(file), {}, o)->capabilities().kv_bytes * 4 / 5) << file;
  }
}

// Tier amx takes calls of kWideTokens on bf16 tiles, which are as near the f32 arithmetic as int8 is, and avx512bf16 their attention; all
// others know no such border.
constexpr size_t kNarrow = kernels::kWideTokens - 1;
double LongCallBound(double same_form) { return Includes(TestIsa(), Isa::kAvx512Bf16) ? 0.027 : same_form; }

// Calls of two tokens and more use one form of attention, whose sums do not depend on the call; a single token has another form.
TEST(Quantized, CallsOfSeveralTokensDoNotChangeABit) {
  for (const auto& file : kFiles) {
    const auto want = Rows(file, Native(), {}, kNarrow);
    EXPECT_LE(Difference(Rows(file, Native()), want), LongCallBound(0)) << file;
    for (const size_t at_once : {2, 7}) EXPECT_EQ(Rows(file, Native(), {}, at_once), want) << file << " by " << at_once;
    CpuOptions o = Native();
    o.chunk = 7;
    EXPECT_EQ(Rows(file, o), want) << file << " in chunks of 7";
  }
}

TEST(Quantized, TokenByTokenIsWithinAFewSteps) {
  for (const auto& file : kFiles) {
    EXPECT_LE(Difference(Rows(file, Native(), {}, 1), Rows(file, Native(), {}, kNarrow)), kFewSteps) << file;
  }
}

// The last layer then works on one row: its attention is that of a single token.
TEST(Quantized, TheLastRowAloneIsWithinAFewSteps) {
  for (const auto& file : kFiles) {
    const auto want = Rows(file, Native()), narrow = Rows(file, Native(), {}, kNarrow);
    CpuOptions o = Native();
    o.logits = LogitsOf::kLastToken;
    auto b = OpenTiny(TinyPath(file), {}, o);
    ASSERT_TRUE(b);
    const size_t v = static_cast<size_t>(b->capabilities().vocab_size);
    for (const size_t n : {size_t{1}, size_t{2}, size_t{7}, kNarrow, kPrompt.size()}) {
      ASSERT_TRUE(b->Rewind(0).ok());
      auto l = b->Forward(std::span(kPrompt).first(n), LogitsOf::kLastToken);
      ASSERT_TRUE(l.ok());
      ASSERT_EQ(l.value().n_rows, 1);
      const double bound = n <= kNarrow ? kFewSteps : LongCallBound(kFewSteps);
      EXPECT_LE(Difference(l.value().Row(0), std::span(n <= kNarrow ? narrow : want).subspan((n - 1) * v, v)), bound) << file << " " << n;
    }
  }
}

}  // namespace
}  // namespace slm::backend
