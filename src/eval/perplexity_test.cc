// Perplexity against numbers worked out by hand: a back end whose distribution is known exactly.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "eval/eval.h"

namespace slm::eval {
namespace {

// Gives token (previous + 1) % V the probability p and shares the rest evenly; records what it was fed.
class KnownBackend final : public backend::Backend {
 public:
  explicit KnownBackend(double p, int chunk = 512) : p_(p) {
    c_.vocab_size = kV;
    c_.max_context = 64;
    c_.max_tokens = chunk;
  }
  static constexpr int kV = 8;
  Result<backend::Logits> Forward(std::span<const int32_t> tokens, backend::LogitsOf) override {
    rows_.clear();
    for (int32_t t : tokens) {
      fed.push_back(t);
      for (int v = 0; v < kV; ++v)
        rows_.push_back(static_cast<float>(std::log(v == (t + 1) % kV ? p_ : (1 - p_) / (kV - 1)) + 3.0));  // any shift
    }
    used_ += static_cast<int>(tokens.size());
    return backend::Logits{rows_.data(), static_cast<int>(tokens.size()), kV, kV};
  }
  Status Rewind(int position) override {
    used_ = position;
    return Ok();
  }
  int used() const override { return used_; }
  const backend::Capabilities& capabilities() const override { return c_; }
  std::vector<backend::PlacementRow> Placement() const override { return {}; }
  std::vector<int32_t> fed;

 private:
  double p_;
  int used_ = 0;
  backend::Capabilities c_;
  std::vector<float> rows_;
};

std::vector<int32_t> Counting(int n) {
  std::vector<int32_t> t;
  for (int i = 0; i < n; ++i) t.push_back(i % KnownBackend::kV);
  return t;
}

TEST(Perplexity, CertainTextHasTheInverseProbability) {
  KnownBackend b(0.25);
  const auto p = MeasurePerplexity(b, Counting(35), {.window = 16});
  ASSERT_TRUE(p.ok()) << p.error().message();
  EXPECT_EQ(p.value().windows, 2);             // 35 tokens: two whole windows
  EXPECT_EQ(p.value().scored_tokens, 2 * 15);  // all but each window's first
  EXPECT_NEAR(p.value().ppl, 4.0, 1e-5);       // 1 / 0.25
  EXPECT_NEAR(p.value().sigma_nll, 0.0, 1e-6);
}

TEST(Perplexity, BosComesFirstAndIsNotScored) {
  KnownBackend b(0.5);
  const auto p = MeasurePerplexity(b, Counting(16), {.window = 8, .bos = 7});  // 7 + 1 wraps to 0, the window's first token
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p.value().scored_tokens, 2 * 7);
  EXPECT_EQ(b.fed.size(), 18u);
  EXPECT_EQ(b.fed[0], 7);
  EXPECT_EQ(b.fed[1], 0);
}

TEST(Perplexity, LlamaProtocolScoresTheSecondHalfAfterBos) {
  KnownBackend b(0.5);
  const auto p = MeasurePerplexity(b, Counting(32), {.protocol = Protocol::kLlama, .window = 16, .bos = 3});
  ASSERT_TRUE(p.ok());
  // llama-perplexity scores tokens window/2 + 1 ... window - 1 of each window.
  EXPECT_EQ(p.value().scored_tokens, 2 * 7);
  EXPECT_EQ(b.fed[0], 3);
  EXPECT_EQ(b.fed[16], 3);
  EXPECT_NEAR(p.value().ppl, 2.0, 1e-5);
}

TEST(Perplexity, ChunksDoNotChangeIt) {
  KnownBackend whole(0.3), pieces(0.3, 5);
  auto text = Counting(48);
  text[5] = 1;  // something improbable
  const auto a = MeasurePerplexity(whole, text, {.window = 24}), c = MeasurePerplexity(pieces, text, {.window = 24});
  ASSERT_TRUE(a.ok() && c.ok());
  EXPECT_DOUBLE_EQ(a.value().mean_nll, c.value().mean_nll);
  // Two transitions of 46 have (1 - p) / 7 instead of p.
  const double want = (44 * -std::log(0.3) + 2 * -std::log(0.1)) / 46;
  EXPECT_NEAR(a.value().mean_nll, want, 1e-6);
}

TEST(Perplexity, Refusals) {
  KnownBackend b(0.5);
  EXPECT_EQ(MeasurePerplexity(b, Counting(7), {.window = 8}).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(MeasurePerplexity(b, Counting(200), {.window = 64}).ok());  // fills the context of 64
  EXPECT_EQ(MeasurePerplexity(b, Counting(200), {.window = 65}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(MeasurePerplexity(b, Counting(200), {.window = 64, .bos = 1}).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(MeasurePerplexity(b, Counting(200), {.window = 63, .bos = 1}).ok());
  EXPECT_EQ(MeasurePerplexity(b, Counting(200), {.window = 1}).error().code(), Code::kInvalidArgument);
  for (const int window : {2, 3})
    EXPECT_EQ(MeasurePerplexity(b, Counting(32), {.protocol = Protocol::kLlama, .window = window}).error().code(), Code::kInvalidArgument);
  const auto least = MeasurePerplexity(b, Counting(32), {.protocol = Protocol::kLlama, .window = 4});
  ASSERT_TRUE(least.ok());
  EXPECT_EQ(least.value().scored_tokens, 8 * 1);  // 4/2 + 1 ... 3 of each
  const auto stopped = MeasurePerplexity(b, Counting(64), {.window = 8}, [](int done, int, const Perplexity&) { return done < 3; });
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace slm::eval
