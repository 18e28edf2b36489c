// The stages of a decoder pipeline of ONNX Runtime GenAI as one graph: what a stage makes under a name is what later ones take by it.
// Source: onnxruntime-genai's src/models/decoder_only_pipeline.cpp.
#pragma once
#include <memory>
#include <vector>

#include "base/result.h"
#include "importer/axes.h"
#include "onnx/genai/genai.h"
#include "onnx/onnx.h"

namespace slm::importer {

struct StageGraph {
  onnx::GenAiStage stage;
  std::shared_ptr<onnx::Model> model;  // as it was read; its maps are moved into the composed one
};

struct Composed {
  std::shared_ptr<onnx::Model> model;  // the decoder's inputs and outputs as `names` calls them; the rest is called after its stage
  CallForm form = CallForm::kAnyLength;
};

// Errors: kCorrupt (a name that a graph does not have, an input that nobody makes, two stages that make one output), kUnsupported (a value
// of the call before, operator sets that differ, a graph compiled for a device, graphs of a fixed number of tokens that is not 1), kLimit.
// Stages are named.
Result<Composed> Compose(const std::vector<StageGraph>& stages, const onnx::GenAiNames& names);

// kUnsupported when the graph holds a node that is compiled for a device already.
Status RefuseCompiled(const onnx::Model& m);

}  // namespace slm::importer
