// See view.h.
#include "model/gguf/folder/view.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/float16.h"
#include "base/small_floats.h"
#include "model/gguf/folder/keys.h"
#include "model/gguf/load.h"
#include "model/gguf/reader.h"
#include "model/grouped/grouped.h"
#include "model/quoted.h"

namespace slm::model::gguf {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;

// A tensor with a role: where it is, and what becomes of it.
struct Use {
  const Tensor* tensor;
  FolderTensor to;
  DType dtype;    // in the GGUF file
  bool in_patch;  // its bytes differ from the folder's
};

Result<Use> UseOf(const Tensor& t, Role role, int layer, const ModelConfig& c) {
  Use u{&t, FolderTensorOf(role, layer, c), t.dtype, false};
  if (t.dims.size() == 1) u.dtype = DType::kF32;  // llama.cpp takes vectors in no other type
  if (t.grouped) u.dtype = SameBlockType(*t.grouped);
  if (u.dtype == DType::kF64) u.dtype = DType::kF32;
  if (u.dtype == DType::kCount)
    return Error(Code::kUnsupported,
                 "tensor " + Quoted(t.name) + " (" + std::string(TypeName(t)) + "): no block type of GGUF holds the same values",
                 "GGUF has f16 scales in groups of 32 in column order; start from the float model");
  u.in_patch = u.dtype != t.dtype || t.dims.size() == 1 || u.to.pair_heads > 0 || u.to.add != 0;
  return u;
}

// Every tensor that the model reads, in file order.
Result<std::vector<Use>> UsesOf(const Model& m) {
  constexpr size_t kRoles = static_cast<size_t>(Role::kCount);
  std::vector<Use> uses;
  std::unordered_set<const Tensor*> seen;
  std::vector<std::pair<int32_t, size_t>> order;
  for (size_t slot = 0; slot < m.role_index.size(); ++slot)
    if (m.role_index[slot] >= 0) order.emplace_back(m.role_index[slot], slot);
  std::sort(order.begin(), order.end());
  for (const auto& [index, slot] : order) {
    const Tensor& t = m.tensors[static_cast<size_t>(index)];
    if (!seen.insert(&t).second) continue;
    SLM_ASSIGN_OR_RETURN(Use u, UseOf(t, static_cast<Role>(slot % kRoles), static_cast<int>(slot / kRoles) - 1, m.config));
    uses.push_back(std::move(u));
  }
  return uses;
}

// One block of 32 codes, already less their zero points, in Q4_0, Q5_0, Q8_0 or MXFP4. Layouts: ggml-common.h.
void PutBlock(DType dtype, float scale, const int* q, std::byte* to) {
  if (dtype == DType::kMXFP4) {
    to[0] = static_cast<std::byte>(std::ilogb(scale) + 128);  // codes are twice the values, and the scale is half
    for (int i = 0; i < 16; ++i) to[1 + i] = static_cast<std::byte>(CodeOfTwiceE2M1(q[i]) | CodeOfTwiceE2M1(q[i + 16]) << 4);
    return;
  }
  const uint16_t half = FloatToHalf(scale);
  std::memcpy(to, &half, 2);
  if (dtype == DType::kQ8_0) {
    for (int i = 0; i < 32; ++i) to[2 + i] = static_cast<std::byte>(q[i]);
    return;
  }
  const int zero = dtype == DType::kQ4_0 ? 8 : 16;
  std::byte* nibbles = to + (dtype == DType::kQ4_0 ? 2 : 6);
  uint32_t fifth = 0;
  for (int i = 0; i < 16; ++i) {
    const unsigned low = static_cast<unsigned>(q[i] + zero), high = static_cast<unsigned>(q[i + 16] + zero);
    nibbles[i] = static_cast<std::byte>((low & 15) | (high & 15) << 4);
    fifth |= (low >> 4 & 1) << i | (high >> 4 & 1) << (i + 16);
  }
  if (dtype == DType::kQ5_0) std::memcpy(to + 2, &fifth, 4);
}

// Writes the tensors of a patch one after another.
class PatchStream {
 public:
  explicit PatchStream(FileWriter& out) : out_(out) {}

  Status Write(const Use& u) {
    if (u.tensor->dims.size() == 1) return Vector(u);
    const int64_t rows = u.tensor->dims[0];
    const auto row_bytes = static_cast<size_t>(RowBytes(u.dtype, static_cast<uint64_t>(u.tensor->dims[1])));
    // Whole heads, so that rows which change places are near each other.
    const int64_t head = u.to.pair_heads > 0 ? rows / u.to.pair_heads : 1;
    const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kPartBytes / row_bytes) / head) * head;
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t n = std::min(step, rows - row);
      stored_.resize(static_cast<size_t>(n) * row_bytes);
      Rows(u, row, n);
      part_.resize(stored_.size());
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(part_.data() + static_cast<size_t>(i) * row_bytes,
                    stored_.data() + static_cast<size_t>(FolderRow(u.to, rows, row + i) - row) * row_bytes, row_bytes);
      SLM_RETURN_IF_ERROR(out_.Data(part_));
    }
    return Ok();
  }

 private:
  Status Vector(const Use& u) {
    const std::vector<float> from = DequantizeAll(*u.tensor);
    std::vector<float> to(from.size());
    const auto n = static_cast<int64_t>(from.size());
    for (int64_t i = 0; i < n; ++i) to[static_cast<size_t>(i)] = from[static_cast<size_t>(FolderRow(u.to, n, i))] + u.to.add;
    return out_.Data(std::as_bytes(std::span(to)));
  }

  // Rows [row, row + n) of the folder's tensor in the file's type.
  void Rows(const Use& u, int64_t row, int64_t n) {
    const Tensor& t = *u.tensor;
    const int64_t k = t.dims[1];
    if (t.grouped) return GroupedPart(u, row, n);
    if (u.dtype == t.dtype) {
      std::memcpy(stored_.data(), t.data.data() + static_cast<size_t>(row) * (stored_.size() / static_cast<size_t>(n)), stored_.size());
      return;
    }
    values_.resize(static_cast<size_t>(n * k));  // F64
    ReadRows(t, row, row + n, values_.data());
    std::memcpy(stored_.data(), values_.data(), stored_.size());
  }

  void GroupedPart(const Use& u, int64_t row, int64_t n) {
    const GroupedMatrix& m = *u.tensor->grouped;
    codes_.resize(static_cast<size_t>(n * m.k));
    zeros_.resize(static_cast<size_t>(n * m.n_groups));
    scales_.resize(zeros_.size());
    ReadGroupedCodes(m, row, row + n, {codes_.data(), zeros_.data(), scales_.data()});
    const size_t block_bytes = Info(u.dtype).block_bytes;
    for (int64_t b = 0; b < n * m.k / 32; ++b) {
      const auto g = static_cast<size_t>(b / (m.k / 32) * m.n_groups + b % (m.k / 32) * 32 / m.group);
      int q[32];
      for (int i = 0; i < 32; ++i) q[i] = codes_[static_cast<size_t>(b * 32 + i)] - zeros_[g];
      PutBlock(u.dtype, scales_[g], q, stored_.data() + static_cast<size_t>(b) * block_bytes);
    }
  }

  FileWriter& out_;
  std::vector<std::byte> stored_, part_;  // rows in the folder's order, in the file's
  std::vector<float> values_, scales_;
  std::vector<uint8_t> codes_;
  std::vector<int16_t> zeros_;
};

}  // namespace

Status WriteFolderPatch(const Model& m, const TokenizerSource& vocabulary, const ByteSink& sink) {
  if (m.format != "hf") return Error(Code::kUnsupported, m.path + ": no model folder", "name a Hugging Face folder");
  SLM_ASSIGN_OR_RETURN(const std::vector<Use> uses, UsesOf(m));
  const std::vector<ComputedTensor> computed = ComputedTensors(m.config);
  FileWriter out;
  SLM_RETURN_IF_ERROR(DeclareFolder(m, vocabulary, &out));
  for (const ComputedTensor& t : computed) out.Tensor(t.name, DType::kF32, {static_cast<int64_t>(t.values.size())});
  for (const Use& u : uses)
    if (u.in_patch) out.Tensor(u.to.name, u.dtype, u.tensor->dims);
  SLM_RETURN_IF_ERROR(out.Begin(sink));
  for (const ComputedTensor& t : computed) SLM_RETURN_IF_ERROR(out.Data(std::as_bytes(std::span(t.values))));
  PatchStream stream(out);
  for (const Use& u : uses) {
    if (!u.in_patch) continue;
    SLM_RETURN_IF_ERROR(stream.Write(u));
    m.DropPages(*u.tensor);
  }
  return out.Finish();
}

Result<std::shared_ptr<Model>> ViewFolder(std::shared_ptr<Model> folder, MappedFile patch) {
  SLM_ASSIGN_OR_RETURN(const std::vector<Use> uses, UsesOf(*folder));
  SLM_ASSIGN_OR_RETURN(File file, Parse(patch.bytes()));
  for (const Use& u : uses) {
    if (u.in_patch) continue;
    Tensor t = *u.tensor;
    t.name = u.to.name;
    file.tensors.push_back(std::move(t));
  }
  SLM_ASSIGN_OR_RETURN(std::shared_ptr<Model> view, MakeModel(std::move(file), folder->path, LoadWhat::kAll));
  view->file_bytes = folder->file_bytes;
  view->files.push_back(std::move(patch));
  for (MappedFile& f : folder->files) view->files.push_back(std::move(f));
  return view;
}

Status WriteView(const Model& view, const ByteSink& sink) {
  FileWriter out;
  SLM_RETURN_IF_ERROR(CopyKeys(view, {}, &out));
  for (const Tensor& t : view.tensors) out.Tensor(t.name, t.dtype, t.dims);
  SLM_RETURN_IF_ERROR(out.Begin(sink));
  for (const Tensor& t : view.tensors)
    for (size_t at = 0; at < t.data.size(); at += kPartBytes) {
      const auto part = t.data.subspan(at, std::min(kPartBytes, t.data.size() - at));
      SLM_RETURN_IF_ERROR(out.Data(part));
      view.DropPages(part);
    }
  return out.Finish();
}

}  // namespace slm::model::gguf
