// The loop against a scripted back end and a tokenizer whose token ids are bytes: what is fed, what is streamed, why it ends.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backend/fake/fake.h"
#include "decode/byte_tokenizer_for_test.h"
#include "decode/decode.h"

namespace slm::decode {
namespace {

using backend::FakeBackend;
using backend::FakeScript;

constexpr int32_t kEos = kByteEos;

std::vector<int32_t> Ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

FakeScript Script(std::vector<int32_t> tokens, int max_context = 64, int max_tokens = 8) {
  FakeScript s;
  s.vocab_size = kByteVocab;
  s.max_context = max_context;
  s.max_tokens = max_tokens;
  s.tokens = std::move(tokens);
  return s;
}

// Keeps the pieces; calls `then` after each.
struct Recorder final : TokenSink {
  std::vector<std::string> pieces;
  std::function<void()> then;
  void OnText(std::string_view utf8) override {
    pieces.emplace_back(utf8);
    if (then) then();
  }
  std::string text() const { return std::accumulate(pieces.begin(), pieces.end(), std::string()); }
};

struct Rig {
  explicit Rig(FakeScript script) : backend(std::move(script)), tokenizer(ByteTokenizer()), session(backend, tokenizer) {
    options.eos_ids = {kEos};
  }
  Result<GenerateStats> Go(std::string_view prompt) {
    sink.pieces.clear();
    const auto ids = Ids(prompt);
    return session.Generate(ids, options, sink, cancel);
  }
  FakeBackend backend;
  text::Tokenizer tokenizer;
  Session session;
  GenerateOptions options;
  Recorder sink;
  CancelFlag cancel;
};

TEST(Session, StreamsUntilTheEndToken) {
  Rig r(Script(Ids("hello world") + std::vector<int32_t>{kEos}));
  const auto stats = r.Go("hello");
  ASSERT_TRUE(stats.ok()) << stats.error().message();
  EXPECT_EQ(r.sink.text(), " world");
  EXPECT_EQ(r.sink.pieces.size(), 6u);
  EXPECT_EQ(stats.value().finish_reason, FinishReason::kStop);
  EXPECT_EQ(stats.value().prompt_tokens, 5);
  EXPECT_EQ(stats.value().cached_tokens, 0);
  EXPECT_EQ(stats.value().generated_tokens, 6);
  EXPECT_EQ(stats.value().tokens, Ids(" world"));
  EXPECT_EQ(stats.value().itl_ns.size(), 5u);
  EXPECT_GT(stats.value().ttft_ns, 0);
  EXPECT_EQ(r.backend.chunks(), (std::vector<int>{5, 1, 1, 1, 1, 1, 1}));
}

TEST(Session, PrefillsInChunks) {
  for (int chunk = 1; chunk <= 9; ++chunk) {
    Rig r(Script(Ids("12345678x"), 64, chunk));
    r.options.max_tokens = 1;
    const auto stats = r.Go("12345678");
    ASSERT_TRUE(stats.ok());
    EXPECT_EQ(r.sink.text(), "x");
    EXPECT_EQ(stats.value().finish_reason, FinishReason::kLength);
    std::vector<int> expected(8 / chunk, chunk);
    if (8 % chunk) expected.push_back(8 % chunk);
    EXPECT_EQ(r.backend.chunks(), expected) << chunk;
  }
}

TEST(Session, ReusesTheCommonBeginning) {
  Rig r(Script(Ids("hello world") + std::vector<int32_t>{kEos}));
  ASSERT_TRUE(r.Go("hello").ok());
  EXPECT_EQ(r.backend.used(), 11);
  r.backend.SetTokens(Ids("hello world, and you?yes") + std::vector<int32_t>{kEos});
  auto stats = r.Go("hello world, and you?");
  ASSERT_TRUE(stats.ok()) << stats.error().message();
  EXPECT_EQ(stats.value().cached_tokens, 11);
  EXPECT_EQ(r.sink.text(), "yes");
  EXPECT_TRUE(r.backend.rewinds().empty());

  r.backend.SetTokens(Ids("hello WORLD!") + std::vector<int32_t>{kEos});
  stats = r.Go("hello WORLD");
  ASSERT_TRUE(stats.ok()) << stats.error().message();
  EXPECT_EQ(stats.value().cached_tokens, 6);
  EXPECT_EQ(r.backend.rewinds(), (std::vector<int>{6}));
  EXPECT_EQ(r.sink.text(), "!");
}

TEST(Session, EvaluatesAtLeastTheLastTokenAgain) {
  Rig r(Script(Ids("ab") + Ids("c")));
  r.options.max_tokens = 1;
  ASSERT_TRUE(r.Go("ab").ok());
  const auto stats = r.Go("ab");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats.value().cached_tokens, 1);
  EXPECT_EQ(r.sink.text(), "c");
  EXPECT_EQ(r.backend.chunks(), (std::vector<int>{2, 1}));
}

TEST(Session, ResetForgets) {
  Rig r(Script(Ids("abc")));
  r.options.max_tokens = 1;
  ASSERT_TRUE(r.Go("ab").ok());
  ASSERT_TRUE(r.session.Reset().ok());
  EXPECT_EQ(r.backend.used(), 0);
  EXPECT_EQ(r.Go("ab").value().cached_tokens, 0);
}

TEST(Session, StopStringAcrossTokensIsNotShown) {
  Rig r(Script(Ids("q: one ENDING two") + std::vector<int32_t>{kEos}));
  r.options.stop = {"ENDED", "ENDING"};
  const auto stats = r.Go("q:");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(r.sink.text(), " one ");
  EXPECT_EQ(stats.value().finish_reason, FinishReason::kStop);
  EXPECT_EQ(stats.value().stop_string, "ENDING");
}

TEST(Session, TextThatOnlyBeganLikeAStopStringIsShown) {
  Rig r(Script(Ids("q: ENDEAR END") + std::vector<int32_t>{kEos}));
  r.options.stop = {"ENDING"};
  const auto stats = r.Go("q:");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(r.sink.text(), " ENDEAR END");
  EXPECT_EQ(stats.value().stop_string, "");
}

TEST(Session, NeverEmitsHalfACharacter) {
  Rig r(Script(Ids("a\u20ac\U0001F600z") + std::vector<int32_t>{kEos}));
  ASSERT_TRUE(r.Go("a").ok());
  EXPECT_EQ(r.sink.pieces, (std::vector<std::string>{"\u20ac", "\U0001F600", "z"}));
}

TEST(Session, HalfACharacterAtTheEndBecomesTheReplacementCharacter) {
  Rig r(Script(Ids("ab\xe2\x82") + std::vector<int32_t>{kEos}));
  ASSERT_TRUE(r.Go("a").ok());
  EXPECT_EQ(r.sink.text(), "b\ufffd");
}

TEST(Session, IgnoresTheEndTokenWhenAsked) {
  Rig r(Script(Ids("ab") + std::vector<int32_t>{kEos} + Ids("cd")));
  r.options.ignore_eos = true;
  r.options.max_tokens = 3;
  const auto stats = r.Go("ab");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(r.sink.text(), "cd");
  EXPECT_EQ(stats.value().finish_reason, FinishReason::kLength);
}

TEST(Session, EndsAtAnyOfTheEndTokens) {
  Rig r(Script(Ids("abcX")));
  r.options.eos_ids = {kEos, 'X'};
  const auto stats = r.Go("ab");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(r.sink.text(), "c");
  EXPECT_EQ(stats.value().tokens, Ids("c"));
}

TEST(Session, PrefillOnly) {
  Rig r(Script(Ids("abc")));
  r.options.max_tokens = 0;
  const auto stats = r.Go("ab");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats.value().generated_tokens, 0);
  EXPECT_EQ(stats.value().finish_reason, FinishReason::kLength);
  EXPECT_EQ(r.backend.used(), 2);
}

TEST(Session, EndsWhenTheContextIsFull) {
  Rig r(Script(Ids("abcdefghijkl"), 8));
  const auto stats = r.Go("abcde");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats.value().finish_reason, FinishReason::kContext);
  EXPECT_EQ(r.sink.text(), "fghi");  // 5 + 3 fill the cache; the token after the last slot needs none
  EXPECT_EQ(r.backend.used(), 8);
}

TEST(Session, RefusesAPromptThatDoesNotFitBeforeEvaluatingAnything) {
  Rig r(Script(Ids("abcdefghij"), 8));
  const auto stats = r.Go("abcdefghi");
  ASSERT_FALSE(stats.ok());
  EXPECT_EQ(stats.error().code(), Code::kLimit);
  EXPECT_NE(stats.error().message().find("9 tokens"), std::string::npos);
  EXPECT_NE(stats.error().message().find("holds 8"), std::string::npos);
  EXPECT_TRUE(r.backend.chunks().empty());
  EXPECT_TRUE(r.sink.pieces.empty());
}

TEST(Session, RefusesBadRequests) {
  Rig r(Script(Ids("abc")));
  EXPECT_EQ(r.Go("").error().code(), Code::kInvalidArgument);
  const int32_t outside[] = {kByteVocab};
  EXPECT_EQ(r.session.Generate(outside, r.options, r.sink, r.cancel).error().code(), Code::kInvalidArgument);
  r.options.max_tokens = -1;
  EXPECT_EQ(r.Go("ab").error().code(), Code::kInvalidArgument);
  r.options.max_tokens = 1;
  r.options.stop = {""};
  EXPECT_EQ(r.Go("ab").error().code(), Code::kInvalidArgument);
  r.options.stop.clear();
  r.options.sampling.top_p = 2;
  EXPECT_EQ(r.Go("ab").error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(r.backend.chunks().empty());
}

TEST(Session, StopsWhenCancelled) {
  Rig r(Script(Ids("abcdefgh")));
  r.sink.then = [&] {
    if (r.sink.text() == "cd") r.cancel.Cancel();
  };
  const auto stats = r.Go("ab");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats.value().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(r.sink.text(), "cd");
  r.sink.then = {};
  r.cancel.Clear();
  r.options.max_tokens = 1;
  EXPECT_EQ(r.Go("abcd").value().cached_tokens, 3);
  EXPECT_EQ(r.sink.text(), "e");
}

TEST(Session, CancelledBeforePrefillEvaluatesNothing) {
  std::atomic<bool> flag{true};
  const CancelFlag cancel(flag);
  Rig r(Script(Ids("abc")));
  const auto stats = r.session.Generate(Ids("ab"), r.options, r.sink, cancel);
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats.value().finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(r.backend.chunks().empty());
}

TEST(Session, ErrorsOfTheBackEndComeThroughAndTheCacheStaysUsable) {
  FakeScript s = Script(Ids("abcdef") + std::vector<int32_t>{kEos}, 64, 2);
  s.failure = Error(Code::kCorrupt, "NaN from layer 3 on");
  s.fail_slot = 4;
  Rig r(std::move(s));
  auto stats = r.Go("abc");
  ASSERT_FALSE(stats.ok());
  EXPECT_EQ(stats.error().message(), "NaN from layer 3 on");
  EXPECT_EQ(r.sink.text(), "de");
  r.backend.script().failure.reset();
  stats = r.Go("abcd");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats.value().cached_tokens, 3);
  EXPECT_EQ(r.sink.text(), "ef");
}

TEST(Session, NanLogitsStopTheRun) {
  FakeScript s = Script(Ids("abcd"));
  s.logits[3] = std::vector<float>(kByteVocab, std::nanf(""));
  Rig r(std::move(s));
  const auto stats = r.Go("ab");
  ASSERT_FALSE(stats.ok());
  EXPECT_EQ(stats.error().code(), Code::kCorrupt);
  EXPECT_EQ(r.sink.text(), "c");
}

TEST(Session, PenaltiesSeeThePromptAndTheAnswer) {
  FakeScript s = Script(Ids("abab"));
  for (int slot = 1; slot <= 4; ++slot) {
    s.logits[slot].assign(kByteVocab, 0);
    s.logits[slot]['a'] = 4;
    s.logits[slot]['b'] = 3;
  }
  Rig r(std::move(s));
  r.options.sampling.repetition_penalty = 2;
  r.options.sampling.penalty_window = 1;
  r.options.max_tokens = 3;
  ASSERT_TRUE(r.Go("a").ok());
  EXPECT_EQ(r.sink.text(), "bab");
}

}  // namespace
}  // namespace slm::decode
