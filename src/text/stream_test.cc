// StreamDecoder, StopStrings and the UTF-8 rules they share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/fixtures_for_test.h"
#include "text/utf8.h"

namespace slm::text {
namespace {

TEST(Utf8, ReplacesMaximalIllFormedParts) {
  // Unicode 15, table 3-8 and section 3.9: examples of U+FFFD substitution of maximal subparts.
  const std::string r(kReplacement);
  EXPECT_EQ(ReplaceIllFormed("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"), "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(ReplaceIllFormed("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceIllFormed("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceIllFormed("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(ReplaceIllFormed("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_TRUE(IsUtf8("é 東 🚀"));
  EXPECT_FALSE(IsUtf8("\xF0\x9F\x9A"));
}

TEST(StreamDecoder, NeverEmitsHalfACharacter) {
  const Tokenizer t = SpmTokenizer();
  StreamDecoder d(t);
  std::string text;
  for (const unsigned char byte : std::string("🚀é")) {
    const std::string_view piece = d.Push(3 + byte);
    EXPECT_TRUE(IsUtf8(piece));
    text += piece;
  }
  EXPECT_EQ(text, "🚀é");
  EXPECT_EQ(d.Push(3 + 0xF0), "");
  EXPECT_EQ(d.Push(3 + 0x9F), "");
  EXPECT_EQ(d.Flush(), kReplacement);
  EXPECT_EQ(d.Flush(), "");
}

TEST(StreamDecoder, AnInterruptedCharacterIsReplacedOnce) {
  const Tokenizer t = SpmTokenizer();
  StreamDecoder d(t);
  EXPECT_EQ(d.Push(3 + 0xE6), "");
  EXPECT_EQ(d.Push(3 + 'x'), std::string(kReplacement) + "x");
}

TEST(StreamDecoder, FirstSpaceAndControlTokens) {
  const Tokenizer t = SpmTokenizer();
  const TokenId the = *t.FindToken("▁the");
  StreamDecoder strip(t), keep(t, ShowSpecial::kYes, FirstSpace::kKeep);
  EXPECT_EQ(strip.Push(1), "");
  EXPECT_EQ(strip.Push(the), "the");
  EXPECT_EQ(strip.Push(the), " the");
  EXPECT_EQ(keep.Push(1), "<|start|>");
  EXPECT_EQ(keep.Push(the), " the");
  strip.Reset();
  EXPECT_EQ(strip.Push(the), "the");
  EXPECT_EQ(strip.Push(-1), "");
}

TEST(StreamDecoder, StreamEqualsDecodeOnEveryCase) {
  const Tokenizer t = BpeTokenizer();
  const auto fixture = Fixture("bpe.json");  // named: the loop below would not keep a temporary alive
  for (const auto& c : fixture["cases"]) {
    const auto ids = c["plain"].get<std::vector<TokenId>>();
    StreamDecoder d(t);
    std::string text;
    for (const TokenId id : ids) text += d.Push(id);
    text += d.Flush();
    EXPECT_TRUE(IsUtf8(text));
    EXPECT_EQ(text, t.Decode(ids));
  }
}

// Everything `text` gives when cut into pieces of `step` bytes.
std::string RunAll(StopStrings& stops, const std::string& text, size_t step, int* stop) {
  std::string out;
  *stop = -1;
  stops.Reset();
  for (size_t i = 0; i < text.size() && *stop < 0; i += step) {
    const auto o = stops.Push(std::string_view(text).substr(i, step));
    out += o.text;
    *stop = o.stop;
  }
  if (*stop < 0) out += stops.Flush();
  return out;
}

TEST(StopStrings, CutsExactlyWhereverTheTokensFall) {
  auto stops = StopStrings::Create({"\n\nUser:", "END", "abcd", "bc"}).Take();
  const struct {
    const char* text;
    const char* out;
    int stop;
  } cases[] = {{"Hello\n\nUser: x", "Hello", 0}, {"Hello\n\nUs", "Hello\n\nUs", -1}, {"EENDx", "E", 1}, {"xabcd", "xa", 3},
               {"ENENEN", "ENENEN", -1},         {"\n\n\nUser:", "\n", 0},           {"END", "", 1},    {"", "", -1}};
  for (const auto& c : cases)
    for (size_t step = 1; step <= 12; ++step) {
      int stop = 0;
      EXPECT_EQ(RunAll(stops, c.text, step, &stop), c.out) << c.text << " step " << step;
      EXPECT_EQ(stop, c.stop) << c.text << " step " << step;
    }
}

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeAStop) {
  auto stops = StopStrings::Create({"stop"}).Take();
  EXPECT_EQ(stops.Push("a st").text, "a ");
  EXPECT_EQ(stops.Push("ar").text, "star");
  EXPECT_EQ(stops.Push(" sto").text, " ");
  EXPECT_EQ(stops.Push("p!").stop, 0);
  EXPECT_EQ(stops.Push("more").text, "");
}

TEST(StopStrings, RefusesAnEmptyOne) { EXPECT_EQ(StopStrings::Create({"a", ""}).error().code(), Code::kInvalidArgument); }

}  // namespace
}  // namespace slm::text
