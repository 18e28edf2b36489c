// The reader on the models of tests/corpus/make_onnx_seeds.py: what they hold, every cut, changed bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "onnx/external.h"
#include "onnx/onnx.h"

namespace slm::onnx {
namespace {

using Bytes = std::vector<std::byte>;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kSeeds[] = {"types", "control", "sparse", "external", "containers"};

Bytes Seed(const std::string& name) {
  std::ifstream in(SLM_SOURCE_DIR "/tests/corpus/onnx_fuzz/" + name + ".onnx", std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  Bytes out(chars.size());
  std::memcpy(out.data(), chars.data(), chars.size());
  return out;
}

Model Parsed(const std::string& name) {
  auto m = ParseModel(Seed(name), "");
  EXPECT_TRUE(m.ok()) << (m.ok() ? "" : m.error().message());
  return m.ok() ? m.Take() : Model();
}

const Tensor& Find(const Model& m, const std::string& name) {
  for (const Tensor& t : m.graph.initializers)
    if (t.name == name) return t;
  ADD_FAILURE() << name;
  return m.graph.initializers.at(0);
}

template <class T>
std::vector<T> Values(const Tensor& t) {
  std::vector<T> out(t.data.size() / sizeof(T));
  std::memcpy(out.data(), t.data.data(), t.data.size());
  return out;
}

TEST(OnnxReader, EveryElementType) {
  const Model m = Parsed("types");
  EXPECT_EQ(m.producer_name, "seeds");
  EXPECT_EQ(m.ir_version, 13);
  EXPECT_EQ(OpsetVersion(m.opsets, ""), 25);
  ASSERT_EQ(m.metadata.size(), 1u);
  EXPECT_EQ(m.metadata[0].second, "by hand");
  const std::pair<const char*, size_t> bytes[] = {{"float", 20}, {"int64", 40},     {"bool", 5}, {"complex128", 80}, {"bfloat16", 10},
                                                  {"uint4", 3},  {"float4e2m1", 3}, {"int2", 2}, {"uint2", 2},       {"float8e8m0", 5}};
  for (const auto& [name, size] : bytes) {
    EXPECT_EQ(Find(m, name).data.size(), size) << name;
    EXPECT_EQ(Find(m, name).data[1], std::byte{2}) << name;
  }
  EXPECT_THAT(Values<float>(Find(m, "numbers_float")), ElementsAre(1.0f, -2.0f, 0.5f));
  EXPECT_THAT(Values<uint16_t>(Find(m, "numbers_half")), ElementsAre(0x3c00, 0xc000));
  EXPECT_THAT(Values<int8_t>(Find(m, "numbers_int8")), ElementsAre(1, -2, 3));
  EXPECT_THAT(Values<uint32_t>(Find(m, "numbers_uint32")), ElementsAre(1u, 4000000000u));
  EXPECT_THAT(Values<uint8_t>(Find(m, "numbers_int4")), ElementsAre(0xe1, 0x07));  // 1 and -2 in a byte, then 7
  EXPECT_THAT(Find(m, "texts").strings, ElementsAre("one", "two"));
}

TEST(OnnxReader, GraphsInsideNodesAndFunctions) {
  const Model m = Parsed("control");
  ASSERT_EQ(m.graph.nodes.size(), 5u);
  const Attribute* branch = m.graph.nodes[0].Find("then_branch");
  ASSERT_NE(branch, nullptr);
  ASSERT_EQ(branch->graphs.size(), 1u);
  EXPECT_EQ(branch->graphs[0].nodes[0].op_type, "Neg");
  EXPECT_THAT(m.graph.nodes[2].inputs, ElementsAre("l", "", "high"));
  EXPECT_EQ(m.graph.nodes[3].domain, "com.microsoft");
  ASSERT_EQ(m.functions.size(), 1u);
  EXPECT_EQ(m.functions[0].nodes[0].attributes[0].ref, "slope");
  EXPECT_EQ(ShapeText(m.graph.inputs[0].type.shape), "[2, T]");
}

TEST(OnnxReader, SparseAndContainers) {
  const Model s = Parsed("sparse");
  ASSERT_EQ(s.graph.sparse_initializers.size(), 1u);
  EXPECT_THAT(s.graph.sparse_initializers[0].dims, ElementsAre(2, 3));
  const Model c = Parsed("containers");
  EXPECT_EQ(c.graph.inputs[0].type.kind, ValueType::Kind::kSequence);
  EXPECT_EQ(c.graph.inputs[1].type.kind, ValueType::Kind::kOptional);
  EXPECT_EQ(c.graph.inputs[2].type.kind, ValueType::Kind::kMap);
  EXPECT_EQ(c.graph.inputs[2].type.element, ElementType::kInt64);
  EXPECT_EQ(ShapeText(c.graph.inputs[0].type.inner[0].shape), "[?, 2]");
}

TEST(OnnxReader, ExternalDataNeedsItsFolder) {
  const auto m = ParseModel(Seed("external"), "");
  ASSERT_FALSE(m.ok());
  EXPECT_EQ(m.error().code(), Code::kUnsupported);
  EXPECT_THAT(m.error().message(), HasSubstr("tensor \"w\""));
}

TEST(OnnxReader, Locations) {
  for (const char* good : {"w.bin", "a/b.bin", "model.onnx.data", "./w.bin"}) EXPECT_TRUE(IsPlainLocation(good)) << good;
  for (const char* bad : {"", ".", "..", "/w", "a//b", "../w", "a/../w", "a/..", "a\\b", "C:w", "file://w", "a/", "w\n"})
    EXPECT_FALSE(IsPlainLocation(bad)) << bad;
}

TEST(OnnxReader, EveryCutIsAnError) {
  for (const char* name : kSeeds) {
    const Bytes bytes = Seed(name);
    ASSERT_FALSE(bytes.empty());
    for (size_t n = 0; n < bytes.size(); ++n) {
      const Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      const auto m = ParseModel(part, "");
      EXPECT_TRUE(m.ok() || !m.error().hint().empty()) << name << " " << n;
    }
    EXPECT_FALSE(ParseModel(Bytes(bytes.begin(), bytes.begin() + 1), "").ok());
  }
}

// A graph of empty nodes: two bytes each in the file, hundreds in memory.
TEST(OnnxReader, MoreNodesThanAnyModelHas) {
  constexpr size_t kNodes = size_t{5} << 19;
  Bytes bytes = {std::byte{7 << 3 | 2}};
  for (size_t n = 2 * kNodes;; n >>= 7) {
    bytes.push_back(static_cast<std::byte>(n > 127 ? (n & 127) | 128 : n));
    if (n <= 127) break;
  }
  for (size_t k = 0; k < kNodes; ++k) {
    bytes.push_back(std::byte{1 << 3 | 2});
    bytes.push_back(std::byte{0});
  }
  const auto m = ParseModel(bytes, "");
  ASSERT_FALSE(m.ok());
  EXPECT_EQ(m.error().code(), Code::kLimit);
}

TEST(OnnxReader, ChangedBytes) {
  for (const char* name : kSeeds) {
    Bytes bytes = Seed(name);
    for (size_t n = 0; n < bytes.size(); ++n)
      for (const int value : {0x00, 0x7f, 0x80, 0xff}) {
        const std::byte old = std::exchange(bytes[n], static_cast<std::byte>(value));
        const auto m = ParseModel(bytes, "");  // an answer, whatever it is
        const std::vector<Tensor> none;
        for (const Tensor& t : m.ok() ? m.value().graph.initializers : none)
          EXPECT_TRUE(t.type == ElementType::kString || t.data.size() == StoredBytes(t.type, t.n_values()));
        bytes[n] = old;
      }
  }
}

TEST(OnnxWriter, ReadsWhatItWrote) {
  for (const char* name : {"types", "control", "sparse", "containers"}) {
    const Model m = Parsed(name);
    const auto write = [&](Bytes& message, Bytes& data) {
      const auto to = [](Bytes& out) {
        return [&out](std::span<const std::byte> part) {
          out.insert(out.end(), part.begin(), part.end());
          return Ok();
        };
      };
      return WriteModel(m, {.external_from_bytes = UINT64_MAX, .data_name = "w"}, to(message), to(data));
    };
    Bytes first, second, data;
    ASSERT_TRUE(write(first, data).ok());
    ASSERT_TRUE(write(second, data).ok());
    EXPECT_EQ(first, second);
    EXPECT_TRUE(data.empty());
    const auto again = ParseModel(first, "");
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(again.value().graph.nodes.size(), m.graph.nodes.size());
    ASSERT_EQ(again.value().graph.initializers.size(), m.graph.initializers.size());
    for (size_t k = 0; k < m.graph.initializers.size(); ++k)
      EXPECT_TRUE(std::equal(m.graph.initializers[k].data.begin(), m.graph.initializers[k].data.end(),
                             again.value().graph.initializers[k].data.begin()));
  }
}

TEST(OnnxWriter, InitializersInAFileOfOthers) {
  const std::string folder = testing::TempDir() + "/slm_places", path = folder + "/m.onnx";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/others.bin", std::ios::binary) << "header!!\x01\x02\x03\x04tail";
  Model m;
  m.ir_version = 10;
  m.opsets = {{"", 21}};
  m.graph.name = "g";
  m.graph.initializers.push_back({.name = "table", .type = ElementType::kUint16, .dims = {2}});
  Bytes message;
  const auto to_message = [&](std::span<const std::byte> part) {
    message.insert(message.end(), part.begin(), part.end());
    return Ok();
  };
  const auto nothing = [](std::span<const std::byte> part) {
    return part.empty() ? Ok() : Status(Error(Code::kInternal, "external data", ""));
  };
  ASSERT_TRUE(WriteModel(m, {.data_name = "m.data", .places = {{"table", {"others.bin", 8}}}}, to_message, nothing).ok());
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(message.data()), static_cast<std::streamsize>(message.size()));
  const auto again = ReadModel(path);
  ASSERT_TRUE(again.ok()) << again.error().message();
  ASSERT_EQ(again.value().external_files.size(), 1U);
  EXPECT_EQ(again.value().external_files[0].name, "others.bin");
  const Tensor& t = again.value().graph.initializers[0];
  const Bytes want = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  EXPECT_TRUE(std::equal(t.data.begin(), t.data.end(), want.begin(), want.end()));
  EXPECT_FALSE(WriteModel(m, {.data_name = "m.data", .places = {{"table", {"../others.bin", 8}}}}, to_message, nothing).ok());
  std::filesystem::remove_all(folder);
}

TEST(OnnxWriter, DataNamesArePlain) {
  const Model m = Parsed("types");
  const auto nowhere = [](std::span<const std::byte>) { return Ok(); };
  for (const char* bad : {"", "../w", "a/b", "/w"}) EXPECT_FALSE(WriteModel(m, {.data_name = bad}, nowhere, nowhere).ok()) << bad;
}

}  // namespace
}  // namespace slm::onnx
