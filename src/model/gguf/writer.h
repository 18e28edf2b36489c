// Writes a GGUF v3 file front to back: keys, tensor table, then the data of the tensors in table order.
//
// The bytes go to a sink, so that the caller decides how a file becomes visible. Nothing but the table is held in memory.
// Source: ggml's docs/gguf.md.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/gguf/reader.h"

namespace slm::model::gguf {

// Takes the next bytes of the file.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

// Owned by one thread. Order of calls: keys and tensors, Begin, Data or Skip for every tensor, Finish.
class FileWriter {
 public:
  // `alignment`: of every tensor's data, a power of two >= 8.
  explicit FileWriter(uint32_t alignment = 32);

  // Keys. A name must not come twice.
  void Text(std::string_view name, std::string_view value);
  void U32(std::string_view name, uint32_t value);
  void F32(std::string_view name, float value);
  void Bool(std::string_view name, bool value);
  void Texts(std::string_view name, const std::vector<std::string>& values);
  void Texts(std::string_view name, const std::vector<std::string_view>& values);
  void Bools(std::string_view name, const std::vector<uint8_t>& values);
  void Floats(std::string_view name, const std::vector<float>& values);
  void Int32s(std::string_view name, const std::vector<int32_t>& values);
  void Integers(std::string_view name, const std::vector<int64_t>& values);  // an array of i64
  void Copy(const Key& key);                                                 // of a parsed file, byte for byte

  // A row of the table. `dims` outermost first; `bytes` of data will follow. `ggml_type`: see ggml_types.h.
  void Tensor(std::string_view name, uint32_t ggml_type, const std::vector<int64_t>& dims, uint64_t bytes);
  // The same for a type of the DType table, whose bytes follow from its shape.
  void Tensor(std::string_view name, DType dtype, const std::vector<int64_t>& dims);

  // Header, keys and table. Errors: the sink's.
  Status Begin(ByteSink sink);
  // The next bytes of the tensor in turn, in any pieces; its last byte is followed by padding. Errors: the sink's.
  Status Data(std::span<const std::byte> bytes);
  // Counts the tensor in turn, with its padding, as written: its bytes are where they belong already. Returns how many they are.
  uint64_t Skip();
  // After the last byte of the last tensor. Errors: kInternal when data is missing.
  Status Finish();

  uint64_t bytes_written() const { return written_; }

 private:
  void Key(std::string_view name, ValueType type);
  void Array(std::string_view name, ValueType item, uint64_t count);
  Status Put(std::span<const std::byte> bytes);
  Status Pad();

  uint32_t alignment_;
  uint64_t n_keys_ = 0, n_tensors_ = 0, next_offset_ = 0, written_ = 0;
  std::vector<std::byte> keys_, table_;
  std::vector<uint64_t> sizes_;
  size_t tensor_ = 0;    // whose data comes next
  uint64_t filled_ = 0;  // bytes of it that came
  ByteSink sink_;
};

// Copies the keys of the GGUF file that `m` came from, without those that belong to its container (alignment, shards, packages) and
// without the names in `except`, which the caller writes anew. Errors: kUnsupported (`m` came from no file), kCorrupt.
Status CopyKeys(const Model& m, const std::vector<std::string_view>& except, FileWriter* out);

// Where the text of `key` lies in the GGUF file of these bytes, so that another of the same length may be put in its place. Errors:
// kCorrupt, kNotFound (no such key, or it holds no text).
struct TextPlace {
  uint64_t offset = 0, bytes = 0;
};
Result<TextPlace> FindText(std::span<const std::byte> file, std::string_view key);

}  // namespace slm::model::gguf
