// A forward-only walk over mapped bytes in which every step is checked against what is left, so that no count, length or
// offset of a file can lead outside of it. Little-endian, as GGUF and safetensors are.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace slm::model {

static_assert(std::endian::native == std::endian::little, "readers copy little-endian numbers as they are");

// Unaligned load of a number.
template <class T>
inline T LoadAs(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t offset() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  // The next number, or false when fewer bytes are left. Nothing is consumed then.
  template <class T>
  bool Read(T* out) {
    if (left() < sizeof(T)) return false;
    *out = LoadAs<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return true;
  }
  // The next n bytes, or false.
  bool Take(uint64_t n, std::span<const std::byte>* out) {
    if (n > left()) return false;
    *out = bytes_.subspan(at_, static_cast<size_t>(n));
    at_ += static_cast<size_t>(n);
    return true;
  }
  // A string with a 64-bit length before it, as a view of the bytes.
  bool String(std::string_view* out) {
    uint64_t n = 0;
    const size_t start = at_;
    std::span<const std::byte> part;
    if (!Read(&n) || !Take(n, &part)) {
      at_ = start;
      return false;
    }
    *out = {reinterpret_cast<const char*>(part.data()), part.size()};
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace slm::model
