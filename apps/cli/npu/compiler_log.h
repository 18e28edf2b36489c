// What the program npu_compile (tools/openvino_npu) and the compiler inside it printed: versions, the estimate, why it failed.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/onnx.h"

namespace slm::cli {

struct CompilerLog {
  std::string openvino, compiler;         // versions; "" when it did not get so far
  std::optional<double> latency_us, mhz;  // of the compiler's cost model: latency of one call, at this frequency of the NPU
  std::string step, error;                // where it stopped and what was said; "": it did not
  std::vector<std::string> complaints;    // errors in the compiler's own log, each once, the first ones
};

// Anything is a log; what is not understood is passed over.
CompilerLog ReadCompilerLog(std::string_view text);

// A node of the graph that a message is about.
struct NamedNode {
  std::string name, op;
};
// Nodes whose names stand in `message`, as they are or with what the compiler puts behind them, in the order of the message. At most
// `most`.
std::vector<NamedNode> NodesIn(const std::string& message, const onnx::Graph& graph, size_t most);

}  // namespace slm::cli
