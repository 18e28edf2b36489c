// "Nothing is allocated in the token loop" as a count: operator new is replaced for this whole test program.
#include <gtest/gtest.h>

#include "backend/fake/fake.h"
#include "base/count_allocations_for_test.h"
#include "decode/byte_tokenizer_for_test.h"
#include "decode/decode.h"

namespace slm::decode {
namespace {

// Notes the count at every piece of text into memory taken before.
struct Counter final : TokenSink {
  std::vector<long> at;
  Counter() { at.reserve(4096); }
  void OnText(std::string_view) override { at.push_back(n_allocations.load(std::memory_order_relaxed)); }
};

std::vector<long> CountsOf(const SamplingOptions& sampling, std::vector<std::string> stop) {
  backend::FakeScript script;
  script.vocab_size = kByteVocab;
  script.max_context = 600;
  script.max_tokens = 16;
  for (int i = 0; i < 600; ++i) script.tokens.push_back("the quick brown fox \xe2\x82\xac"[i % 23] & 0xff);
  backend::FakeBackend backend(std::move(script));
  const text::Tokenizer tokenizer = ByteTokenizer();
  Session session(backend, tokenizer);
  GenerateOptions options;
  options.sampling = sampling;
  options.max_tokens = 500;
  options.stop = std::move(stop);
  Counter sink;
  const CancelFlag cancel;
  const std::vector<int32_t> prompt(backend.script().tokens.begin(), backend.script().tokens.begin() + 40);
  const auto stats = session.Generate(prompt, options, sink, cancel);
  EXPECT_TRUE(stats.ok()) << (stats.ok() ? "" : stats.error().message());
  if (stats.ok()) {
    EXPECT_EQ(stats.value().generated_tokens, 500);
  }
  return sink.at;
}

void ExpectNone(const std::vector<long>& counts) {
  ASSERT_GT(counts.size(), 300u);
  // The first tokens may still fill buffers of the text room to their working size.
  EXPECT_EQ(counts.back() - counts[32], 0) << counts.back() - counts[32] << " allocations in " << counts.size() - 33 << " pieces";
}

TEST(Allocation, TheCounterCounts) {
  const long before = n_allocations.load();
  int* volatile p = new int[4];  // volatile: a compiler may leave out what nobody can see
  EXPECT_EQ(n_allocations.load() - before, 1);
  delete[] p;
}

TEST(Allocation, NoneInTheGreedyLoop) { ExpectNone(CountsOf({}, {})); }

TEST(Allocation, NoneWithStopStrings) { ExpectNone(CountsOf({}, {"quick red", "never"})); }

TEST(Allocation, NoneWhenSampling) {
  SamplingOptions o;
  o.temperature = 0.05f;  // the script's next token keeps practically all the mass
  o.top_k = 20;
  o.top_p = 0.999f;
  o.min_p = 0.01f;
  o.presence_penalty = 0.001f;
  o.frequency_penalty = 0.001f;
  o.repetition_penalty = 1.001f;
  o.logit_bias = {{'z', -1.0f}};
  ExpectNone(CountsOf(o, {}));
  o.top_k = 0;
  ExpectNone(CountsOf(o, {}));
}

}  // namespace
}  // namespace slm::decode
