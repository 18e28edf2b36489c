// Keys, names, the order of rows and norms that a Hugging Face model has in a GGUF file: what converters do, llama.cpp's
// convert_hf_to_gguf.py first among them, so that its readers and ours take the file for the same model. Internal to gguf/.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "model/gguf/writer.h"
#include "model/model.h"

namespace slm::model::gguf {

// Writes the keys of `m`, which came from a folder, and of its vocabulary (kind "gguf"; the chat templates are m's own). No
// general.file_type. Errors: kUnsupported (a setting that no key can say; it is named).
Status DeclareFolder(const Model& m, const TokenizerSource& vocabulary, FileWriter* out);

// What becomes of the tensor of a role.
struct FolderTensor {
  std::string name;    // in the GGUF file
  int pair_heads = 0;  // > 0: rows of q or k in so many heads, from halves (i, i + D/2) to neighbours (2i, 2i + 1)
  float add = 0;       // to every value: norms that are stored as w - 1
};
FolderTensor FolderTensorOf(Role role, int layer, const ModelConfig& c);
// The row of the folder's tensor (of n_rows) that row `row` of the file's is.
int64_t FolderRow(const FolderTensor& t, int64_t n_rows, int64_t row);

// Tensors that a folder has as numbers of its config: rope factors, f32.
struct ComputedTensor {
  std::string name;
  std::vector<float> values;
};
std::vector<ComputedTensor> ComputedTensors(const ModelConfig& c);

}  // namespace slm::model::gguf
