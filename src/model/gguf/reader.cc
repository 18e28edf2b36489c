// See reader.h.
#include "model/gguf/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "model/byte_cursor.h"
#include "model/gguf/ggml_types.h"
#include "model/quoted.h"

namespace slm::model::gguf {
namespace {

constexpr uint32_t kMagic = 0x46554747;       // "GGUF"
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;  // empty name, type, one byte of value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;
constexpr uint32_t kMaxDims = 4;       // GGML_MAX_DIMS
constexpr size_t kMaxKeyName = 65535;  // the specification's limit
constexpr size_t kMaxTensorName = 255;
constexpr uint32_t kMaxAlignment = 1u << 20;
constexpr const char* kDamaged = "the file is damaged or cut short: fetch it again";

Error Corrupt(std::string what) { return Error(Code::kCorrupt, std::move(what), kDamaged); }

// Bytes of one item, 0 for strings and arrays.
uint32_t ItemBytes(ValueType t) {
  switch (t) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool: return 1;
    case ValueType::kU16:
    case ValueType::kI16: return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32: return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64: return 8;
    default: return 0;
  }
}

bool ReadType(ByteCursor* c, ValueType* out) {
  uint32_t t = 0;
  if (!c->Read(&t) || t >= static_cast<uint32_t>(ValueType::kCount)) return false;
  *out = static_cast<ValueType>(t);
  return true;
}

// Walks over `count` length-prefixed strings.
bool SkipStrings(ByteCursor* c, uint64_t count) {
  if (count > c->left() / 8) return false;
  std::string_view s;
  for (uint64_t i = 0; i < count; ++i)
    if (!c->String(&s)) return false;
  return true;
}

Status ReadArray(ByteCursor* c, std::span<const std::byte> all, Value* v) {
  if (!ReadType(c, &v->item)) return Corrupt("array of an unknown item type");
  if (v->item == ValueType::kArray)
    return Error(Code::kUnsupported, "array of arrays", "no known model needs one; the file may be damaged");
  if (!c->Read(&v->count)) return Corrupt("array cut short");
  const size_t start = c->offset();
  const uint32_t item_bytes = ItemBytes(v->item);
  bool ok = false;
  if (item_bytes == 0) {
    ok = SkipStrings(c, v->count);
  } else {
    std::span<const std::byte> skipped;
    ok = v->count <= c->left() / item_bytes && c->Take(v->count * item_bytes, &skipped);
  }
  if (!ok) return Corrupt(fmt::format("array of {} items runs past the end of the file", v->count));
  v->bytes = all.subspan(start, c->offset() - start);
  return Ok();
}

Status ReadValue(ByteCursor* c, std::span<const std::byte> all, Value* v) {
  if (!ReadType(c, &v->type)) return Corrupt("unknown value type");
  if (v->type == ValueType::kArray) return ReadArray(c, all, v);
  if (v->type == ValueType::kString) {
    std::string_view s;
    if (!c->String(&s)) return Corrupt("string runs past the end of the file");
    v->bytes = std::as_bytes(std::span(s.data(), s.size()));
    return Ok();
  }
  if (!c->Take(ItemBytes(v->type), &v->bytes)) return Corrupt("value cut short");
  if (v->type == ValueType::kBool && LoadAs<uint8_t>(v->bytes.data()) > 1) return Corrupt("a boolean that is neither 0 nor 1");
  return Ok();
}

Status ReadKeys(ByteCursor* c, std::span<const std::byte> all, uint64_t count, File* file) {
  if (count > c->left() / kMinKeyBytes) return Corrupt(fmt::format("{} keys do not fit into the file", count));
  file->keys.reserve(static_cast<size_t>(count));
  std::unordered_set<std::string_view> seen;
  for (uint64_t i = 0; i < count; ++i) {
    Key key;
    if (!c->String(&key.name)) return Corrupt(fmt::format("name of key {} runs past the end of the file", i));
    if (key.name.empty() || key.name.size() > kMaxKeyName)
      return Corrupt(fmt::format("name of key {} has {} bytes; 1 to {} are allowed", i, key.name.size(), kMaxKeyName));
    if (!seen.insert(key.name).second) return Corrupt(fmt::format("key {} occurs twice", Quoted(key.name)));
    if (Status s = ReadValue(c, all, &key.value); !s.ok()) return s.error().At("key " + Quoted(key.name));
    file->keys.push_back(key);
  }
  return Ok();
}

// One row of the tensor table; `offset` is relative to the data section.
struct Row {
  Tensor tensor;
  uint64_t offset = 0, bytes = 0;
};

// Turns ggml's dimensions (innermost first) round and computes the byte size, refusing every product that leaves 63 bits.
Status ReadShape(ByteCursor* c, uint32_t n_dims, uint64_t* n_values, Tensor* t) {
  *n_values = 1;
  for (uint32_t d = 0; d < n_dims; ++d) {
    uint64_t dim = 0;
    if (!c->Read(&dim)) return Corrupt("shape cut short");
    if (dim == 0 || dim > static_cast<uint64_t>(INT64_MAX) / *n_values)
      return Corrupt(fmt::format("dimension {} is {}: not a possible shape", d, dim));
    *n_values *= dim;
    t->dims.insert(t->dims.begin(), static_cast<int64_t>(dim));
  }
  return Ok();
}

Status ReadRow(ByteCursor* c, Row* row) {
  Tensor& t = row->tensor;
  uint32_t n_dims = 0, type_id = 0;
  if (!c->Read(&n_dims)) return Corrupt("row of the tensor table cut short");
  if (n_dims > kMaxDims) return Corrupt(fmt::format("{} dimensions; at most {} are allowed", n_dims, kMaxDims));
  uint64_t n_values = 1;
  SLM_RETURN_IF_ERROR(ReadShape(c, n_dims, &n_values, &t));
  if (!c->Read(&type_id) || !c->Read(&row->offset)) return Corrupt("row of the tensor table cut short");
  const GgmlType* type = FindGgmlType(type_id);
  if (!type) return Corrupt(fmt::format("tensor type {} does not exist", type_id));
  t.dtype = type->dtype;
  if (type->dtype == DType::kCount) t.foreign_type = type->name;
  const uint64_t row_values = t.dims.empty() ? 1 : static_cast<uint64_t>(t.dims.back());
  if (row_values % type->block != 0)
    return Corrupt(fmt::format("rows of {} values are no multiple of {}'s block of {}", row_values, type->name, type->block));
  const uint64_t n_blocks = n_values / type->block;
  if (n_blocks > static_cast<uint64_t>(INT64_MAX) / type->block_bytes) return Corrupt("size leaves 63 bits");
  row->bytes = n_blocks * type->block_bytes;
  return Ok();
}

Status ReadTable(ByteCursor* c, uint64_t count, std::vector<Row>* rows) {
  if (count > c->left() / kMinTensorBytes) return Corrupt(fmt::format("{} tensors do not fit into the file", count));
  rows->reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view name;
    if (!c->String(&name)) return Corrupt(fmt::format("name of tensor {} runs past the end of the file", i));
    if (name.empty() || name.size() > kMaxTensorName)
      return Corrupt(fmt::format("name of tensor {} has {} bytes; 1 to {} are allowed", i, name.size(), kMaxTensorName));
    Row row;
    row.tensor.name = name;
    if (Status s = ReadRow(c, &row); !s.ok()) return s.error().At("tensor " + Quoted(name));
    rows->push_back(std::move(row));
  }
  std::unordered_set<std::string_view> seen;
  for (const Row& r : *rows)
    if (!seen.insert(r.tensor.name).second) return Corrupt(fmt::format("tensor {} occurs twice", Quoted(r.tensor.name)));
  return Ok();
}

Status ReadAlignment(File* file) {
  const Value* v = file->Find("general.alignment");
  if (!v) return Ok();
  if (v->type != ValueType::kU32) return Corrupt("general.alignment is not a 32-bit number");
  file->alignment = LoadAs<uint32_t>(v->bytes.data());
  if (!std::has_single_bit(file->alignment) || file->alignment < 8 || file->alignment > kMaxAlignment)
    return Corrupt(fmt::format("general.alignment is {}: it must be a power of two from 8 to {}", file->alignment, kMaxAlignment));
  return Ok();
}

Status CheckOverlap(const std::vector<Row>& rows) {
  std::vector<const Row*> order;
  order.reserve(rows.size());
  for (const Row& r : rows) order.push_back(&r);
  std::sort(order.begin(), order.end(), [](const Row* a, const Row* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes)
      return Corrupt(fmt::format("tensors {} and {} overlap", Quoted(order[i - 1]->tensor.name), Quoted(order[i]->tensor.name)));
  return Ok();
}

// Gives every tensor its bytes: the data section starts at the next multiple of the alignment.
Status PlaceTensors(std::span<const std::byte> all, size_t table_end, std::vector<Row>* rows, File* file) {
  const uint64_t start = (table_end + uint64_t{file->alignment} - 1) / file->alignment * file->alignment;
  for (const Row& r : *rows) {
    if (r.offset % file->alignment != 0)
      return Corrupt(
          fmt::format("tensor {}: offset {} is no multiple of the alignment {}", Quoted(r.tensor.name), r.offset, file->alignment));
    if (start > all.size() || r.offset > all.size() - start || r.bytes > all.size() - start - r.offset)
      return Corrupt(fmt::format("tensor {}: {} bytes at offset {} run past the end of the file ({} bytes)", Quoted(r.tensor.name), r.bytes,
                                 r.offset, all.size()));
  }
  SLM_RETURN_IF_ERROR(CheckOverlap(*rows));
  file->tensors.reserve(rows->size());
  for (Row& r : *rows) {
    r.tensor.data = all.subspan(static_cast<size_t>(start + r.offset), static_cast<size_t>(r.bytes));
    file->tensors.push_back(std::move(r.tensor));
  }
  return Ok();
}

Status ReadHeader(ByteCursor* c, uint32_t* version, uint64_t* n_tensors, uint64_t* n_keys) {
  uint32_t magic = 0;
  if (!c->Read(&magic) || magic != kMagic) return Corrupt("not a GGUF file: the first four bytes are not \"GGUF\"");
  if (!c->Read(version)) return Corrupt("header cut short");
  if (*version != 0 && (*version & 0xffffu) == 0)
    return Error(Code::kUnsupported, "big-endian GGUF file", "convert it to little-endian with gguf_convert_endian.py of llama.cpp");
  if (*version != 2 && *version != 3)
    return Error(Code::kUnsupported, fmt::format("GGUF version {}; versions 2 and 3 can be read", *version),
                 "convert the model again with a current converter");
  if (!c->Read(n_tensors) || !c->Read(n_keys)) return Corrupt("header cut short");
  return Ok();
}

}  // namespace

const Value* File::Find(std::string_view name) const {
  for (const Key& k : keys)
    if (k.name == name) return &k.value;
  return nullptr;
}

Result<File> Parse(std::span<const std::byte> bytes) {
  File file;
  ByteCursor c(bytes);
  uint64_t n_tensors = 0, n_keys = 0;
  SLM_RETURN_IF_ERROR(ReadHeader(&c, &file.version, &n_tensors, &n_keys));
  SLM_RETURN_IF_ERROR(ReadKeys(&c, bytes, n_keys, &file));
  SLM_RETURN_IF_ERROR(ReadAlignment(&file));
  std::vector<Row> rows;
  SLM_RETURN_IF_ERROR(ReadTable(&c, n_tensors, &rows));
  SLM_RETURN_IF_ERROR(PlaceTensors(bytes, c.offset(), &rows, &file));
  return file;
}

}  // namespace slm::model::gguf
