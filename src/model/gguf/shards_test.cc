// Sets of shards: found from any of their files, and every way in which they may not belong together.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "model/gguf/test_writer.h"
#include "model/model.h"

namespace slm::model::gguf {
namespace {

namespace fs = std::filesystem;

class Shards : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "slm_shards_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    Write(1, 2, 0, 2, 2, "a");
    Write(2, 2, 1, 2, 2, "b");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(int n, int of) const {
    char tail[40];
    std::snprintf(tail, sizeof tail, "m-%05d-of-%05d.gguf", n, of);
    return (folder_ / tail).string();
  }
  // Shard n of `of` by its name, with what it says itself and one tensor.
  void Write(int n, int of, uint32_t number, uint32_t count, uint32_t n_tensors, const char* tensor) const {
    Writer w;
    w.Header(1, 3).KeyU32("split.no", number).KeyU32("split.count", count).KeyU32("split.tensors.count", n_tensors);
    w.Row(tensor, 8, 1, 0, 0).Data(32);
    std::ofstream(Path(n, of), std::ios::binary)
        .write(reinterpret_cast<const char*>(w.bytes.data()), static_cast<std::streamsize>(w.bytes.size()));
  }
  std::string Open(int n) const {
    const auto r = LoadModel(Path(n, 2), LoadWhat::kContainer);
    if (!r.ok()) return r.error().message();
    std::string names;
    for (const Tensor& t : r.value()->tensors) names += t.name;
    return names + " " + std::to_string(r.value()->files.size());
  }
  fs::path folder_;
};

TEST_F(Shards, AreFoundFromAnyOfThem) {
  EXPECT_EQ(Open(1), "ab 2");
  EXPECT_EQ(Open(2), "ab 2");
}

TEST_F(Shards, AMissingOneIsNamed) {
  fs::remove(Path(2, 2));
  EXPECT_NE(Open(1).find("m-00002-of-00002.gguf"), std::string::npos) << Open(1);
}

TEST_F(Shards, MustBelongTogether) {
  Write(2, 2, 0, 2, 2, "b");
  EXPECT_NE(Open(1).find("it says shard 1 of 2"), std::string::npos) << Open(1);
  Write(2, 2, 1, 3, 2, "b");
  EXPECT_NE(Open(1).find("it says shard 2 of 3"), std::string::npos) << Open(1);
  Write(2, 2, 1, 2, 2, "a");
  EXPECT_NE(Open(1).find("occurs in two shards"), std::string::npos) << Open(1);
  Write(1, 2, 0, 2, 5, "a");
  Write(2, 2, 1, 2, 5, "b");
  EXPECT_NE(Open(1).find("hold 2 tensors, not 5"), std::string::npos) << Open(1);
  Write(1, 2, 7, 2, 2, "a");
  EXPECT_NE(Open(1).find("cannot be"), std::string::npos) << Open(1);
}

TEST_F(Shards, ARenamedOneIsAnError) {
  fs::rename(Path(1, 2), folder_ / "model.gguf");
  const auto r = LoadModel((folder_ / "model.gguf").string(), LoadWhat::kContainer);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message().find("does not end in -00001-of-00002.gguf"), std::string::npos) << r.error().message();
}

}  // namespace
}  // namespace slm::model::gguf
