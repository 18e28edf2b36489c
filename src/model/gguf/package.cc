// See package.h.
#include "model/gguf/package.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "model/gguf/ggml_types.h"
#include "model/hf/packed/writing.h"
#include "model/quoted.h"

namespace slm::model::gguf {
namespace {

constexpr std::string_view kFolderKeys = "slmkit.folder.";
constexpr int64_t kMostValues = int64_t{1} << 40;  // of a matrix: far above any model, and its bytes in any layout fit 64 bits

Error Corrupt(std::string what) { return Error(Code::kCorrupt, std::move(what), "export the package again"); }

Result<const Key*> Find(const File& file, const std::string& name) {
  for (const Key& k : file.keys)
    if (k.name == name) return &k;
  return Corrupt("key " + Quoted(name) + " is missing");
}
Result<std::vector<int64_t>> Integers(const File& file, const std::string& name) {
  SLM_ASSIGN_OR_RETURN(const Key* key, Find(file, name));
  return IntegerItems(*key);
}
Result<std::vector<std::string_view>> Texts(const File& file, const std::string& name) {
  SLM_ASSIGN_OR_RETURN(const Key* key, Find(file, name));
  return StringItems(*key);
}

std::string PackedName(size_t i) { return fmt::format("packed.{}", i); }

// The tensors that are only there packed: names, types and shapes as the source had them.
Result<std::vector<Tensor>> ReadShapes(const File& file) {
  SLM_ASSIGN_OR_RETURN(const auto names, Texts(file, "slmkit.tensor.name"));
  SLM_ASSIGN_OR_RETURN(const auto types, Integers(file, "slmkit.tensor.type"));
  SLM_ASSIGN_OR_RETURN(const auto rows, Integers(file, "slmkit.tensor.rows"));
  SLM_ASSIGN_OR_RETURN(const auto columns, Integers(file, "slmkit.tensor.columns"));
  if (types.size() != names.size() || rows.size() != names.size() || columns.size() != names.size())
    return Corrupt("the slmkit.tensor lists differ in length");
  std::vector<Tensor> out;
  for (size_t i = 0; i < names.size(); ++i) {
    const GgmlType* type = types[i] < 0 || types[i] > UINT32_MAX ? nullptr : FindGgmlType(static_cast<uint32_t>(types[i]));
    if (!type || type->dtype == DType::kCount) return Corrupt(fmt::format("tensor {}: type {}", Quoted(names[i]), types[i]));
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (rows[i] < 1 || columns[i] < 1 || rows[i] > kMost || columns[i] > kMost || columns[i] % type->block != 0)
      return Corrupt(fmt::format("tensor {}: shape {} x {}", Quoted(names[i]), rows[i], columns[i]));
    Tensor t;
    t.name = std::string(names[i]);
    t.dtype = type->dtype;
    t.dims = {rows[i], columns[i]};
    out.push_back(std::move(t));
  }
  return out;
}

// Takes the tensors "packed.<i>" out of `tensors` as the data of `packed`.
Status TakeData(std::vector<PackedWeights>* packed, std::vector<Tensor>* tensors) {
  std::unordered_map<std::string, size_t> index;
  for (size_t i = 0; i < packed->size(); ++i) index.emplace(PackedName(i), i);
  size_t found = 0;
  std::vector<Tensor> rest;
  for (Tensor& t : *tensors) {
    const auto it = index.find(t.name);
    if (it == index.end()) {
      rest.push_back(std::move(t));
      continue;
    }
    if (t.dtype != DType::kI8) return Corrupt("tensor " + Quoted(t.name) + " is not I8");
    (*packed)[it->second].data = t.data;
    ++found;
  }
  if (found != packed->size()) return Corrupt(fmt::format("{} packed matrices are declared, {} are there", packed->size(), found));
  *tensors = std::move(rest);
  return Ok();
}

// Every segment names rows of a tensor that is only there packed, and every such tensor's bytes are counted.
Status CheckSegments(const std::vector<PackedWeights>& packed, std::vector<Tensor>* shapes) {
  std::unordered_map<std::string_view, Tensor*> by_name;
  for (Tensor& t : *shapes)
    if (!by_name.emplace(t.name, &t).second) return Corrupt("tensor " + Quoted(t.name) + " is listed twice");
  std::unordered_map<std::string_view, int64_t> covered;
  for (const PackedWeights& w : packed) {
    int64_t rows = 0;
    for (const PackedSegment& s : w.segments) {
      const auto it = by_name.find(s.tensor);
      if (it == by_name.end()) return Corrupt("a packed matrix has rows of " + Quoted(s.tensor) + ", which is not listed");
      const Tensor& t = *it->second;
      if (s.row_begin < 0 || s.row_end <= s.row_begin || s.row_end > t.dims[0] || t.dims[1] != w.k)
        return Corrupt(fmt::format("rows {} to {} of width {} are not in tensor {}", s.row_begin, s.row_end, w.k, Quoted(s.tensor)));
      rows += s.row_end - s.row_begin;
      if (rows > kMostValues / w.k) return Corrupt(fmt::format("{} rows of width {} in one matrix", rows, w.k));
    }
    for (const PackedSegment& s : w.segments) {
      covered[s.tensor] += s.row_end - s.row_begin;
      by_name[s.tensor]->packed_bytes += static_cast<uint64_t>(static_cast<double>(w.data.size()) *
                                                               static_cast<double>(s.row_end - s.row_begin) / static_cast<double>(rows));
    }
  }
  for (const Tensor& t : *shapes) {
    if (t.packed_bytes == 0) return Corrupt("the packed rows of tensor " + Quoted(t.name) + " have no bytes");
    if (covered[t.name] != t.dims[0])
      return Corrupt(fmt::format("{} of {} rows of tensor {} are packed", covered[t.name], t.dims[0], Quoted(t.name)));
  }
  return Ok();
}

Result<std::vector<PackedWeights>> ReadMatrices(const File& file) {
  SLM_ASSIGN_OR_RETURN(const auto kinds, Integers(file, "slmkit.packed.kind"));
  SLM_ASSIGN_OR_RETURN(const auto widths, Integers(file, "slmkit.packed.k"));
  SLM_ASSIGN_OR_RETURN(const auto counts, Integers(file, "slmkit.packed.segments"));
  SLM_ASSIGN_OR_RETURN(const auto names, Texts(file, "slmkit.packed.segment.tensor"));
  SLM_ASSIGN_OR_RETURN(const auto begins, Integers(file, "slmkit.packed.segment.begin"));
  SLM_ASSIGN_OR_RETURN(const auto ends, Integers(file, "slmkit.packed.segment.end"));
  if (widths.size() != kinds.size() || counts.size() != kinds.size() || begins.size() != names.size() || ends.size() != names.size())
    return Corrupt("the slmkit.packed lists differ in length");
  std::vector<PackedWeights> out;
  size_t at = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (counts[i] < 1 || static_cast<uint64_t>(counts[i]) > names.size() - at)
      return Corrupt(fmt::format("packed matrix {} has {} segments", i, counts[i]));
    PackedWeights w{.kind = kinds[i], .k = widths[i], .segments = {}, .data = {}};
    for (int64_t s = 0; s < counts[i]; ++s, ++at) w.segments.push_back({std::string(names[at]), begins[at], ends[at]});
    out.push_back(std::move(w));
  }
  if (at != names.size()) return Corrupt("the slmkit.packed.segment lists have more rows than the matrices need");
  return out;
}

Status CopyFolder(const Model& m, FileWriter* out) {
  SLM_ASSIGN_OR_RETURN(const auto files, hf::SmallFiles(m.path));
  out->Text("general.architecture", "slmkit-folder");
  for (const auto& [name, text] : files) out->Text(std::string(kFolderKeys) + name, text);
  return Ok();
}

}  // namespace

bool IsPackage(const File& file) { return file.Find("slmkit.package.version") != nullptr; }

bool HoldsFolder(const File& file) { return file.Find(std::string(kFolderKeys) + "config.json") != nullptr; }

hf::Folder FolderOf(const File& file) {
  std::map<std::string, std::string, std::less<>> texts;
  for (const Key& k : file.keys)
    if (k.name.starts_with(kFolderKeys) && k.value.type == ValueType::kString)
      texts.emplace(k.name.substr(kFolderKeys.size()),
                    std::string(reinterpret_cast<const char*>(k.value.bytes.data()), k.value.bytes.size()));
  return hf::Folder::OfTexts(std::move(texts));
}

Status ReadPackage(File* file, Model* m) {
  SLM_ASSIGN_OR_RETURN(const auto version, GetInteger(*file, "slmkit.package.version"));
  if (version != kPackageVersion)
    return Error(Code::kUnsupported, fmt::format("package version {}; this build reads {}", version.value_or(0), kPackageVersion),
                 "export the package again with this build");
  SLM_ASSIGN_OR_RETURN(const auto layout, GetInteger(*file, "slmkit.package.layout"));
  SLM_ASSIGN_OR_RETURN(m->packed, ReadMatrices(*file));
  SLM_ASSIGN_OR_RETURN(std::vector<Tensor> shapes, ReadShapes(*file));
  SLM_RETURN_IF_ERROR(TakeData(&m->packed, &file->tensors));
  SLM_RETURN_IF_ERROR(CheckSegments(m->packed, &shapes));
  std::set<std::string_view> names;
  for (const Tensor& t : file->tensors) names.insert(t.name);
  for (const Tensor& t : shapes)
    if (names.contains(t.name)) return Corrupt("tensor " + Quoted(t.name) + " is there packed and whole");
  for (Tensor& t : shapes) file->tensors.push_back(std::move(t));
  m->packed_layout = layout.value_or(0);
  m->format = "package";
  return Ok();
}

Status DeclarePackage(const Model& m, const PackageContent& content, FileWriter* out) {
  if (m.format == "gguf") SLM_RETURN_IF_ERROR(CopyKeys(m, {}, out));
  else if (m.format == "hf") SLM_RETURN_IF_ERROR(CopyFolder(m, out));
  else
    return Error(Code::kUnsupported, m.path + ": a " + m.format + " cannot be the source of a package",
                 "name a GGUF file or a model folder");
  out->U32("slmkit.package.version", kPackageVersion);
  out->U32("slmkit.package.layout", static_cast<uint32_t>(content.layout));
  std::vector<int64_t> kinds, widths, counts, begins, ends, types, rows, columns;
  std::vector<std::string> segment_names, names;
  std::set<std::string> seen;
  for (size_t i = 0; i < content.packed.size(); ++i) {
    const PackedWeights& w = content.packed[i];
    kinds.push_back(w.kind);
    widths.push_back(w.k);
    counts.push_back(static_cast<int64_t>(w.segments.size()));
    for (const PackedSegment& s : w.segments) {
      segment_names.push_back(s.tensor);
      begins.push_back(s.row_begin);
      ends.push_back(s.row_end);
      if (!seen.insert(s.tensor).second) continue;
      const Tensor* t = m.FindName(s.tensor);
      names.push_back(s.tensor);
      types.push_back(GgmlTypeId(t->grouped ? content.types[i] : t->dtype));
      rows.push_back(t->dims[0]);
      columns.push_back(t->dims[1]);
    }
  }
  out->Integers("slmkit.packed.kind", kinds);
  out->Integers("slmkit.packed.k", widths);
  out->Integers("slmkit.packed.segments", counts);
  out->Texts("slmkit.packed.segment.tensor", segment_names);
  out->Integers("slmkit.packed.segment.begin", begins);
  out->Integers("slmkit.packed.segment.end", ends);
  out->Texts("slmkit.tensor.name", names);
  out->Integers("slmkit.tensor.type", types);
  out->Integers("slmkit.tensor.rows", rows);
  out->Integers("slmkit.tensor.columns", columns);
  for (size_t i = 0; i < content.bytes.size(); ++i)
    out->Tensor(PackedName(i), GgmlTypeId(DType::kI8), {static_cast<int64_t>(content.bytes[i])}, content.bytes[i]);
  for (const Tensor* t : content.whole) out->Tensor(t->name, GgmlTypeId(t->dtype), t->dims, t->data.size());
  return Ok();
}

}  // namespace slm::model::gguf
