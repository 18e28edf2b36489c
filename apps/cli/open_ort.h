// Folders of ONNX graphs opened with ONNX Runtime as the back end.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/ort/ort.h"
#include "base/result.h"
#include "open_model.h"

namespace slm::cli {

// Is ONNX Runtime the back end for the model at `path`? When it is named; for static graphs; by itself, when an ONNX model is wanted on
// another device than the CPU or an option of the runtime is given. Own kernels run everything else.
bool TakesOrt(const OpenOptions& options, const std::string& path);

// As OpenModel, for a folder with a genai_config.json or of static graphs. Why something does not run where it was asked to goes to stderr.
Result<OpenedModel> OpenWithOrt(const Io& io, const std::string& path, const OpenOptions& options);

// The rest is shared with the opening of static graphs (open_static.h).

// What a folder's description says of its model, for the tokenizer and the loop above the back end.
struct TextFacts {
  int vocab_size = 0, d_model = 0, n_layers = 0, context = 0;
  std::vector<int32_t> bos_ids, eos_ids;
};
// Model and tokenizer of a folder, no back end yet.
Result<OpenedModel> OpenText(const std::string& path, const TextFacts& facts);

// Options that ONNX Runtime has no say in. Error: kInvalidArgument.
Status CheckOrtFlags(const OpenOptions& options);
// `own`: tokens that the model was made for.
Result<backend::ort::OrtOptions> OrtOptionsOf(const OpenOptions& options, int own);

}  // namespace slm::cli
