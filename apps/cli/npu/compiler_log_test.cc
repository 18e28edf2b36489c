// What the compiler of OpenVINO 2026.4.1 for NPUs printed, and rows of records.
#include "npu/compiler_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "npu/compile_npu.h"

namespace slm::cli {
namespace {

TEST(CompilerLog, OfAGraphThatCompiled) {
  const CompilerLog log = ReadCompilerLog(
      "wine: configuration in L\"C:\\\\prefix\" has been updated.\r\n"
      "npu_compile openvino: 2026.4.1-22982-e213a147257-releases/2026/4\r\n"
      "\x1b[36m[INFO] 15:49:59.565 [VCLCompilerImpl] Plugin VCL API Version: 7.10\x1b[0m\r\n"
      "npu_compile compiler: 8.4\r\n"
      "[INFO] 15:50:05.482 [inference-execution-analysis]   Estimated inference latency: 219.95 us in dpu frequency 1850.00 MHz\r\n"
      "npu_compile compiled: Z:\\out.blob\r\n");
  EXPECT_EQ(log.openvino, "2026.4.1-22982-e213a147257-releases/2026/4");
  EXPECT_EQ(log.compiler, "8.4");
  EXPECT_DOUBLE_EQ(log.latency_us.value_or(0), 219.95);
  EXPECT_DOUBLE_EQ(log.mhz.value_or(0), 1850);
  EXPECT_EQ(log.step, "");
  EXPECT_TRUE(log.complaints.empty());
}

TEST(CompilerLog, OfAGraphThatDidNot) {
  const CompilerLog log = ReadCompilerLog(
      "\x1b[31m[ERROR] 15:51:52.146 [vpux-compiler] UnrollPermuteDMA Pass failed : The size of merged sub output shape [32, 8] is not "
      "equal to "
      "3\x1b[0m\n"
      "[ERROR] 15:51:52.146 [vpux-compiler] Failed Pass UnrollPermuteDMA on Operation loc(fused<{name = \"main\", type = "
      "\"Func\"}>[\"main\"])\n"
      "[ERROR] 15:51:53.000 [vpux-compiler] UnrollPermuteDMA Pass failed : The size of merged sub output shape [32, 8] is not equal to 3\n"
      "npu_compile error compile: Exception from src\\inference\\src\\cpp\\core.cpp:120: Exception from plugin.cpp:54: Compilation failed. "
      " \n"
      "npu_compile error compile: a second one\n");
  EXPECT_EQ(log.step, "compile");
  EXPECT_EQ(log.error, "Compilation failed.");
  ASSERT_EQ(log.complaints.size(), 2u);
  EXPECT_EQ(log.complaints[0],
            "[vpux-compiler] UnrollPermuteDMA Pass failed : The size of merged sub output shape [32, 8] is not equal to 3");
  EXPECT_FALSE(log.latency_us.has_value());
}

TEST(CompilerLog, AnythingIsALog) {
  for (const char* text : {"", "\n\n", "npu_compile", "npu_compile \n", "npu_compile error", "npu_compile error : ", "[ERROR] ", "\x1b[",
                           "Estimated inference latency: x", "Estimated inference latency: -1", "Estimated inference latency: nan us"}) {
    const CompilerLog log = ReadCompilerLog(text);
    EXPECT_FALSE(log.latency_us.has_value()) << text;
  }
}

onnx::Node NodeOf(const char* op, const char* name, const char* output) {
  onnx::Node n;
  n.op_type = op, n.name = name, n.outputs = {output};
  return n;
}

TEST(CompilerLog, NodesOfAMessage) {
  onnx::Graph g;
  g.nodes = {NodeOf("Add", "n49_Add", "t49"), NodeOf("MatMul", "layers.0.q_proj", "layers.0.q_proj"), NodeOf("MatMul", "", "layers.0"),
             NodeOf("Neg", "main", "x")};
  const auto names = [&](const std::string& message, size_t most = 4) {
    std::string out;
    for (const NamedNode& n : NodesIn(message, g, most)) out += n.name + " " + n.op + ";";
    return out;
  };
  EXPECT_EQ(names("result #0 for 'VPUIP.PermuteCast' loc(fused<{type = \"Eltwise\"}>[\"n49_Add\", \"n49_Add\"])"), "n49_Add Add;");
  EXPECT_EQ(names("\"layers.0.q_proj/as_convolution\" and \"t49?t_Eltwise\""), "layers.0.q_proj MatMul;n49_Add Add;");
  EXPECT_EQ(names("\"layers.0.k_proj\""), "layers.0 MatMul;");  // the longest that is there
  EXPECT_EQ(names("n49_Add without quotes, \"n49_Addition\", \"\", and an open \"t49"), "n49_Add Add;");
  EXPECT_EQ(names("\"n49_Add\" \"layers.0\"", 1), "n49_Add Add;");
}

CompiledGraph GraphOf(const char* file, uint64_t bytes, std::optional<double> us) {
  CompiledGraph g;
  g.file = file;
  g.blob.bytes = bytes;
  g.blob.latency_us = us;
  return g;
}

TEST(CompiledRecord, GrowthOfMoreThanATenth) {
  const auto before = nlohmann::json::parse(
      R"([{"file": "a", "bytes": 1000, "estimated_latency_us": 100.0}, {"file": "b", "bytes": "much", "estimated_latency_us": null}, 7])");
  EXPECT_TRUE(GrownSince(before, {GraphOf("a", 1100, 110), GraphOf("b", 9000, 9), GraphOf("c", 9000, 9)}).empty());
  EXPECT_EQ(GrownSince(before, {GraphOf("a", 1101, 50)}), std::vector<std::string>{"a: bytes of the blob 1101, 1000 before"});
  EXPECT_EQ(GrownSince(before, {GraphOf("a", 10, 111)}).size(), 1u);
  EXPECT_TRUE(GrownSince(before, {GraphOf("a", 10, std::nullopt)}).empty());
  EXPECT_TRUE(GrownSince(nlohmann::json::array(), {GraphOf("a", 10, 1)}).empty());
}

}  // namespace
}  // namespace slm::cli
