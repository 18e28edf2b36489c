// See writer.h.
#include "model/gguf/writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/arena.h"
#include "base/check.h"
#include "model/gguf/ggml_types.h"

namespace slm::model::gguf {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
void Append(Bytes* to, T v) {
  const auto* p = reinterpret_cast<const std::byte*>(&v);
  to->insert(to->end(), p, p + sizeof v);
}

void AppendText(Bytes* to, std::string_view s) {
  Append<uint64_t>(to, s.size());
  const auto b = std::as_bytes(std::span(s.data(), s.size()));
  to->insert(to->end(), b.begin(), b.end());
}

}  // namespace

FileWriter::FileWriter(uint32_t alignment) : alignment_(alignment) {
  SLM_ASSERT(alignment >= 8 && (alignment & (alignment - 1)) == 0);
  if (alignment != 32) U32("general.alignment", alignment);
}

void FileWriter::Key(std::string_view name, ValueType type) {
  ++n_keys_;
  AppendText(&keys_, name);
  Append(&keys_, static_cast<uint32_t>(type));
}

void FileWriter::Text(std::string_view name, std::string_view value) {
  Key(name, ValueType::kString);
  AppendText(&keys_, value);
}

void FileWriter::U32(std::string_view name, uint32_t value) {
  Key(name, ValueType::kU32);
  Append(&keys_, value);
}

void FileWriter::F32(std::string_view name, float value) {
  Key(name, ValueType::kF32);
  Append(&keys_, value);
}

void FileWriter::Bool(std::string_view name, bool value) {
  Key(name, ValueType::kBool);
  Append<uint8_t>(&keys_, value ? 1 : 0);
}

void FileWriter::Array(std::string_view name, ValueType item, uint64_t count) {
  Key(name, ValueType::kArray);
  Append(&keys_, static_cast<uint32_t>(item));
  Append(&keys_, count);
}

void FileWriter::Texts(std::string_view name, const std::vector<std::string>& values) {
  Texts(name, std::vector<std::string_view>(values.begin(), values.end()));
}

void FileWriter::Texts(std::string_view name, const std::vector<std::string_view>& values) {
  Array(name, ValueType::kString, values.size());
  for (const std::string_view s : values) AppendText(&keys_, s);
}

void FileWriter::Bools(std::string_view name, const std::vector<uint8_t>& values) {
  Array(name, ValueType::kBool, values.size());
  for (const uint8_t v : values) Append<uint8_t>(&keys_, v ? 1 : 0);
}

void FileWriter::Floats(std::string_view name, const std::vector<float>& values) {
  Array(name, ValueType::kF32, values.size());
  for (const float v : values) Append(&keys_, v);
}

void FileWriter::Int32s(std::string_view name, const std::vector<int32_t>& values) {
  Array(name, ValueType::kI32, values.size());
  for (const int32_t v : values) Append(&keys_, v);
}

void FileWriter::Integers(std::string_view name, const std::vector<int64_t>& values) {
  Array(name, ValueType::kI64, values.size());
  for (const int64_t v : values) Append(&keys_, v);
}

void FileWriter::Copy(const gguf::Key& key) {
  Key(key.name, key.value.type);
  if (key.value.type == ValueType::kArray) {
    Append(&keys_, static_cast<uint32_t>(key.value.item));
    Append<uint64_t>(&keys_, key.value.count);
  } else if (key.value.type == ValueType::kString) {
    Append<uint64_t>(&keys_, key.value.bytes.size());
  }
  keys_.insert(keys_.end(), key.value.bytes.begin(), key.value.bytes.end());
}

void FileWriter::Tensor(std::string_view name, uint32_t ggml_type, const std::vector<int64_t>& dims, uint64_t bytes) {
  ++n_tensors_;
  AppendText(&table_, name);
  Append(&table_, static_cast<uint32_t>(dims.size()));
  for (auto d = dims.rbegin(); d != dims.rend(); ++d) Append<uint64_t>(&table_, static_cast<uint64_t>(*d));
  Append(&table_, ggml_type);
  Append(&table_, next_offset_);
  sizes_.push_back(bytes);
  next_offset_ = AlignUp(next_offset_ + bytes, alignment_);
}

void FileWriter::Tensor(std::string_view name, DType dtype, const std::vector<int64_t>& dims) {
  uint64_t n = 1;
  for (const int64_t d : dims) n *= static_cast<uint64_t>(d);
  Tensor(name, GgmlTypeId(dtype), dims, RowBytes(dtype, n));
}

Status FileWriter::Put(std::span<const std::byte> bytes) {
  SLM_RETURN_IF_ERROR(sink_(bytes));
  written_ += bytes.size();
  return Ok();
}

Status FileWriter::Pad() {
  const Bytes zeros(static_cast<size_t>(AlignUp(written_, alignment_) - written_));
  return zeros.empty() ? Ok() : Put(zeros);
}

Status FileWriter::Begin(ByteSink sink) {
  sink_ = std::move(sink);
  Bytes header;
  Append<uint32_t>(&header, 0x46554747);  // "GGUF"
  Append<uint32_t>(&header, 3);
  Append(&header, n_tensors_);
  Append(&header, n_keys_);
  for (const Bytes* part : {&header, &keys_, &table_}) SLM_RETURN_IF_ERROR(Put(*part));
  return Pad();
}

Status FileWriter::Data(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (tensor_ >= sizes_.size()) return Error(Code::kInternal, "more data than the tensor table announced");
    const size_t n = static_cast<size_t>(std::min<uint64_t>(bytes.size(), sizes_[tensor_] - filled_));
    SLM_RETURN_IF_ERROR(Put(bytes.first(n)));
    bytes = bytes.subspan(n);
    filled_ += n;
    if (filled_ < sizes_[tensor_]) continue;
    ++tensor_;
    filled_ = 0;
    SLM_RETURN_IF_ERROR(Pad());
  }
  return Ok();
}

uint64_t FileWriter::Skip() {
  SLM_ASSERT(tensor_ < sizes_.size() && filled_ == 0);
  const uint64_t end = AlignUp(written_ + sizes_[tensor_++], alignment_), bytes = end - written_;
  written_ = end;
  return bytes;
}

Status FileWriter::Finish() {
  if (tensor_ == sizes_.size()) return Ok();
  return Error(Code::kInternal, fmt::format("data of {} of {} tensors was written", tensor_, sizes_.size()));
}

Status CopyKeys(const Model& m, const std::vector<std::string_view>& except, FileWriter* out) {
  if (m.files.empty()) return Error(Code::kUnsupported, m.path + ": no file to take the keys from", "open the model from its file");
  SLM_ASSIGN_OR_RETURN(const File file, Parse(m.files.front().bytes()));
  for (const gguf::Key& k : file.keys) {
    const bool of_container = k.name == "general.alignment" || k.name.starts_with("split.") || k.name.starts_with("slmkit.");
    if (!of_container && std::find(except.begin(), except.end(), k.name) == except.end()) out->Copy(k);
  }
  return Ok();
}

Result<TextPlace> FindText(std::span<const std::byte> bytes, std::string_view key) {
  SLM_ASSIGN_OR_RETURN(const File file, Parse(bytes));
  const Value* v = file.Find(key);
  if (!v || v->type != ValueType::kString) return Error(Code::kNotFound, fmt::format("no text under the key {}", key));
  return TextPlace{static_cast<uint64_t>(v->bytes.data() - bytes.data()), v->bytes.size()};
}

}  // namespace slm::model::gguf
