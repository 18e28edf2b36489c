// GGUF files written field by field, for tests: right ones and wrong ones.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace slm::model::gguf {

using Bytes = std::vector<std::byte>;

// A file written field by field.
class Writer {
 public:
  template <class T>
  Writer& Num(T v) {
    const auto* p = reinterpret_cast<const std::byte*>(&v);
    bytes.insert(bytes.end(), p, p + sizeof v);
    return *this;
  }
  Writer& Text(std::string_view s) {
    Num<uint64_t>(s.size());
    for (const char c : s) bytes.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Writer& KeyU32(std::string_view name, uint32_t v) { return Text(name).Num<uint32_t>(4).Num(v); }
  Writer& Header(uint64_t n_tensors, uint64_t n_keys, uint32_t version = 3) {
    return Num<uint32_t>(0x46554747).Num(version).Num(n_tensors).Num(n_keys);
  }
  // A row of the table with two dimensions, innermost first.
  Writer& Row(std::string_view name, uint64_t columns, uint64_t rows, uint32_t type, uint64_t offset) {
    return Text(name).Num<uint32_t>(2).Num(columns).Num(rows).Num(type).Num(offset);
  }
  Writer& Data(size_t n) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + n);
    return *this;
  }
  Bytes bytes;
};

}  // namespace slm::model::gguf
