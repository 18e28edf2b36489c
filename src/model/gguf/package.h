// slmkit's package: a GGUF file whose matrices lie in the execution layout (kernels/packed), so that a start maps them instead
// of packing them. Everything else is what the source had: its keys and vocabulary, or the small files of a Hugging Face folder.
//
// Why GGUF: one hardened reader for both, and other tools can list the file. Keys of our own:
//   slmkit.package.version u32 = 1, slmkit.package.layout u32 (kernels::kPackedLayoutId)
//   slmkit.packed.kind i64[n], .k i64[n], .segments i64[n]: a row per matrix; its bytes are tensor "packed.<row>" (I8)
//   slmkit.packed.segment.tensor str[s], .begin i64[s], .end i64[s]: the segments of all matrices one after another
//   slmkit.tensor.name str[t], .type i64[t] (ggml's number), .rows i64[t], .columns i64[t]: the tensors that are only there packed
//   slmkit.folder.<file name> str: small files of a Hugging Face folder
#pragma once
#include "base/result.h"
#include "model/gguf/reader.h"
#include "model/gguf/writer.h"
#include "model/hf/folder.h"
#include "model/model.h"

namespace slm::model::gguf {

inline constexpr uint32_t kPackageVersion = 1;

bool IsPackage(const File& file);
bool HoldsFolder(const File& file);  // made from a Hugging Face folder
hf::Folder FolderOf(const File& file);

// Fills m->packed and m->packed_layout, sets m->format, and puts the tensors that are only there packed back into `file`.
// Errors: kUnsupported (version), kCorrupt (tables that disagree; the key is named).
Status ReadPackage(File* file, Model* m);

// What a package of `source` holds: matrices, whose data follows in this order, then tensors that go as they are.
struct PackageContent {
  int64_t layout = 0;
  std::vector<PackedWeights> packed;  // `data` is not looked at
  std::vector<uint64_t> bytes;        // of each packed matrix
  std::vector<DType> types;           // of each packed matrix: what its rows are listed as where they came from a grouped tensor
  std::vector<const Tensor*> whole;
};
// Writes the keys of a package (the source's own keys or files, then the tables of `content`) and its tensor table.
// Errors: kUnsupported (`source` is a package or came from no file), kIo.
Status DeclarePackage(const Model& source, const PackageContent& content, FileWriter* out);

}  // namespace slm::model::gguf
