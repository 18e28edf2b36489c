// Reads testdata/*.json, which testdata/make_fixtures.py made with Hugging Face's libraries (its head states the command).
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/text.h"

namespace slm::text {

inline nlohmann::ordered_json Fixture(const std::string& name) {
  std::ifstream in(std::string(SLM_SOURCE_DIR) + "/src/text/testdata/" + name);
  EXPECT_TRUE(in.good()) << name;
  return nlohmann::ordered_json::parse(in);
}

// The SentencePiece-style vocabulary of spm.json, without a merge list: by score.
struct SpmParts {
  nlohmann::ordered_json fixture = Fixture("spm.json");
  std::vector<std::string> storage = fixture["tokens"].get<std::vector<std::string>>();
  std::vector<std::string_view> tokens{storage.begin(), storage.end()};
  std::vector<int32_t> kinds = fixture["kinds"].get<std::vector<int32_t>>();
  std::vector<float> scores = fixture["scores"].get<std::vector<float>>();

  TokenizerParts Parts() const {
    TokenizerParts parts;
    parts.model = "llama";
    parts.tokens = tokens;
    parts.kinds = kinds;
    parts.scores = scores;
    parts.unk = 0;
    parts.bos = 1;
    parts.eos = 2;
    return parts;
  }
};

inline Tokenizer SpmTokenizer() {
  const SpmParts parts;
  auto made = Tokenizer::FromParts(parts.Parts());
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message());
  return made.Take();
}

inline Tokenizer BpeTokenizer() {
  auto made =
      Tokenizer::FromJson(Fixture("bpe.json")["tokenizer"].dump(), R"({"bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}})");
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message());
  return made.Take();
}

}  // namespace slm::text
