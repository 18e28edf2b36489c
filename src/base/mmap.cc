#include "base/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace slm {
namespace {
constexpr size_t kHuge = size_t{2} << 20;
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // NONBLOCK: opening a pipe must not hang
  if (fd < 0) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo;
    return Error(code, path + ": " + std::strerror(errno), "check the path and its permissions");
  }
  struct stat st;
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    return Error(Code::kInvalidArgument, path + ": not a regular file", "name a file");
  }
  MappedFile f;
  f.size_ = static_cast<size_t>(st.st_size);
  if (f.size_ > 0) {
    void* p = ::mmap(nullptr, f.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      const int e = errno;
      ::close(fd);
      return Error(Code::kIo, path + ": mmap: " + std::strerror(e), "check the file system and the memory limits");
    }
    f.data_ = static_cast<const std::byte*>(p);
  }
  ::close(fd);
  return f;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Drop(size_t offset, size_t n) const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (offset > size_ || n > size_ - offset) return;
  const size_t begin = (offset + page - 1) / page * page, end = (offset + n) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}
void MappedFile::Drop(std::span<const std::byte> part) const {
  if (part.data() < data_ || part.data() + part.size() > data_ + size_) return;
  Drop(static_cast<size_t>(part.data() - data_), part.size());
}

Result<Buffer> Buffer::Allocate(size_t bytes) {
  Buffer b;
  if (bytes == 0) return b;
  const size_t slack = bytes >= kHuge ? kHuge : 0;
  if (bytes > SIZE_MAX - slack - 4096) return Error(Code::kLimit, "buffer size overflows", "reduce the context or the model");
  b.map_size_ = bytes + slack;
  void* p = ::mmap(nullptr, b.map_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return Error(Code::kLimit, "no memory for " + std::to_string(bytes) + " bytes", "reduce the context or the model");
  b.map_ = p;
  uintptr_t a = reinterpret_cast<uintptr_t>(p);
  if (slack) {
    a = (a + kHuge - 1) / kHuge * kHuge;
    ::madvise(reinterpret_cast<void*>(a), bytes, MADV_HUGEPAGE);
  }
  b.data_ = reinterpret_cast<std::byte*>(a);
  b.size_ = bytes;
  return b;
}
Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      map_(std::exchange(other.map_, nullptr)),
      map_size_(std::exchange(other.map_size_, 0)) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(map_, other.map_);
  std::swap(map_size_, other.map_size_);
  return *this;
}
Buffer::~Buffer() {
  if (map_) ::munmap(map_, map_size_);
}

}  // namespace slm
