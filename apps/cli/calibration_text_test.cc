// What sequences of calibration begin with.
#include "calibration_text.h"

#include <gtest/gtest.h>

#include "model/model.h"
#include "quant/quant.h"

namespace slm::cli {
namespace {

constexpr int kBegin = 2;

// A vocabulary of two letters, a begin token and one merge.
model::Model Letters(int add_bos, int bos) {
  model::Model m;
  m.path = "letters.gguf";
  m.tokenizer.kind = "gguf";
  m.tokenizer.ggml_model = "gpt2";
  m.tokenizer.ggml_pre = "gpt-2";
  m.tokenizer.tokens = {"a", "b", "<s>", "ab"};
  m.tokenizer.merges = {"a b"};
  m.tokenizer.token_types = {1, 1, 3, 1};
  m.tokenizer.bos = bos;
  m.tokenizer.add_bos = add_bos;
  return m;
}

std::vector<int32_t> FirstTokens(const model::Model& m) {
  const auto text = CalibrationFrom(std::string(64, 'a'), CalibrationForm::kText, "aa", m, {.sequences = 4, .length = 16});
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message() + "; " + text.error().hint());
  std::vector<int32_t> first;
  if (text.ok())
    for (const auto& s : text.value().sequences) {
      first.push_back(s.at(0));
      EXPECT_LE(s.size(), 16u);
      for (size_t i = 1; i < s.size(); ++i) EXPECT_EQ(s[i], 0);
    }
  return first;
}

TEST(CalibrationText, BeginsAsTheTokenizerBeginsAText) {
  EXPECT_EQ(FirstTokens(Letters(1, kBegin)), (std::vector<int32_t>{kBegin, kBegin, kBegin, kBegin}));
}

TEST(CalibrationText, ABeginTokenThatTheTokenizerLeavesOutIsInEverySecondSequence) {
  EXPECT_EQ(FirstTokens(Letters(0, kBegin)), (std::vector<int32_t>{kBegin, 0, kBegin, 0}));
}

TEST(CalibrationText, WithoutABeginTokenNoneIsMadeUp) { EXPECT_EQ(FirstTokens(Letters(0, -1)), (std::vector<int32_t>{0, 0, 0, 0})); }

}  // namespace
}  // namespace slm::cli
