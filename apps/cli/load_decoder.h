// A model file of any kind that can be run, and its graph: a GGUF file, a Hugging Face folder, a package, or a decoder in an ONNX file.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "importer/importer.h"
#include "model/model.h"

namespace slm::cli {

struct LoadedDecoder {
  std::shared_ptr<model::Model> model;
  std::shared_ptr<const importer::Decoder> onnx;  // null: the model's configuration says what the graph is
  std::vector<int32_t> begin;                     // tokens that every sequence begins with; empty: the tokenizer's own
};

// Errors: what LoadModel and Import say.
Result<LoadedDecoder> LoadDecoder(const std::string& path);

// kUnsupported for a package: its matrices are packed for the kernels, for good.
Status RefusePackage(const model::Model& m);

// The plain graph for `context` tokens. Errors: what BuildDecoder and BuildGraph say.
Result<graph::Graph> GraphOf(const LoadedDecoder& d, int context);

}  // namespace slm::cli
