// Any text as the log of a compiler, and its words looked for among the names of a graph.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "npu/compiler_log.h"

using namespace slm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const cli::CompilerLog log = cli::ReadCompilerLog(text);
  onnx::Graph g;
  onnx::Node n;
  n.op_type = "Add";
  n.name = text.substr(0, 4);
  n.outputs = {log.step};
  g.nodes = {n};
  if (cli::NodesIn(text, g, 4).size() > 1 || log.complaints.size() > 16) std::abort();
  return 0;
}
