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

// The byte-level vocabulary of bpe.json as a GGUF file has it.
struct BpeParts {
  nlohmann::ordered_json json = Fixture("bpe.json")["tokenizer"];
  std::vector<std::string> storage, merge_storage;
  std::vector<std::string_view> tokens, merges;
  std::vector<int32_t> kinds;

  BpeParts() {
    storage.resize(json["model"]["vocab"].size() + 3);
    for (const auto& [token, id] : json["model"]["vocab"].items()) storage[id.get<size_t>()] = token;
    kinds.assign(storage.size(), 1);
    for (const auto& a : json["added_tokens"]) {
      storage[a["id"].get<size_t>()] = a["content"];
      kinds[a["id"].get<size_t>()] = a["special"].get<bool>() ? 3 : 4;
    }
    for (const auto& m : json["model"]["merges"]) merge_storage.push_back(m[0].get<std::string>() + " " + m[1].get<std::string>());
    tokens.assign(storage.begin(), storage.end());
    merges.assign(merge_storage.begin(), merge_storage.end());
  }
  TokenizerParts Parts() const {
    TokenizerParts parts;
    parts.model = "gpt2";
    parts.pre = "dbrx";
    parts.tokens = tokens;
    parts.kinds = kinds;
    parts.merges = merges;
    return parts;
  }
};

inline Tokenizer BpeTokenizer() {
  auto made =
      Tokenizer::FromJson(Fixture("bpe.json")["tokenizer"].dump(), R"({"bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}})");
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message());
  return made.Take();
}

}  // namespace slm::text
