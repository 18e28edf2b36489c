// Packing against bytes of other software: the checkpoints of tests/tiny/grouped (packed by numpy from the formats' descriptions) and the
// inputs of MatMulNBits that ONNX Runtime multiplied by (tests/tiny/make_matmulnbits.py).
#include "model/grouped/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/model.h"

namespace slm::model {
namespace {

const std::string kTiny = std::string(SLM_SOURCE_DIR) + "/tests/tiny/";

template <class T>
void ExpectBytes(std::span<const std::byte> want, const std::vector<T>& got, const std::string& what) {
  ASSERT_EQ(want.size(), got.size() * sizeof(T)) << what;
  EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size()), 0) << what;
}

TEST(GroupedPack, GivesTheBytesOfTheFilesThatWereTakenApart) {
  int checked = 0;
  for (const char* name : {"awq", "gptq", "gptq_act", "gptq2", "gptq3", "gptq8", "ct4", "ct4_zero"}) {
    const auto m = LoadModel(kTiny + "grouped/" + name).Take();
    for (const Tensor& t : m->tensors) {
      if (!t.grouped) continue;
      const GroupedMatrix& g = *t.grouped;
      const GroupedCodes c = TakeApart(g);
      ++checked;
      if (g.layout == GroupedLayout::kAwq) {
        ExpectBytes(g.codes, AwqCodes(c), t.name);
        ExpectBytes(g.zeros, AwqZeros(c), t.name);
      } else if (g.layout == GroupedLayout::kGptq) {
        ExpectBytes(g.codes, GptqCodes(c), t.name);
        ExpectBytes(g.zeros, GptqZeros(c, g.zero_offset), t.name);
        if (!g.group_of.empty()) ExpectBytes(g.group_of, c.group_of, t.name);
      } else {
        ExpectBytes(g.codes, CompressedCodes(c), t.name);
        if (!g.zeros.empty()) ExpectBytes(g.zeros, CompressedZeros(c), t.name);
      }
    }
  }
  EXPECT_EQ(checked, 8 * 7);
}

TEST(GroupedPack, MatMulNBitsAsOnnxRuntimeTakesIt) {
  std::ifstream in(kTiny + "matmulnbits.json");
  const auto doc = nlohmann::json::parse(in);
  ASSERT_GE(doc["cases"].size(), 4u);
  for (const auto& j : doc["cases"]) {
    GroupedCodes c{.bits = j["bits"],
                   .n = j["n"],
                   .k = j["k"],
                   .group = j["group"],
                   .codes = j["codes"],
                   .zeros = j["zeros"],
                   .scales = {},
                   .group_of = {}};
    c.scales.assign(c.zeros.size(), 0.5f);
    const MatMulNBitsTensors got = PackMatMulNBits(c);
    EXPECT_EQ(got.b, j["b"].get<std::vector<uint8_t>>()) << j["bits"];
    EXPECT_EQ(got.zero_points, j["zero_points"].get<std::vector<uint8_t>>()) << j["bits"];
    EXPECT_EQ(got.scales, c.scales);
  }
}

}  // namespace
}  // namespace slm::model
