// Read-only memory maps of files, and the large anonymous buffers that weights are packed into.
//
// Why here: readers, packers and the package all need the same two things, and both carry a measured rule: weights on
// ordinary 4 KiB heap pages lose 20-50 % of decode speed, so buffers ask for transparent huge pages.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace slm {

class MappedFile {
 public:
  // Maps `path` read-only; an empty file maps to an empty span. Errors: kNotFound, kIo (unreadable),
  // kInvalidArgument (a folder, device or pipe: only regular files are mapped, and none of them can make the call hang).
  static Result<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Tells the kernel that [offset, offset + n) will not be read again soon: the pages leave this process's RSS.
  void Drop(size_t offset, size_t n) const;
  // The same for a span that lies inside this map; spans outside are ignored.
  void Drop(std::span<const std::byte> part) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Zeroed anonymous memory, 2 MiB aligned huge pages asked for when it is at least 2 MiB.
class Buffer {
 public:
  // Errors: kLimit when the system has no such memory.
  static Result<Buffer> Allocate(size_t bytes);
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;      // bytes asked for
  void* map_ = nullptr;  // what munmap wants
  size_t map_size_ = 0;
};

}  // namespace slm
