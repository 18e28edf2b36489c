// slm export --to genai: a folder for ONNX Runtime GenAI.
#pragma once
#include <memory>
#include <string>

#include "exporter/exporter.h"
#include "model/model.h"
#include "verb.h"

namespace slm::cli {

struct GenAiRequest {
  std::string out;     // the folder; new or empty
  int context = 0;     // tokens; 0: the model's own
  bool exact = false;  // f32 activations in the products
};

// The graph of a folder with `context` tokens. Errors: those of the graph's passes and the exporter.
Result<exporter::GenAiModel> GenAiModelOf(std::shared_ptr<const model::Model> model, int context, exporter::Accuracy accuracy);

// Errors: those of the exporter; kUnsupported for a vocabulary that has no tokenizer.json; kInvalidArgument, kIo.
Result<int> ExportGenAi(std::shared_ptr<const model::Model> model, const GenAiRequest& request, Io& io);

}  // namespace slm::cli
