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

TEST(Reference, EveryOperatorStandsOnce) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const OperatorRow& row : Operators()) EXPECT_TRUE(seen.emplace(row.domain, row.name).second) << row.name;
}

}  // namespace
}  // namespace slm::reference
