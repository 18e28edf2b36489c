// See reader.h.
#include "model/safetensors/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/byte_cursor.h"
#include "model/quoted.h"
#include "model/safetensors/header.h"

namespace slm::model::safetensors {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit

struct TypeName {
  std::string_view name;
  DType dtype;  // kCount: foreign
  uint32_t bytes;
};
constexpr TypeName kTypes[] = {
    {"F32", DType::kF32, 4},    {"F16", DType::kF16, 2},       {"BF16", DType::kBF16, 2},     {"F64", DType::kF64, 8},
    {"I8", DType::kI8, 1},      {"I16", DType::kI16, 2},       {"I32", DType::kI32, 4},       {"I64", DType::kI64, 8},
    {"U8", DType::kCount, 1},   {"U16", DType::kCount, 2},     {"U32", DType::kCount, 4},     {"U64", DType::kCount, 8},
    {"BOOL", DType::kCount, 1}, {"F8_E4M3", DType::kCount, 1}, {"F8_E5M2", DType::kCount, 1}, {"F8_E8M0", DType::kCount, 1},
    {"C64", DType::kCount, 8},
};

Error Corrupt(std::string what) { return Error(Code::kCorrupt, std::move(what), "the file is damaged or cut short: fetch it again"); }

// Fills shape and type of a tensor; `size` is the bytes they imply.
Status ReadRow(const HeaderRow& row, Tensor* t, uint64_t* size) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeName& n) { return n.name == row.dtype; });
  if (type == std::end(kTypes)) return Corrupt("unknown dtype " + Quoted(row.dtype));
  t->dtype = type->dtype;
  if (type->dtype == DType::kCount) t->foreign_type = type->name;
  *size = type->bytes;
  for (const uint64_t dim : row.shape) {
    if (dim != 0 && *size > static_cast<uint64_t>(INT64_MAX) / dim) return Corrupt("the shape's size leaves 63 bits");
    if (dim > static_cast<uint64_t>(INT64_MAX)) return Corrupt("a dimension leaves 63 bits");
    *size *= dim;
    t->dims.push_back(static_cast<int64_t>(dim));
  }
  return Ok();
}

// The rows, sorted by offset, must follow each other from 0 to the end of the data.
Status CheckCover(std::vector<const HeaderRow*> order, uint64_t data_bytes) {
  std::sort(order.begin(), order.end(), [](const HeaderRow* a, const HeaderRow* b) { return a->offsets < b->offsets; });
  uint64_t at = 0;
  for (const HeaderRow* row : order) {
    if (row->offsets[0] != at)
      return Corrupt(fmt::format("tensor {} starts at offset {}, the one before it ends at {}", Quoted(row->name), row->offsets[0], at));
    at = row->offsets[1];
  }
  if (at != data_bytes) return Corrupt(fmt::format("the tensors cover {} bytes, the file holds {}", at, data_bytes));
  return Ok();
}

}  // namespace

Result<File> Parse(std::span<const std::byte> bytes) {
  ByteCursor c(bytes);
  uint64_t header_bytes = 0;
  if (!c.Read(&header_bytes)) return Corrupt("not a safetensors file: shorter than its length field");
  if (header_bytes > kMaxHeader || header_bytes > c.left())
    return Corrupt(fmt::format("a header of {} bytes in a file of {}", header_bytes, bytes.size()));
  std::span<const std::byte> text;
  c.Take(header_bytes, &text);
  if (text.empty() || text[0] != std::byte{'{'}) return Corrupt("not a safetensors file: the header does not start with {");
  SLM_ASSIGN_OR_RETURN(Header header, ParseHeader({reinterpret_cast<const char*>(text.data()), text.size()}));
  const std::span<const std::byte> data = bytes.subspan(c.offset());
  File file;
  file.metadata = std::move(header.metadata);
  std::vector<const HeaderRow*> order;
  for (const HeaderRow& row : header.rows) {
    Tensor t;
    t.name = row.name;
    uint64_t size = 0;
    if (Status s = ReadRow(row, &t, &size); !s.ok()) return s.error().At("tensor " + Quoted(row.name));
    const uint64_t begin = row.offsets[0], end = row.offsets[1];
    if (begin > end || end > data.size())
      return Corrupt(fmt::format("tensor {}: bytes {} to {} of {} cannot be", Quoted(row.name), begin, end, data.size()));
    if (end - begin != size)
      return Corrupt(fmt::format("tensor {}: {} bytes for a shape that needs {}", Quoted(row.name), end - begin, size));
    t.data = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
    file.tensors.push_back(std::move(t));
    order.push_back(&row);
  }
  SLM_RETURN_IF_ERROR(CheckCover(std::move(order), data.size()));
  return file;
}

}  // namespace slm::model::safetensors
