// Two back ends as one: the logits of transformers whichever of them computed a token, whatever order of values their keys have.
#include "backend/hybrid/hybrid.h"

#include <cmath>

#include "backend/cpu/tiny_for_test.h"

namespace slm::backend {
namespace {

std::unique_ptr<Backend> OpenSide(const std::string& file, kernels::KvType type = kernels::KvType::kF32) {
  CpuOptions o;
  o.n_threads = 1;
  o.context = 64;
  o.chunk = 16;
  o.kv_type = type;
  o.compute = ComputeMode::kF32;
  o.isa = TestIsa();
  o.logits = LogitsOf::kAllTokens;
  return OpenTiny(TinyPath(file), {}, o);
}

HybridBackend OpenBoth(const std::string& prefill, const std::string& decode, kernels::KvType type = kernels::KvType::kF32) {
  auto both = CreateHybridBackend(OpenSide(prefill, type), OpenSide(decode, type));
  EXPECT_TRUE(both.ok()) << (both.ok() ? "" : both.error().message());
  return both.ok() ? both.Take() : HybridBackend{};
}

// Feeds the prompt in calls of these sizes, then single tokens, and compares every logit that is known. Returns the worst.
double WorstOf(Backend& b, const Expected& e, std::vector<size_t> calls) {
  const size_t first_known = e.prompt.size() - e.rows;
  double worst = 0;
  for (size_t at = 0; at < e.prompt.size();) {
    size_t n = 1;
    if (!calls.empty()) n = calls.front(), calls.erase(calls.begin());
    n = std::min(n, e.prompt.size() - at);
    const auto l = b.Forward(std::span(e.prompt).subspan(at, n), LogitsOf::kLastToken);
    EXPECT_TRUE(l.ok()) << (l.ok() ? "" : l.error().message());
    if (!l.ok()) return INFINITY;
    at += n;
    if (at <= first_known) continue;
    worst = std::max(worst, RelativeError(l.value().Row(0), std::span(e.logits).subspan((at - 1 - first_known) * e.vocab, e.vocab)));
  }
  return worst;
}

// A Hugging Face folder keeps the values of a key in halves, a GGUF file of the same model as neighbours.
TEST(Hybrid, GivesTransformersLogitsAcrossForms) {
  const Expected e = ExpectedOf("llama");
  ASSERT_GT(e.prompt.size(), 20u);
  for (const auto& [prefill, decode] : {std::pair{"llama", "llama.gguf"}, {"llama.gguf", "llama"}, {"llama", "llama"}}) {
    const HybridBackend both = OpenBoth(prefill, decode);
    ASSERT_TRUE(both.backend);
    EXPECT_LT(WorstOf(*both.backend, e, {16}), 2e-5) << prefill << " then " << decode;
    EXPECT_EQ(both.hand_over->count, 1);
    EXPECT_EQ(both.hand_over->tokens, 16);
    // Back and forth: what was decoded goes to the other side, too.
    ASSERT_TRUE(both.backend->Rewind(0).ok());
    EXPECT_LT(WorstOf(*both.backend, e, {3, 1, 5, 1, 1, 4}), 2e-5) << prefill << " and " << decode << " in turn";
    EXPECT_EQ(both.hand_over->count, 1 + 5);
  }
}

TEST(Hybrid, KeepsWhatARewindLeaves) {
  const Expected e = ExpectedOf("llama");
  const HybridBackend both = OpenBoth("llama", "llama.gguf");
  ASSERT_TRUE(both.backend);
  const std::vector<int32_t> other(8, 7);
  ASSERT_TRUE(both.backend->Forward(std::span(e.prompt).first(10), LogitsOf::kLastToken).ok());
  ASSERT_TRUE(both.backend->Forward(std::span(e.prompt).subspan(10, 1), LogitsOf::kLastToken).ok());
  ASSERT_TRUE(both.backend->Forward(other, LogitsOf::kLastToken).ok());
  ASSERT_TRUE(both.backend->Rewind(4).ok());
  EXPECT_EQ(both.backend->used(), 4);
  Expected rest = e;
  rest.prompt.erase(rest.prompt.begin(), rest.prompt.begin() + 4);
  ASSERT_LE(rest.rows, rest.prompt.size());
  EXPECT_LT(WorstOf(*both.backend, rest, {6}), 2e-5);
}

TEST(Hybrid, AHalfPrecisionCacheCostsItsRoundingOnce) {
  const Expected e = ExpectedOf("llama");
  const HybridBackend both = OpenBoth("llama.gguf", "llama.gguf", kernels::KvType::kF16);
  const auto alone = OpenSide("llama.gguf", kernels::KvType::kF16);
  ASSERT_TRUE(both.backend && alone);
  const auto feed = [&](Backend& b) {
    std::vector<float> all;
    EXPECT_TRUE(b.Forward(std::span(e.prompt).first(12), LogitsOf::kLastToken).ok());
    for (size_t i = 12; i < e.prompt.size(); ++i) {
      const auto l = b.Forward(std::span(e.prompt).subspan(i, 1), LogitsOf::kLastToken);
      EXPECT_TRUE(l.ok());
      if (l.ok()) all.insert(all.end(), l.value().Row(0).begin(), l.value().Row(0).end());
    }
    return all;
  };
  EXPECT_EQ(feed(*both.backend), feed(*alone)) << "f16 to f32 and back is exact";
}

TEST(Hybrid, HoldsItsLimits) {
  const HybridBackend both = OpenBoth("llama", "llama.gguf");
  ASSERT_TRUE(both.backend);
  EXPECT_EQ(both.backend->capabilities().max_context, 64);
  EXPECT_EQ(both.backend->Rewind(1).error().code(), Code::kInvalidArgument);
  const std::vector<int32_t> bad = {1, 1 << 30};
  EXPECT_FALSE(both.backend->Forward(bad, LogitsOf::kLastToken).ok());
  EXPECT_EQ(both.backend->used(), 0);
  const std::vector<int32_t> chunk(16, 5);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(both.backend->Forward(chunk, LogitsOf::kLastToken).ok());
  EXPECT_EQ(both.backend->Forward(std::span(chunk).first(1), LogitsOf::kLastToken).error().code(), Code::kLimit);
  EXPECT_EQ(both.backend->used(), 64);
}

TEST(Hybrid, RefusesCachesThatDoNotFit) {
  const auto message = [](std::unique_ptr<Backend> prefill, std::unique_ptr<Backend> decode) {
    const auto r = CreateHybridBackend(std::move(prefill), std::move(decode));
    return r.ok() ? std::string() : r.error().message();
  };
  EXPECT_NE(message(OpenSide("llama"), OpenSide("llama", kernels::KvType::kInt8)).find("decode side"), std::string::npos);
  EXPECT_NE(message(OpenSide("llama", kernels::KvType::kInt8), OpenSide("llama")).find("prefill side"), std::string::npos);
  EXPECT_NE(message(OpenSide("llama"), OpenSide("qwen3")).find("a cache of"), std::string::npos);
}

}  // namespace
}  // namespace slm::backend
