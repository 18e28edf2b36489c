// The node tests of tests/tiny/onnx_nodes (made by the onnx package and by numpy), and the same with bytes of the model changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "reference/reference.h"

namespace slm::reference {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> Cases() {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(SLM_SOURCE_DIR "/tests/tiny/onnx_nodes")) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Array> Tensors(const fs::path& folder, const std::string& kind) {
  std::vector<Array> out;
  for (int k = 0; fs::exists(folder / (kind + "_" + std::to_string(k) + ".pb")); ++k) {
    const auto t = onnx::ReadTensor((folder / (kind + "_" + std::to_string(k) + ".pb")).string());
    EXPECT_TRUE(t.ok());
    out.push_back(FromTensor(t.value().tensor).Take());
  }
  return out;
}

std::vector<std::byte> Bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  const auto* first = reinterpret_cast<const std::byte*>(chars.data());
  return {first, first + chars.size()};
}

Tolerance ToleranceOf(const fs::path& folder) {
  std::ifstream in(folder / "tolerance.json");
  std::string text;
  std::getline(in, text);
  Tolerance t{0, 0};
  EXPECT_EQ(std::sscanf(text.c_str(), R"({"rtol": %lf, "atol": %lf})", &t.relative, &t.absolute), 2) << folder;
  return t;
}

TEST(Reference, AgreesWithNodeTests) {
  const auto cases = Cases();
  ASSERT_GT(cases.size(), 40u);
  for (const fs::path& c : cases) {
    const auto m = onnx::ReadModel((c / "model.onnx").string());
    ASSERT_TRUE(m.ok()) << m.error().message();
    const auto got = RunGraph(m.value(), Tensors(c / "test_data_set_0", "input"));
    ASSERT_TRUE(got.ok()) << c << got.error().message();
    const auto want = Tensors(c / "test_data_set_0", "output");
    ASSERT_FALSE(want.empty());
    for (size_t k = 0; k < want.size(); ++k) {
      const Difference d = Compare(got.value()[k], want[k], ToleranceOf(c));
      EXPECT_FALSE(d.differs) << c << ": " << d.where;
    }
  }
}

// Whatever a byte becomes, the answer is outputs or an error.
TEST(Reference, ChangedModels) {
  size_t ran = 0;
  for (const fs::path& c : Cases()) {
    const auto inputs = Tensors(c / "test_data_set_0", "input");
    std::vector<std::byte> bytes = Bytes(c / "model.onnx");
    for (size_t at = 0; at < bytes.size(); at += 3)
      for (const int value : {0x00, 0x7f, 0xff, static_cast<int>(bytes[at]) + 1}) {
        const std::byte old = std::exchange(bytes[at], static_cast<std::byte>(value));
        if (const auto m = onnx::ParseModel(bytes, ""); m.ok()) ran += RunGraph(m.value(), inputs).ok() ? 1 : 0;
        bytes[at] = old;
      }
  }
  EXPECT_GT(ran, 100u);  // names that nobody reads
}

// Inputs of other shapes and types than the model says.
TEST(Reference, ExchangedInputs) {
  std::vector<Array> all;
  for (const fs::path& c : Cases())
    for (Array& a : Tensors(c / "test_data_set_0", "input")) all.push_back(std::move(a));
  size_t refused = 0;
  for (const fs::path& c : Cases()) {
    const auto m = onnx::ReadModel((c / "model.onnx").string());
    ASSERT_TRUE(m.ok());
    auto inputs = Tensors(c / "test_data_set_0", "input");
    for (size_t k = 0; k < inputs.size(); ++k)
      for (const Array& other : all) {
        const Array own = std::exchange(inputs[k], other);
        refused += RunGraph(m.value(), inputs).ok() ? 0 : 1;
        inputs[k] = own;
      }
  }
  EXPECT_GT(refused, 1000u);
}

onnx::Node NodeOf(const char* op, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  onnx::Node n;
  n.op_type = op;
  n.inputs = std::move(inputs);
  n.outputs = std::move(outputs);
  return n;
}

TEST(Reference, OneNodeAlone) {
  const std::vector<onnx::Opset> opsets{{"", 20}};
  Array x;
  x.type = onnx::ElementType::kFloat;
  x.dims = {3};
  x.f = {1, 4, 2};
  Array k;
  k.type = onnx::ElementType::kInt64;
  k.dims = {1};
  k.i = {2};
  const Array* both[] = {&x, &k};
  // The values are not asked for: their place stays empty.
  const auto top = RunNode(NodeOf("TopK", {"x", "k"}, {"", "at"}), opsets, both);
  ASSERT_TRUE(top.ok()) << top.error().message();
  EXPECT_EQ(top.value()[0].type, onnx::ElementType::kUndefined);
  EXPECT_EQ(top.value()[1].i, (std::vector<int64_t>{1, 2}));
  const Array* same[] = {&x, &x};
  EXPECT_EQ(RunNode(NodeOf("Add", {"x", "x"}, {"y"}), opsets, same).value()[0].f, (std::vector<double>{2, 8, 4}));
  const Array* bounds[] = {&x, nullptr, &x};  // Clip without its minimum; the maximum must be one value
  EXPECT_EQ(RunNode(NodeOf("Clip", {"x", "", "x"}, {"y"}), opsets, bounds).error().code(), Code::kCorrupt);

  int64_t work = 0;
  Array square;
  square.type = onnx::ElementType::kFloat;
  square.dims = {3, 3};
  square.f.assign(9, 1);
  const Array* squares[] = {&square, &square};
  ASSERT_TRUE(RunNode(NodeOf("MatMul", {"a", "b"}, {"y"}), opsets, squares, &work).ok());
  EXPECT_EQ(work, 3 * 3 * 3 + 3 * 3);  // products, values
  ASSERT_TRUE(RunNode(NodeOf("ReduceSum", {"a"}, {"y"}), opsets, {squares, 1}, &work).ok());
  EXPECT_EQ(work, 3 * 3 * 3 + 3 * 3 + 9 + 1);

  const auto refused = [&](const onnx::Node& n, std::span<const Array* const> inputs) { return RunNode(n, opsets, inputs).error().code(); };
  EXPECT_EQ(refused(NodeOf("Add", {"x", "y"}, {"z"}), {both, 1}), Code::kCorrupt);  // an input too few
  EXPECT_EQ(refused(NodeOf("Add", {"x", "x"}, {"z", "more"}), same), Code::kUnsupported);
  EXPECT_EQ(refused(NodeOf("NobodyKnowsIt", {"x"}, {"z"}), {both, 1}), Code::kUnsupported);
  EXPECT_EQ(RunNode(NodeOf("Add", {"x", "x"}, {"z"}), {}, same).error().code(), Code::kCorrupt);  // no operator set
  onnx::Node branch = NodeOf("If", {"x"}, {"z"});
  branch.attributes.emplace_back().graphs.emplace_back();
  EXPECT_EQ(refused(branch, {both, 1}), Code::kUnsupported);
}

// ONNX's Shape: bounds count from the end when negative and are clamped to the rank.
TEST(Reference, ShapesOfKnownDimensions) {
  const int64_t dims[] = {2, -1, 5};
  const auto shape = [&](std::vector<std::pair<const char*, int64_t>> bounds) {
    onnx::Node n = NodeOf("Shape", {"x"}, {"y"});
    for (const auto& [name, value] : bounds) {
      onnx::Attribute& a = n.attributes.emplace_back();
      a.name = name;
      a.kind = onnx::Attribute::Kind::kInt;
      a.ints = {value};
    }
    return ShapeContent(n, dims).i;
  };
  EXPECT_EQ(shape({}), (std::vector<int64_t>{2, -1, 5}));
  EXPECT_EQ(shape({{"start", -1}}), (std::vector<int64_t>{5}));
  EXPECT_EQ(shape({{"start", -9}, {"end", -2}}), (std::vector<int64_t>{2}));
  EXPECT_EQ(shape({{"start", 2}, {"end", 1}}), (std::vector<int64_t>{}));
  EXPECT_EQ(shape({{"end", 9}}).size(), 3u);
  const onnx::Node size = NodeOf("Size", {"x"}, {"y"});
  EXPECT_EQ(ShapeContent(size, dims).i, (std::vector<int64_t>{-1}));
  const int64_t known[] = {2, 3};
  EXPECT_EQ(ShapeContent(size, known).i, (std::vector<int64_t>{6}));
  EXPECT_TRUE(ShapeContent(size, known).dims.empty());
  EXPECT_EQ(ShapeContent(size, {}).i, (std::vector<int64_t>{1}));
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(ShapeContent(size, huge).i, (std::vector<int64_t>{-1}));
}

TEST(Reference, EveryOperatorStandsOnce) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const OperatorRow& row : Operators()) EXPECT_TRUE(seen.emplace(row.domain, row.name).second) << row.name;
}

}  // namespace
}  // namespace slm::reference
