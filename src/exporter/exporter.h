// The door of `exporter`: a decoder graph in the forms that other runtimes load.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "model/model.h"
#include "onnx/onnx.h"

namespace slm::exporter {

// MatMulNBits' attribute of that name: how coarsely a runtime may compute. ONNX Runtime's CPU kernels know these two.
enum class Accuracy : uint8_t { kFloat = 1, kInt8 = 4 };  // f32 activations; activations rounded to int8 a block

struct GenAiModel {
  onnx::Model model;               // owns its weights
  std::vector<std::string> notes;  // what is not stored as the source has it, and why
};

// The graph as ONNX Runtime GenAI's CPU models are: opset 21 with com.microsoft's MatMulNBits, GatherBlockQuantized,
// GroupQueryAttention (which rotates) and SkipSimplifiedLayerNormalization. Inputs input_ids [B, T] i64, attention_mask [B, total] i64,
// past_key_values.N.key|value [B, Hkv, past, D] f32; outputs logits [B, 1, V] f32 of the last token only, present.N.key|value.
// `g`: with the other passes than PassesOffForGenAi run. Errors: kUnsupported naming a node that has no ONNX form. Source: onnxruntime
// docs/ContribOperators.md.
Result<GenAiModel> BuildGenAiModel(const graph::Graph& g, Accuracy accuracy);

// The passes that must not run on a graph for BuildGenAiModel: their operators are ours alone.
std::vector<std::string> PassesOffForGenAi();

// genai_config.json for that model. `context`: tokens, those that the graph was built for. Pure.
std::string GenAiConfig(const model::Model& m, int context);

}  // namespace slm::exporter
