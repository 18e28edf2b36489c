// Typed look-ups of GGUF keys (declared in reader.h): any integer type may hold an integer, either float type a number.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "model/byte_cursor.h"
#include "model/gguf/reader.h"
#include "model/quoted.h"

namespace slm::model::gguf {
namespace {

constexpr size_t kListedText = 200;

Error WrongType(std::string_view key, const char* wanted) {
  return Error(Code::kCorrupt, fmt::format("key {}: not {}", Quoted(key), wanted), "convert the model again");
}

// An integer of any width as int64. Unsigned 64-bit values past its range are saturated; every range check refuses them.
std::optional<int64_t> AsInteger(ValueType t, const std::byte* p) {
  switch (t) {
    case ValueType::kU8: return LoadAs<uint8_t>(p);
    case ValueType::kI8: return LoadAs<int8_t>(p);
    case ValueType::kU16: return LoadAs<uint16_t>(p);
    case ValueType::kI16: return LoadAs<int16_t>(p);
    case ValueType::kU32: return LoadAs<uint32_t>(p);
    case ValueType::kI32: return LoadAs<int32_t>(p);
    case ValueType::kI64: return LoadAs<int64_t>(p);
    case ValueType::kU64: {
      const uint64_t v = LoadAs<uint64_t>(p);
      constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
      return static_cast<int64_t>(v < kMax ? v : kMax);
    }
    default: return std::nullopt;
  }
}

size_t Width(ValueType t) {
  switch (t) {
    case ValueType::kU8:
    case ValueType::kI8: return 1;
    case ValueType::kU16:
    case ValueType::kI16: return 2;
    case ValueType::kU32:
    case ValueType::kI32: return 4;
    default: return 8;
  }
}

std::string_view Text(const Value& v) { return {reinterpret_cast<const char*>(v.bytes.data()), v.bytes.size()}; }

}  // namespace

Result<std::optional<int64_t>> GetInteger(const File& file, const std::string& key) {
  const Value* v = file.Find(key);
  if (!v) return std::optional<int64_t>();
  const std::optional<int64_t> n = AsInteger(v->type, v->bytes.data());
  if (!n) return WrongType(key, "an integer");
  return n;
}

Result<std::optional<double>> GetNumber(const File& file, const std::string& key) {
  const Value* v = file.Find(key);
  if (!v) return std::optional<double>();
  double x = 0;
  if (v->type == ValueType::kF32) x = LoadAs<float>(v->bytes.data());
  else if (v->type == ValueType::kF64) x = LoadAs<double>(v->bytes.data());
  else if (const std::optional<int64_t> n = AsInteger(v->type, v->bytes.data())) x = static_cast<double>(*n);
  else return WrongType(key, "a number");
  if (!std::isfinite(x)) return WrongType(key, "a finite number");
  return std::optional<double>(x);
}

Result<std::optional<bool>> GetBool(const File& file, const std::string& key) {
  const Value* v = file.Find(key);
  if (!v) return std::optional<bool>();
  if (v->type != ValueType::kBool) return WrongType(key, "a boolean");
  return std::optional<bool>(LoadAs<uint8_t>(v->bytes.data()) != 0);
}

Result<std::optional<std::string_view>> GetText(const File& file, const std::string& key) {
  const Value* v = file.Find(key);
  if (!v) return std::optional<std::string_view>();
  if (v->type != ValueType::kString) return WrongType(key, "a string");
  return std::optional<std::string_view>(Text(*v));
}

Result<std::vector<std::string_view>> StringItems(const Key& key) {
  const Value& v = key.value;
  if (v.type != ValueType::kArray || v.item != ValueType::kString) return WrongType(key.name, "an array of strings");
  std::vector<std::string_view> out(static_cast<size_t>(v.count));  // the parser has seen that many in the file
  ByteCursor c(v.bytes);
  for (std::string_view& s : out)
    if (!c.String(&s)) return Error(Code::kInternal, "string array changed under the reader");
  return out;
}

Result<std::vector<int64_t>> IntegerItems(const Key& key) {
  const Value& v = key.value;
  if (v.type != ValueType::kArray || v.item == ValueType::kString || !AsInteger(v.item, std::array<std::byte, 8>{}.data()))
    return WrongType(key.name, "an array of integers");
  const size_t width = Width(v.item);
  std::vector<int64_t> out(static_cast<size_t>(v.count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = *AsInteger(v.item, v.bytes.data() + i * width);
  return out;
}

Result<std::vector<float>> FloatItems(const Key& key) {
  const Value& v = key.value;
  if (v.type != ValueType::kArray || (v.item != ValueType::kF32 && v.item != ValueType::kF64))
    return WrongType(key.name, "an array of floats");
  std::vector<float> out(static_cast<size_t>(v.count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = v.item == ValueType::kF32 ? LoadAs<float>(v.bytes.data() + 4 * i) : static_cast<float>(LoadAs<double>(v.bytes.data() + 8 * i));
  return out;
}

std::string ValueText(const Value& v) {
  switch (v.type) {
    case ValueType::kString: return PrintableUtf8(Text(v), kListedText);
    case ValueType::kF32: return fmt::format("{}", LoadAs<float>(v.bytes.data()));
    case ValueType::kF64: return fmt::format("{}", LoadAs<double>(v.bytes.data()));
    case ValueType::kU64: return fmt::format("{}", LoadAs<uint64_t>(v.bytes.data()));
    case ValueType::kBool: return LoadAs<uint8_t>(v.bytes.data()) ? "true" : "false";
    case ValueType::kArray: {
      const bool strings = v.item == ValueType::kString;
      return fmt::format("[{} {}]", v.count, strings ? "strings" : v.item == ValueType::kBool ? "booleans" : "numbers");
    }
    default: return fmt::format("{}", *AsInteger(v.type, v.bytes.data()));
  }
}

}  // namespace slm::model::gguf
