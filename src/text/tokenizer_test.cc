// Ids against Hugging Face's `tokenizers` (testdata/make_fixtures.py), and what our own door adds: places of control tokens.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/fixtures_for_test.h"

namespace slm::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ExpectCases(const Tokenizer& t, const nlohmann::ordered_json& cases) {
  ASSERT_GT(cases.size(), 100u);
  for (const auto& c : cases) {
    const auto text = c["text"].get<std::string>();
    auto ids = t.Encode(text, SpecialTokens::kParse, AddBosEos::kNo);
    ASSERT_TRUE(ids.ok()) << ids.error().message();
    EXPECT_EQ(ids.value(), c["ids"].get<std::vector<TokenId>>()) << c["text"];
    auto plain = t.Encode(text, SpecialTokens::kPlain, AddBosEos::kNo);
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain.value(), c["plain"].get<std::vector<TokenId>>()) << "plain " << c["text"];
  }
}

TEST(Tokenizer, ByteLevelJsonEqualsHuggingFace) { ExpectCases(BpeTokenizer(), Fixture("bpe.json")["cases"]); }

TEST(Tokenizer, ScoresEqualHuggingFacesMergeList) { ExpectCases(SpmTokenizer(), Fixture("spm.json")["cases"]); }

TEST(Tokenizer, PartsEqualJson) {
  const BpeParts parts;
  auto made = Tokenizer::FromParts(parts.Parts());
  ASSERT_TRUE(made.ok()) << made.error().message();
  const Tokenizer from_json = BpeTokenizer();
  for (const char* text : {"the thing, then the quick", "def main():\n    return", "東京 один", "it's 12345 x<|end|>y"})
    EXPECT_EQ(made.value().Encode(text, SpecialTokens::kParse, AddBosEos::kNo).value(),
              from_json.Encode(text, SpecialTokens::kParse, AddBosEos::kNo).value())
        << text;
}

TEST(Tokenizer, FramesWithThePostProcessor) {
  const auto framed = Fixture("bpe.json")["framed"];
  const Tokenizer t = BpeTokenizer();
  EXPECT_EQ(t.Encode(framed["text"].get<std::string>(), SpecialTokens::kParse, AddBosEos::kYes).value(),
            framed["ids"].get<std::vector<TokenId>>());
  EXPECT_EQ(t.bos(), 0);
  EXPECT_EQ(t.eos(), 1);
  EXPECT_TRUE(t.IsEnd(1));
  EXPECT_FALSE(t.IsEnd(0));
}

TEST(Tokenizer, ControlTokensCountOnlyInParsedSegments) {
  const Tokenizer t = BpeTokenizer();
  const Segment segments[] = {
      {"<|start|>user\n", SpecialTokens::kParse}, {"the <|end|> thing", SpecialTokens::kPlain}, {"<|end|>\n", SpecialTokens::kParse}};
  const auto ids = t.EncodeSegments(segments, AddBosEos::kNo).value();
  EXPECT_EQ(ids.front(), 0);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);  // the template's own
  EXPECT_EQ(t.Decode(ids), "user\nthe <|end|> thing\n");
}

TEST(Tokenizer, ASpellingAcrossABorderIsText) {
  const Tokenizer t = BpeTokenizer();
  const Segment segments[] = {{"<|e", SpecialTokens::kPlain}, {"nd|>", SpecialTokens::kParse}};
  const auto ids = t.EncodeSegments(segments, AddBosEos::kNo).value();
  EXPECT_EQ(ids, t.Encode("<|end|>", SpecialTokens::kPlain, AddBosEos::kNo).value());
}

TEST(Tokenizer, SegmentsEqualTheJoinedText) {
  const Tokenizer t = BpeTokenizer();
  const Segment segments[] = {
      {"<|start|>user\n", SpecialTokens::kParse}, {" the quick", SpecialTokens::kPlain}, {" brown<|end|>", SpecialTokens::kParse}};
  EXPECT_EQ(t.EncodeSegments(segments, AddBosEos::kNo).value(),
            t.Encode("<|start|>user\n the quick brown<|end|>", SpecialTokens::kParse, AddBosEos::kNo).value());
}

TEST(Tokenizer, IllFormedBytesBecomeReplacementCharacters) {
  const Tokenizer t = BpeTokenizer();
  EXPECT_EQ(t.Encode("a\xF0\x9F\x98z\xFF", SpecialTokens::kParse, AddBosEos::kNo).value(),
            t.Encode("a\xEF\xBF\xBDz\xEF\xBF\xBD", SpecialTokens::kParse, AddBosEos::kNo).value());
  // A range after the replaced bytes still covers its spelling.
  const PlainRange plain[] = {{2, 9}};
  const auto ids = t.EncodePrompt("\xFF\xFF<|end|>", plain, AddBosEos::kNo).value();
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 0);
}

TEST(Tokenizer, BytesAndKinds) {
  const Tokenizer t = SpmTokenizer();
  EXPECT_EQ(t.TokenBytes(3 + 0x41), "A");
  EXPECT_TRUE(t.IsByte(3 + 0x41));
  EXPECT_TRUE(t.IsSpecial(2));
  EXPECT_EQ(t.TokenBytes(2), "<|end|>");
  EXPECT_EQ(t.TokenBytes(*t.FindToken("▁the")), " the");
  EXPECT_EQ(t.TokenBytes(-1), "");
  EXPECT_EQ(t.TokenBytes(t.VocabSize()), "");
  EXPECT_FALSE(t.IsSpecial(1 << 30));
  EXPECT_FALSE(t.FindToken("no such token").has_value());
  EXPECT_THAT(std::vector<TokenId>(t.prefix().begin(), t.prefix().end()), ElementsAre(1));
}

TEST(Tokenizer, DecodeGivesTheTextBack) {
  const Tokenizer bpe = BpeTokenizer(), spm = SpmTokenizer();
  for (const char* text : {"the quick brown fox", " naïve — 東京 🚀 é", "a\n\n\tb  c", "x"}) {
    EXPECT_EQ(bpe.Decode(bpe.Encode(text, SpecialTokens::kPlain, AddBosEos::kYes).value()), text);
    EXPECT_EQ(spm.Decode(spm.Encode(text, SpecialTokens::kPlain, AddBosEos::kYes).value()), text);
  }
}

TEST(Tokenizer, RefusesWhatItCannotBuild) {
  SpmParts spm;
  TokenizerParts parts = spm.Parts();
  parts.scores = std::span(spm.scores).first(3);
  EXPECT_THAT(Tokenizer::FromParts(parts).error().message(), HasSubstr("3 scores for"));
  parts = spm.Parts();
  parts.bos = 1 << 20;
  EXPECT_THAT(Tokenizer::FromParts(parts).error().message(), HasSubstr("begin-of-sequence id 1048576"));
  parts.model = "rwkv";
  EXPECT_EQ(Tokenizer::FromParts(parts).error().code(), Code::kUnsupported);
  EXPECT_THAT(Tokenizer::FromParts(parts).error().message(), HasSubstr("known: gpt2, llama"));
  const std::string_view tokens[] = {"a", "b", "ab"}, merges[] = {"a b"}, foreign[] = {"a c"};
  TokenizerParts bpe;
  bpe.model = "gpt2";
  bpe.pre = "nonesuch";
  bpe.tokens = tokens;
  bpe.merges = merges;
  EXPECT_THAT(Tokenizer::FromParts(bpe).error().message(), HasSubstr("unknown pre-tokenizer \"nonesuch\"; known: default, gpt-2"));
  bpe.pre = "gpt-2";
  EXPECT_TRUE(Tokenizer::FromParts(bpe).ok());
  bpe.merges = foreign;
  EXPECT_THAT(Tokenizer::FromParts(bpe).error().message(), HasSubstr("not in the vocabulary"));
  for (const char* json : {"", "{}", "[]", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4294967295},\"merges\":[]}}",
                           "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}"})
    EXPECT_EQ(Tokenizer::FromJson(json).error().code(), Code::kCorrupt) << json;
}

TEST(Tokenizer, EveryCutOfAJsonIsAnError) {
  const std::string json = Fixture("bpe.json")["tokenizer"].dump();
  for (size_t n = 0; n < json.size(); n += 97) EXPECT_FALSE(Tokenizer::FromJson(json.substr(0, n)).ok()) << n;
}

nlohmann::ordered_json Replace(const nlohmann::ordered_json& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

Result<Tokenizer> With(const char* section, const nlohmann::ordered_json& value) {
  auto j = Fixture("bpe.json")["tokenizer"];
  j[section] = value;
  return Tokenizer::FromJson(j.dump());
}

TEST(Tokenizer, NormalizersThatMultiplyTheTextAreAnError) {
  auto tenfold = nlohmann::ordered_json::array();
  for (int i = 0; i < 10; ++i) tenfold.push_back(Replace({{"String", "a"}}, std::string(1000, 'a')));
  for (const auto& section :
       {nlohmann::ordered_json{{"type", "Sequence"}, {"normalizers", tenfold}}, Replace({{"Regex", "."}}, std::string(100000, 'y'))}) {
    auto made = With("normalizer", section);
    const auto encode = [&] { return made.value().Encode("banana", SpecialTokens::kParse, AddBosEos::kNo); };
    const Error error = made.ok() ? encode().error() : made.error();  // already an added token may grow
    EXPECT_EQ(error.code(), Code::kCorrupt);
    EXPECT_THAT(error.message(), HasSubstr("more than 64 times"));
  }
  auto modest = With("normalizer", Replace({{"String", "a"}}, "the"));
  EXPECT_EQ(modest.value().Encode("a", SpecialTokens::kParse, AddBosEos::kNo).value(),
            BpeTokenizer().Encode("the", SpecialTokens::kParse, AddBosEos::kNo).value());
}

TEST(Tokenizer, SectionsThatContradictThemselvesAreCorrupt) {
  const auto corrupt = [](const Result<Tokenizer>& made, const char* what) {
    ASSERT_FALSE(made.ok()) << what;
    EXPECT_EQ(made.error().code(), Code::kCorrupt) << made.error().message();
    EXPECT_THAT(made.error().message(), HasSubstr(what));
  };
  corrupt(With("normalizer", Replace({{"String", ""}}, "x")), "tokenizer.json: normalizer");
  corrupt(With("normalizer", Replace({{"Regex", "x*"}}, "x")), "tokenizer.json: normalizer");
  corrupt(With("post_processor", {{"type", "TemplateProcessing"},
                                  {"single", {{{"SpecialToken", {{"id", "zz"}, {"type_id", 0}}}}}},
                                  {"pair", nlohmann::ordered_json::array()},
                                  {"special_tokens", nlohmann::ordered_json::object()}}),
          "tokenizer.json: post_processor");
  auto model = Fixture("bpe.json")["tokenizer"]["model"];
  model["continuing_subword_prefix"] = std::string(1000000, '#');
  corrupt(With("model", model), "tokenizer.json: model");
  auto j = Fixture("bpe.json")["tokenizer"];
  j["model"] = {{"type", "WordPiece"},
                {"unk_token", "[UNK]"},
                {"vocab", {{"a", 0}}},
                {"continuing_subword_prefix", "##"},
                {"max_input_chars_per_word", 9}};
  j["added_tokens"] = nlohmann::ordered_json::array();
  j.erase("post_processor");
  auto made = Tokenizer::FromJson(j.dump());
  ASSERT_TRUE(made.ok()) << made.error().message();
  EXPECT_EQ(made.value().Encode("b", SpecialTokens::kParse, AddBosEos::kNo).error().code(), Code::kCorrupt);
}

// Speech models add 10^5 tokens with one beginning; time must not grow with the square of that.
TEST(Tokenizer, ManyAddedTokensLoadAndMatch) {
  auto j = Fixture("bpe.json")["tokenizer"];
  auto added = nlohmann::ordered_json::array();
  for (int i = 0; i < 100000; ++i)
    added.push_back({{"id", 1000 + i}, {"content", "<s_" + std::to_string(i) + ">"}, {"special", i % 2 == 0}});
  j["added_tokens"] = added;
  j.erase("post_processor");
  auto made = Tokenizer::FromJson(j.dump());
  ASSERT_TRUE(made.ok()) << made.error().message();
  EXPECT_THAT(made.value().Encode("<s_7><s_99999><s_12><s_0>", SpecialTokens::kParse, AddBosEos::kNo).value(),
              ElementsAre(1007, 100999, 1012, 1000));
}

TEST(Tokenizer, ReadsVocabAndMerges) {
  const auto j = Fixture("bpe.json")["tokenizer"];
  std::string merges = "#version: 0.2\n";
  for (const auto& m : j["model"]["merges"]) merges += m[0].get<std::string>() + " " + m[1].get<std::string>() + "\r\n";
  const std::string vocab = j["model"]["vocab"].dump();
  TokenizerPieces pieces;
  pieces.vocab_json = vocab;
  pieces.merges_txt = merges;
  pieces.config_json =
      R"({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|end|>", "added_tokens_decoder": {"0": {"content": "<|start|>", "special": true}}})";
  auto made = Tokenizer::FromPieces(pieces);
  ASSERT_TRUE(made.ok()) << made.error().message();
  EXPECT_EQ(made.value().eos(), 1);
  EXPECT_TRUE(made.value().IsSpecial(0));
  EXPECT_EQ(made.value().Encode("the thing", SpecialTokens::kParse, AddBosEos::kNo).value(),
            BpeTokenizer().Encode("the thing", SpecialTokens::kParse, AddBosEos::kNo).value());
  pieces.merges_txt = {};
  EXPECT_EQ(Tokenizer::FromPieces(pieces).error().code(), Code::kNotFound);
}

// sentencepiece_model.proto: pieces = 1 {piece = 1, score = 2, type = 3}, trainer_spec = 2 {model_type = 3}, normalizer_spec = 3.
std::string ModelProto(const SpmParts& spm) {
  const auto varint = [](uint64_t v) {
    std::string s;
    for (; v >= 0x80; v >>= 7) s += static_cast<char>(v | 0x80);
    return s + static_cast<char>(v);
  };
  const auto field = [&](uint32_t number, const std::string& bytes) { return varint(number << 3 | 2) + varint(bytes.size()) + bytes; };
  std::string proto;
  for (size_t i = 0; i < spm.tokens.size(); ++i) {
    const float score = spm.scores[i];
    proto += field(1, field(1, std::string(spm.tokens[i])) + varint(2 << 3 | 5) + std::string(reinterpret_cast<const char*>(&score), 4) +
                          varint(3 << 3) + varint(static_cast<uint64_t>(spm.kinds[i])));
  }
  return proto + field(2, varint(3 << 3) + varint(2) + varint(40 << 3) + varint(0)) + field(3, varint(3 << 3) + varint(1));
}

TEST(Tokenizer, ReadsSentencePieceModels) {
  const SpmParts spm;
  const std::string proto = ModelProto(spm);
  TokenizerPieces pieces;
  pieces.sentencepiece = proto;
  auto made = Tokenizer::FromPieces(pieces);
  ASSERT_TRUE(made.ok()) << made.error().message();
  ExpectCases(made.value(), spm.fixture["cases"]);
  for (size_t n = 0; n < proto.size(); n += 13) {  // no cut crashes; most are refused with their byte
    pieces.sentencepiece = std::string_view(proto).substr(0, n);
    auto cut = Tokenizer::FromPieces(pieces);
    EXPECT_TRUE(cut.ok() || !cut.error().message().empty()) << n;
  }
}

}  // namespace
}  // namespace slm::text
