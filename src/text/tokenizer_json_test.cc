// The written tokenizer.json, read again, against ids of Hugging Face's `tokenizers` (testdata/make_fixtures.py).
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "text/fixtures_for_test.h"

namespace slm::text {
namespace {

void ExpectIds(const TokenizerParts& parts, const nlohmann::ordered_json& cases) {
  const auto json = TokenizerJson(parts);
  ASSERT_TRUE(json.ok()) << json.error().message();
  const auto t = Tokenizer::FromJson(json.value());
  ASSERT_TRUE(t.ok()) << t.error().message();
  const auto source = Tokenizer::FromParts(parts);
  ASSERT_TRUE(source.ok()) << source.error().message();
  int n = 0;
  for (const auto& c : cases) {
    const auto text = c["text"].get<std::string>();
    const auto want = c["ids"].get<std::vector<TokenId>>();
    // The fixture's own file strips spaces round one token and normalizes: no GGUF file can say that.
    if (source.value().Encode(text, SpecialTokens::kParse, AddBosEos::kNo).value() != want) continue;
    ++n;
    EXPECT_EQ(t.value().Encode(text, SpecialTokens::kParse, AddBosEos::kNo).value(), want) << text;
  }
  EXPECT_GT(n, 100);
}

TEST(TokenizerJson, ByteLevelVocabulary) { ExpectIds(BpeParts().Parts(), Fixture("bpe.json")["cases"]); }

TEST(TokenizerJson, SentencePieceVocabularyGetsItsMerges) { ExpectIds(SpmParts().Parts(), Fixture("spm.json")["cases"]); }

TEST(TokenizerJson, PutsTheBeginTokenBeforeAText) {
  const SpmParts spm;
  for (const bool add : {true, false}) {
    TokenizerParts parts = spm.Parts();
    parts.add_bos = add;
    const auto t = Tokenizer::FromJson(TokenizerJson(parts).value());
    ASSERT_TRUE(t.ok()) << t.error().message();
    EXPECT_TRUE(std::ranges::equal(t.value().prefix(), add ? std::vector<TokenId>{1} : std::vector<TokenId>{}));
  }
}

TEST(TokenizerJson, RefusesWhatTheFormatCannotSay) {
  const SpmParts spm;
  TokenizerParts parts = spm.Parts();
  parts.model = "t5";
  EXPECT_EQ(TokenizerJson(parts).error().code(), Code::kUnsupported);
  parts = spm.Parts();
  parts.scores = {};
  EXPECT_EQ(TokenizerJson(parts).error().code(), Code::kCorrupt);
  const BpeParts bpe;
  parts = bpe.Parts();
  parts.pre = "no such rules";
  EXPECT_EQ(TokenizerJson(parts).error().code(), Code::kUnsupported);
  parts = bpe.Parts();
  const std::vector<std::string_view> merges = {"nobody knows"};
  parts.merges = merges;
  EXPECT_EQ(TokenizerJson(parts).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace slm::text
