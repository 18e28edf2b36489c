// The token that fills a prompt's last chunk.
#include "pad_token.h"

#include <gtest/gtest.h>

namespace slm::cli {
namespace {

TokenizerFiles With(const std::string& added) {
  return {.files = {{"tokenizer.json", R"({"added_tokens": [)" + added + "]}"}}, .note = ""};
}

class PadTokenOf : public testing::Test {
 protected:
  PadTokenOf() {
    m_.config.vocab_size = 100;
    m_.config.bos_ids = {1};
    m_.config.eos_ids = {2};
    m_.tokenizer.chat_template = "{{ '<|user|>' }}";
  }
  model::Model m_;
  const std::string special_ = R"({"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true},
    {"id": 8, "content": "<|pad|>", "special": true}, {"id": 9, "content": "<|rest|>", "special": true},
    {"id": 10, "content": "<|user|>", "special": true}, {"id": 11, "content": "word", "special": false},
    {"id": 100, "content": "<|beyond|>", "special": true})";
};

TEST_F(PadTokenOf, TheModelsOwn) {
  m_.tokenizer.pad = 8;
  EXPECT_EQ(PadToken(m_, With(special_)), 8);
}

TEST_F(PadTokenOf, NotOneThatEndsATextOrStandsInATemplate) {
  for (const int pad : {-1, 1, 2, 10, 11, 100}) {
    m_.tokenizer.pad = pad;
    EXPECT_EQ(PadToken(m_, With(special_)), 9) << pad;
  }
}

TEST_F(PadTokenOf, WithoutSpecialTokensAByteThatNoTextHas) {
  const auto vocabulary = [](const std::string& tokens) {
    return TokenizerFiles{.files = {{"tokenizer.json", R"({"model": {"vocab": {)" + tokens + "}}}"}}, .note = ""};
  };
  EXPECT_EQ(PadToken(m_, vocabulary(R"("a": 3, "<0xFF>": 40, "\u00ff": 41)")), 40);
  EXPECT_EQ(PadToken(m_, vocabulary(R"("\u0100": 3, "\u00ff": 41)")), 41);
  EXPECT_EQ(PadToken(m_, vocabulary(R"("a": 3, "\u00ff": 41)")), 99);
}

TEST_F(PadTokenOf, WithoutSpecialTokensTheHighest) {
  EXPECT_EQ(PadToken(m_, With("")), 99);
  EXPECT_EQ(PadToken(m_, {}), 99);
  EXPECT_EQ(PadToken(m_, {.files = {{"tokenizer.json", "["}}, .note = ""}), 99);
  m_.config.eos_ids = {99, 98};
  EXPECT_EQ(PadToken(m_, {}), 97);
}

}  // namespace
}  // namespace slm::cli
