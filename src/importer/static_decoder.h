// A folder of graphs of fixed shapes (onnx/static_folder) as stages of a decoder: what its manifest says that a host looks up, the graph
// for one token, and the cache with that token's keys and values behind it.
#pragma once
#include <vector>

#include "base/result.h"
#include "importer/compose.h"
#include "onnx/static_folder/static_folder.h"

namespace slm::importer {

// Tables, mask and cache enter the graph as the numbers that their codes stand for. The composed graph takes one token a call, whose inputs
// and outputs are called as onnx::GenAiNames has it, the logits as the manifest. Errors: kUnsupported (no graph for one token, an input
// that is used otherwise than dequantized), kCorrupt (an input or output that the graph does not have), and the reader's of ONNX files.
Result<std::vector<StageGraph>> StagesOf(const onnx::StaticFolder& folder);

}  // namespace slm::importer
