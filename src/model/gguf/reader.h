// GGUF container, versions 2 and 3, little-endian: header, keys, tensor table. Parsing copies no text and no weights;
// everything is a view of the bytes handed in.
//
// Source: ggml's docs/gguf.md. What it leaves open is decided here: nested arrays are refused, a boolean is 0 or 1, tensor
// data may not overlap, and every dimension is at least 1.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace slm::model::gguf {

enum class ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kCount };

struct Value {
  ValueType type = ValueType::kU8;
  ValueType item = ValueType::kU8;   // arrays: type of the items
  uint64_t count = 1;                // arrays: number of items
  std::span<const std::byte> bytes;  // the number, the text without its length, or all items of the array
};

struct Key {
  std::string_view name;
  Value value;
};

// A parsed file. Views point into the bytes given to Parse.
struct File {
  uint32_t version = 0;
  uint32_t alignment = 32;
  std::vector<Key> keys;        // file order
  std::vector<Tensor> tensors;  // file order, dims outermost first
  const Value* Find(std::string_view name) const;
};

// Parses a whole file. Errors: kCorrupt (place named), kUnsupported (version, big-endian, nested array).
// A tensor of a type outside the DType table is listed with its foreign_type; reading it is the caller's business.
Result<File> Parse(std::span<const std::byte> bytes);

// Typed look-ups. A missing key is nullopt, a wrong type kCorrupt.
Result<std::optional<int64_t>> GetInteger(const File& file, const std::string& key);
Result<std::optional<double>> GetNumber(const File& file, const std::string& key);  // finite, else kCorrupt
Result<std::optional<bool>> GetBool(const File& file, const std::string& key);
Result<std::optional<std::string_view>> GetText(const File& file, const std::string& key);

// Items of arrays. Items of numeric arrays must be of an integer (or for floats: f32, f64) type.
Result<std::vector<std::string_view>> StringItems(const Key& key);
Result<std::vector<int64_t>> IntegerItems(const Key& key);
Result<std::vector<float>> FloatItems(const Key& key);

// A value as short text for listings: numbers, cut strings, "[n strings]".
std::string ValueText(const Value& value);

}  // namespace slm::model::gguf
