// The graphs that a decoder pipeline of ONNX Runtime GenAI has besides the folder's two. Not a door.
#pragma once
#include "exporter/qdq/qdq.h"

namespace slm::exporter {

// `built` has a decode graph of one token. The cache of layer N is key.N and value.N there; the stage "host" takes what it gave as
// past_key.N, the entries of the last call as new_key.N, their first position as new_first, and gives cache_key.N and next_first. Without
// a config.
GenAiPipeline BuildPipelineGraphs(const StaticModel& built, const model::ModelConfig& c, const PipelineFacts& facts);

}  // namespace slm::exporter
