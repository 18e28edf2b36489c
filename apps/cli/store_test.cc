// The store on a temporary folder: resolution, listing, deletion that stays inside.
#include "store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "fetch/place.h"

namespace slm::cli {
namespace {
namespace fs = std::filesystem;

class Store : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/slm_store_XXXXXX";
    root_ = mkdtemp(name);
    io_.store = root_;
    io_.cancel = &cancel_;
  }
  void TearDown() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  std::string Resolved(const std::string& model) const {
    const auto path = ResolveModel(io_, model);
    if (!path.ok()) return "error: " + path.error().hint();
    return path.value().starts_with(root_) ? path.value().substr(root_.size() + 8) : path.value();
  }
  std::string root_;
  CancelFlag cancel_{false};
  Io io_;
};

TEST(StoreRoot, OrderOfVariables) {
  std::map<std::string, std::string> env = {{"SLM_HOME", "/a"}, {"XDG_DATA_HOME", "/b"}, {"HOME", "/c"}};
  const auto get = [&](const char* name) { return env.count(name) ? env[name].c_str() : nullptr; };
  EXPECT_EQ(StoreRoot(get), "/a");
  env.erase("SLM_HOME");
  EXPECT_EQ(StoreRoot(get), "/b/slmkit");
  env["XDG_DATA_HOME"] = "relative";
  EXPECT_EQ(StoreRoot(get), "/c/.local/share/slmkit");
}

TEST(Names, StoreNamesAndRelativePaths) {
  for (const char* good : {"a", "smollm2-135m-instruct", "Owner--Repo_1.5"}) EXPECT_TRUE(IsStoreName(good)) << good;
  for (const char* bad : {"", ".", "..", ".hidden", "-rf", "a/b", "a b", "a\n", "\xc3\xa4"}) EXPECT_FALSE(IsStoreName(bad)) << bad;
  EXPECT_FALSE(IsStoreName(std::string(129, 'a')));
  EXPECT_FALSE(IsStoreName(std::string("a\0b", 3)));
  for (const char* good : {"a", "a/b.gguf", "..a/b..", "a b"}) EXPECT_TRUE(IsSafeRelativePath(good)) << good;
  for (const char* bad : {"", "/", "/a", "a/", "a//b", "..", "../a", "a/..", "a/../b", "./a", "a\\b", "a\nb"})
    EXPECT_FALSE(IsSafeRelativePath(bad)) << bad;
}

TEST_F(Store, ResolvesPathsNamesAndFilesOfNames) {
  Write("models/one/w.gguf", "x");
  Write("models/hf/config.json", "{}");
  Write("models/hf/model.safetensors", "x");
  Write("models/shards/m-00002-of-00002.gguf", "x");
  Write("models/shards/m-00001-of-00002.gguf", "x");
  Write("models/two/a.gguf", "x");
  Write("models/two/b.gguf", "x");
  EXPECT_EQ(Resolved("one"), "one/w.gguf");
  EXPECT_EQ(Resolved("hf"), "hf");
  EXPECT_EQ(Resolved("shards"), "shards/m-00001-of-00002.gguf");
  EXPECT_EQ(Resolved("two"), "two");
  EXPECT_EQ(Resolved("two/b.gguf"), "two/b.gguf");
  EXPECT_EQ(Resolved(root_ + "/models/one/w.gguf"), "one/w.gguf");
  EXPECT_EQ(Resolved("/tmp"), "/tmp");
}

TEST_F(Store, MissesSayWhatToType) {
  Write("models/my-model/w.gguf", "x");
  EXPECT_EQ(Resolved("my-modle"), "error: did you mean my-model?");
  EXPECT_EQ(Resolved("smollm2"), "error: slm fetch smollm2-135m-instruct brings it here");
  EXPECT_NE(Resolved("qqqqqq").find("slm models"), std::string::npos);
  EXPECT_NE(Resolved("my-model/../../../etc/passwd").find("error"), std::string::npos);
  EXPECT_NE(Resolved("my-model/absent").find("error"), std::string::npos);
  EXPECT_EQ(ResolveModel(io_, "").error().code(), Code::kInvalidArgument);
}

TEST_F(Store, PublishReplacesAndRoundTripsTheDescription) {
  for (const char* text : {"first", "second"}) {
    Write("tmp/m/ready/w.gguf", text);
    StoredModel model{"m", "", "hf:o/r", "abc", "MIT", 0, {{"w.gguf", 5, std::string(64, 'a')}}};
    ASSERT_TRUE(WriteManifest(ReadyFolder(root_, "m"), model).ok());
    ASSERT_TRUE(PublishModel(root_, "m").ok());
    std::string now;
    std::getline(std::ifstream(root_ + "/models/m/w.gguf") >> std::ws, now);
    EXPECT_EQ(now, text);
    EXPECT_FALSE(fs::exists(root_ + "/tmp/m"));
  }
  const auto found = FindModel(root_, "m");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value().source, "hf:o/r");
  EXPECT_EQ(found.value().revision, "abc");
  EXPECT_EQ(found.value().license, "MIT");
  EXPECT_EQ(found.value().bytes, 5u);
  ASSERT_EQ(found.value().files.size(), 1u);
  EXPECT_EQ(found.value().files[0].sha256, std::string(64, 'a'));
}

TEST_F(Store, DamagedDescriptionsAreErrors) {
  for (const char* text : {"", "{", "[]", "7", R"({"files":7})", R"({"files":[7]})", R"({"files":[{"name":"../x","bytes":1}]})",
                           R"({"files":[{"name":"x","bytes":-1}]})"}) {
    Write("models/m/slm.json", text);
    EXPECT_EQ(FindModel(root_, "m").error().code(), Code::kCorrupt) << text;
  }
}

TEST_F(Store, RemoveStaysInside) {
  Write("models/m/w.gguf", "12345");
  Write("tmp/m/parts/x.part", "123");
  Write("outside/keep", "x");
  fs::create_directory_symlink(root_ + "/outside", root_ + "/models/link");
  fs::create_directory_symlink(root_ + "/outside", root_ + "/models/m/inner");
  for (const char* bad : {"../outside", "link", ".", "..", "", "m/inner", "/"}) EXPECT_FALSE(RemoveModel(root_, bad).ok()) << bad;
  const auto freed = RemoveModel(root_, "m");
  ASSERT_TRUE(freed.ok());
  EXPECT_EQ(freed.value(), 8u);
  EXPECT_TRUE(fs::exists(root_ + "/outside/keep"));
  EXPECT_FALSE(fs::exists(root_ + "/models/m"));
  EXPECT_FALSE(fs::exists(root_ + "/tmp/m"));
  EXPECT_EQ(RemoveModel(root_, "m").error().code(), Code::kNotFound);
}

TEST_F(Store, RemoveWaitsForNoFetchButRefuses) {
  Write("models/m/w.gguf", "12345");
  Write("tmp/m/parts/x.part", "123");
  {
    const auto fetch = FetchLock::Take(root_, "m");
    ASSERT_TRUE(fetch.ok());
    const auto freed = RemoveModel(root_, "m");
    ASSERT_FALSE(freed.ok());
    EXPECT_EQ(freed.error().code(), Code::kUnavailable);
    EXPECT_NE(freed.error().message().find("fetch"), std::string::npos);
    EXPECT_TRUE(fs::exists(root_ + "/models/m/w.gguf"));
    EXPECT_TRUE(fs::exists(root_ + "/tmp/m/parts/x.part"));
  }
  EXPECT_TRUE(RemoveModel(root_, "m").ok());
}

TEST_F(Store, ADamagedDescriptionSpoilsOnlyItsOwnLine) {
  Write("models/a/w.gguf", "x");
  Write("models/broken/slm.json", "{");
  Write("models/broken/w.gguf", "12345");
  Write("models/c/w.gguf", "x");
  const auto list = ListModels(root_);
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list.value().size(), 3u);
  EXPECT_FALSE(list.value()[0].damage);
  const StoredModel& broken = list.value()[1];
  EXPECT_EQ(broken.name, "broken");
  EXPECT_EQ(broken.path, root_ + "/models/broken/w.gguf");
  EXPECT_EQ(broken.bytes, 6u);
  ASSERT_TRUE(broken.damage);
  EXPECT_EQ(broken.damage->code(), Code::kCorrupt);
  EXPECT_FALSE(list.value()[2].damage);
}

TEST_F(Store, ListIsSortedAndSkipsStrangers) {
  EXPECT_TRUE(ListModels(root_).value().empty());
  Write("models/b/w.gguf", "x");
  Write("models/a/w.gguf", "xyz");
  Write("models/.hidden/w.gguf", "x");
  Write("models/file", "x");
  const auto list = ListModels(root_);
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list.value().size(), 2u);
  EXPECT_EQ(list.value()[0].name, "a");
  EXPECT_EQ(list.value()[0].bytes, 3u);
}

}  // namespace
}  // namespace slm::cli
