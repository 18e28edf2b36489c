// slm export --to genai: a folder for ONNX Runtime GenAI.
#pragma once
#include <memory>
#include <string>

#include "model/model.h"
#include "verb.h"

namespace slm::cli {

struct GenAiRequest {
  std::string out;     // the folder; new or empty
  int context = 0;     // tokens; 0: the model's own
  bool exact = false;  // f32 activations in the products
};

// Errors: those of the exporter; kUnsupported for a vocabulary that has no tokenizer.json; kInvalidArgument, kIo.
Result<int> ExportGenAi(std::shared_ptr<const model::Model> model, const GenAiRequest& request, Io& io);

}  // namespace slm::cli
