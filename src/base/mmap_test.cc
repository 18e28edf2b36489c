// MappedFile refuses what is not a regular file without hanging on it; Buffer is aligned, zeroed and movable.
#include "base/mmap.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace slm {
namespace {

// A folder that is removed with its files.
class TempFolder {
 public:
  TempFolder() {
    std::string path = ::testing::TempDir() + "slm_mmap_XXXXXX";
    path_ = ::mkdtemp(path.data()) ? path : std::string();
  }
  ~TempFolder() {
    for (const std::string& f : files_) ::unlink(f.c_str());
    ::rmdir(path_.c_str());
  }
  std::string File(const std::string& name) {
    files_.push_back(path_ + "/" + name);
    return files_.back();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

Code OpenCode(const std::string& path) {
  auto r = MappedFile::Open(path);
  if (r.ok()) return Code::kInternal;
  EXPECT_NE(r.error().message().find(path), std::string::npos) << "the error names the path";
  EXPECT_FALSE(r.error().hint().empty());
  return r.error().code();
}

TEST(MappedFile, ShowsTheBytesOfAFile) {
  TempFolder dir;
  const std::string path = dir.File("data");
  std::ofstream(path, std::ios::binary) << std::string("hello\0world", 11);
  auto r = MappedFile::Open(path);
  ASSERT_TRUE(r.ok());
  MappedFile f = r.Take();
  ASSERT_EQ(f.bytes().size(), 11u);
  EXPECT_EQ(std::memcmp(f.bytes().data(), "hello\0world", 11), 0);
  const std::byte* at = f.bytes().data();
  MappedFile moved = std::move(f);
  EXPECT_EQ(moved.bytes().data(), at);
  EXPECT_TRUE(f.bytes().empty());
}

TEST(MappedFile, EmptyFileIsAnEmptySpan) {
  TempFolder dir;
  const std::string path = dir.File("empty");
  std::ofstream(path).flush();
  auto r = MappedFile::Open(path);
  ASSERT_TRUE(r.ok());
  EXPECT_TRUE(r.value().bytes().empty());
  r.value().Drop(0, 0);
  r.value().Drop(0, 100);
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  TempFolder dir;
  EXPECT_EQ(OpenCode(dir.path() + "/absent"), Code::kNotFound);
  EXPECT_EQ(OpenCode(dir.path()), Code::kInvalidArgument);
  EXPECT_EQ(OpenCode("/dev/zero"), Code::kInvalidArgument);
  EXPECT_EQ(OpenCode("/dev/null"), Code::kInvalidArgument);
  const std::string pipe = dir.File("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(OpenCode(pipe), Code::kInvalidArgument);  // and returns at once although nobody writes
  const std::string file = dir.File("file");
  std::ofstream(file) << "x";
  EXPECT_EQ(OpenCode(file + "/below"), Code::kNotFound);
  EXPECT_EQ(OpenCode(dir.path() + "/" + std::string(5000, 'a')), Code::kIo);
}

TEST(MappedFile, UnreadableFileIsAnIoError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  TempFolder dir;
  const std::string path = dir.File("secret");
  std::ofstream(path) << "x";
  ::chmod(path.c_str(), 0);
  EXPECT_EQ(OpenCode(path), Code::kIo);
}

TEST(MappedFile, DropKeepsTheBytesReadable) {
  TempFolder dir;
  const std::string path = dir.File("pages");
  std::string text(5 * 65536 + 17, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  std::ofstream(path, std::ios::binary) << text;
  const MappedFile f = MappedFile::Open(path).Take();
  f.Drop(100, 3 * 65536);
  f.Drop(0, SIZE_MAX);         // ends past the map: ignored
  f.Drop(text.size() + 1, 1);  // starts past it
  f.Drop(f.bytes().subspan(65536, 70000));
  std::byte elsewhere[16] = {};
  f.Drop(std::span<const std::byte>(elsewhere));
  EXPECT_EQ(std::memcmp(f.bytes().data(), text.data(), text.size()), 0);
}

TEST(Buffer, IsZeroedAlignedAndWritable) {
  for (const size_t bytes : {size_t{1}, size_t{4097}, size_t{2} << 20, (size_t{5} << 20) + 3}) {
    auto r = Buffer::Allocate(bytes);
    ASSERT_TRUE(r.ok());
    Buffer b = r.Take();
    EXPECT_EQ(b.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % (bytes >= (size_t{2} << 20) ? size_t{2} << 20 : 4096), 0u);
    for (size_t i = 0; i < bytes; i += 1001) ASSERT_EQ(b.data()[i], std::byte{0});
    std::memset(b.data(), 7, bytes);
    EXPECT_EQ(b.as<uint8_t>()[bytes - 1], 7);
    Buffer other = std::move(b);
    EXPECT_EQ(b.data(), nullptr);
    b = std::move(other);
    EXPECT_EQ(b.size(), bytes);
  }
}

TEST(Buffer, NothingIsAllowedAndTooMuchIsALimit) {
  auto none = Buffer::Allocate(0);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none.value().size(), 0u);
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - (size_t{2} << 20), size_t{1} << 60}) {
    auto r = Buffer::Allocate(bytes);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code(), Code::kLimit);
  }
}

}  // namespace
}  // namespace slm
