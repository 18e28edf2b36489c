// The door of `importer`: decoders in ONNX files as our graph, so that they run on our own back end.
//
// Every node of the file is interpreted: what depends on the call's lengths only (masks, positions, shapes) is computed by the reference
// implementations for a few calls and compared with what a causal decoder has; what depends on tokens becomes operators of our graph.
// A node that neither way understands is an error that names it. Weights stay the bytes of the file.
#pragma once
#include <memory>
#include <string>

#include "base/result.h"
#include "graph/graph.h"
#include "model/model.h"

namespace slm::importer {

struct Decoder;  // decoder.h

struct ImportedModel {
  std::shared_ptr<model::Model> model;  // config, the tensors that the graph reads, tokenizer; format "genai", "static" or "onnx"
  std::shared_ptr<const Decoder> decoder;
};

// A file whose name ends in ".onnx", or a folder with a genai_config.json, a manifest of static graphs or (onnx/)model.onnx and no
// safetensors weights.
bool IsOnnxModel(const std::string& path);

// The file with the graph: `path` itself, or the folder's. Errors: kNotFound, and what ReadGenAiConfig says; kUnsupported (several graphs).
Result<std::string> GraphFile(const std::string& path);

// Reads the decoder of a GenAI folder (one graph, or the stages of a pipeline that run for single tokens), the graph for one token of a
// folder of static graphs, that of a folder with config.json and model.onnx, or of a file that lies in one. Errors: what the
// readers say, kUnsupported (an operator, a graph that is no decoder of one token sequence: file and node named), kCorrupt.
// Thread-safe; the result may be shared.
Result<ImportedModel> Import(const std::string& path);

// The plain graph for `max_context` tokens, at most the model's own. Errors: kInvalidArgument, and what a table of rotations says that
// cannot be computed for so many positions.
Result<graph::Graph> BuildGraph(const ImportedModel& m, int max_context);

}  // namespace slm::importer
