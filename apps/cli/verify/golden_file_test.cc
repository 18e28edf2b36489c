// What a package's sum covers: every shard, every file of a folder, files behind links.
#include "verify/golden_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace slm::cli {
namespace {

namespace fs = std::filesystem;

class Identities : public testing::Test {
 protected:
  Identities() {
    std::string name = (fs::temp_directory_path() / "slm_golden_XXXXXX").string();
    d_ = mkdtemp(name.data());
  }
  ~Identities() override { fs::remove_all(d_); }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((d_ / name).parent_path());
    std::ofstream(d_ / name) << text;
  }
  std::string Sum(const std::string& name) const {
    const auto id = IdentityOf((d_ / name).string());
    return id.ok() ? id.value().sha256 : std::string();
  }
  fs::path d_;
};

TEST_F(Identities, OfAFileIsItsSum) {
  Write("a.gguf", "abc");  // FIPS 180-2, B.1
  EXPECT_EQ(Sum("a.gguf"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(IdentityOf((d_ / "a.gguf").string()).value().bytes, 3u);
}

TEST_F(Identities, OfAShardIsThatOfAll) {
  Write("m-00001-of-00002.gguf", "one");
  EXPECT_EQ(Sum("m-00001-of-00002.gguf"), "") << "the second is missing";
  Write("m-00002-of-00002.gguf", "two");
  const std::string before = Sum("m-00001-of-00002.gguf");
  ASSERT_EQ(before.size(), 64u);
  Write("m-00002-of-00002.gguf", "twx");
  EXPECT_NE(Sum("m-00001-of-00002.gguf"), before);
  EXPECT_TRUE(IsLaterShard("x/m-00002-of-00002.gguf"));
  EXPECT_FALSE(IsLaterShard("x/m-00001-of-00002.gguf"));
  EXPECT_FALSE(IsLaterShard("x/m-0000a-of-00002.gguf"));
  Write("n-00000-of-00000.gguf", "none");
  EXPECT_EQ(Sum("n-00000-of-00000.gguf"), "");
}

TEST_F(Identities, FilesBehindLinksCount) {
  Write("blobs/weights", "one");
  fs::create_directories(d_ / "snapshot");
  EXPECT_EQ(Sum("snapshot"), "") << "no files";
  fs::create_symlink("../blobs/weights", d_ / "snapshot/model.safetensors");
  const std::string before = Sum("snapshot");
  ASSERT_EQ(before.size(), 64u);
  Write("blobs/weights", "two");
  EXPECT_NE(Sum("snapshot"), before);
}

}  // namespace
}  // namespace slm::cli
