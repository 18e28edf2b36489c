// Packed checkpoints: values computed by hand from the formats' descriptions, and what is refused when parts do not fit together.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/float16.h"
#include "model/grouped/grouped.h"
#include "model/hf/packed/quantization.h"

namespace slm::model::hf {
namespace {
using Json = nlohmann::json;

// A model of tensors that it owns, as a safetensors file would show them.
class Parts {
 public:
  template <class T>
  Parts& Add(const std::string& name, DType dtype, std::vector<int64_t> dims, const std::vector<T>& values) {
    auto& bytes = store_.emplace_back(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    Tensor t;
    t.name = name;
    t.dtype = dtype;
    t.dims = std::move(dims);
    t.data = bytes;
    m.tensors.push_back(std::move(t));
    return *this;
  }
  Parts& Words(const std::string& name, std::vector<int64_t> dims, const std::vector<uint32_t>& values) {
    return Add(name, DType::kI32, std::move(dims), values);
  }
  Parts& Halves(const std::string& name, std::vector<int64_t> dims, const std::vector<float>& values) {
    std::vector<uint16_t> halves;
    for (const float v : values) halves.push_back(FloatToHalf(v));
    return Add(name, DType::kF16, std::move(dims), halves);
  }
  Tensor& operator[](const std::string& name) {
    for (Tensor& t : m.tensors)
      if (t.name == name) return t;
    ADD_FAILURE() << name;
    return m.tensors[0];
  }
  void Remove(const std::string& name) {
    std::erase_if(m.tensors, [&](const Tensor& t) { return t.name == name; });
  }
  Model m;

 private:
  std::deque<std::vector<std::byte>> store_;
};

Json Config(Json quantization) { return {{"quantization_config", std::move(quantization)}}; }
const Json kAwq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 2}, {"version", "gemm"}};
const Json kGptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 4}, {"checkpoint_format", "gptq"}};
const Json kCompressed = {
    {"quant_method", "compressed-tensors"},
    {"format", "pack-quantized"},
    {"config_groups",
     {{"group_0", {{"weights", {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 4}, {"symmetric", true}}}}}}}};

Result<Quantization> Read(const Json& quantization) {
  return ReadQuantization(Folder::OfTexts({{"config.json", Config(quantization).dump()}}));
}
Status Join(const Json& quantization, Model* m) {
  SLM_ASSIGN_OR_RETURN(const Quantization q, Read(quantization));
  return JoinGrouped(q, m);
}
std::vector<float> Values(const Model& m, const std::string& name) {
  const Tensor* t = m.FindName(name);
  if (!t || !t->grouped) return {};
  return DequantizeAll(*t);
}

// 8 rows, 4 columns, groups of 2. Nibble i of a word is row [0, 2, 4, 6, 1, 3, 5, 7][i]: word 0x76543210 gives row 0 code 0, row 1
// code 4, row 2 code 1, row 3 code 5 and so on.
Parts Awq() {
  Parts p;
  p.Words("x.qweight", {4, 1}, {0x76543210, 0x00000000, 0xffffffff, 0x10000000});
  p.Words("x.qzeros", {2, 1}, {0x00000000, 0x00000008});
  p.Halves("x.scales", {2, 8}, {1, 1, 1, 1, 1, 1, 1, 0.5, 2, 2, 2, 2, 2, 2, 2, 0.25});
  return p;
}

TEST(JoinGrouped, AwqByHand) {
  Parts p = Awq();
  ASSERT_TRUE(Join(kAwq, &p.m).ok());
  ASSERT_EQ(p.m.tensors.size(), 1u);
  EXPECT_EQ(p.m.tensors[0].dims, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(TypeName(p.m.tensors[0]), "AWQ_INT4");
  EXPECT_EQ(p.m.tensors[0].stored_bytes(), 16u + 8u + 32u);
  const std::vector<float> w = Values(p.m, "x.weight");
  ASSERT_EQ(w.size(), 32u);
  EXPECT_EQ((std::vector<float>{w[0], w[1], w[2], w[3]}), (std::vector<float>{0, 0, 14, -16})) << "row 0: zero point 8 in group 1";
  EXPECT_EQ((std::vector<float>{w[4], w[5], w[6], w[7]}), (std::vector<float>{4, 0, 30, 0}));
  EXPECT_EQ((std::vector<float>{w[8], w[12], w[16], w[20], w[24]}), (std::vector<float>{1, 5, 2, 6, 3}));
  EXPECT_EQ((std::vector<float>{w[28], w[29], w[30], w[31]}), (std::vector<float>{3.5f, 0, 3.75f, 0.25f})) << "row 7";
}

// 8 rows, 8 columns, groups of 4; the first version stores the zero point less one, and 0 as 15.
Parts Gptq() {
  Parts p;
  p.Words("x.qweight", {1, 8}, {0x76543210, 0x11111111, 0, 0, 0, 0, 0, 0xfedcba98});
  p.Words("x.qzeros", {2, 1}, {0xf7777770, 0x77777770});
  p.Halves("x.scales", {2, 8}, {1, 1, 1, 1, 1, 1, 1, 0.5, 2, 2, 2, 2, 2, 2, 2, 0.25});
  p.Add<int32_t>("x.g_idx", DType::kI32, {8}, {0, 0, 0, 0, 1, 1, 1, 1});
  return p;
}

TEST(JoinGrouped, GptqByHand) {
  Parts p = Gptq();
  ASSERT_TRUE(Join(kGptq, &p.m).ok());
  ASSERT_EQ(p.m.tensors.size(), 1u);
  std::vector<float> w = Values(p.m, "x.weight");
  ASSERT_EQ(w.size(), 64u);
  EXPECT_EQ(std::vector<float>(w.begin(), w.begin() + 8), (std::vector<float>{-1, 0, 1, 2, 6, 8, 10, 12})) << "zero 1";
  EXPECT_EQ(std::vector<float>(w.begin() + 8, w.begin() + 16), (std::vector<float>{-7, -7, -7, -7, -14, -14, -14, -14})) << "zero 8";
  EXPECT_EQ(std::vector<float>(w.begin() + 56, w.end()), (std::vector<float>{4, 4.5f, 5, 5.5f, 1, 1.25f, 1.5f, 1.75f})) << "zero 0, then 8";
  EXPECT_TRUE(p.m.tensors[0].grouped->group_of.empty());
  Parts act = Gptq();
  const int32_t order[8] = {1, 0, 1, 0, 1, 0, 1, 0};
  std::memcpy(const_cast<std::byte*>(act["x.g_idx"].data.data()), order, sizeof order);
  Json v2 = kGptq;
  v2["checkpoint_format"] = "gptq_v2";
  ASSERT_TRUE(Join(v2, &act.m).ok());
  w = Values(act.m, "x.weight");
  EXPECT_EQ(std::vector<float>(w.begin(), w.begin() + 8), (std::vector<float>{0, 1, 4, 3, 8, 5, 12, 7})) << "zeros as stored: 0";
}

Parts Compressed() {
  Parts p;
  p.Words("x.weight_packed", {2, 1}, {0x76543210, 0xfedcba98});
  p.Add<float>("x.weight_scale", DType::kF32, {2, 2}, {1, 2, 0.5f, 0.25f});
  p.Add<int64_t>("x.weight_shape", DType::kI64, {2}, {2, 8});
  return p;
}

TEST(JoinGrouped, CompressedTensorsByHand) {
  Parts p = Compressed();
  ASSERT_TRUE(Join(kCompressed, &p.m).ok());
  EXPECT_EQ(Values(p.m, "x.weight"), (std::vector<float>{-8, -7, -6, -5, -8, -6, -4, -2, 0, 0.5f, 1, 1.5f, 1, 1.25f, 1.5f, 1.75f}));
  Parts zero = Compressed();
  zero.Words("x.weight_zero_point", {1, 2}, {0x21, 0x08});  // rows 0 and 1 of group 0: 1 and 2; of group 1: 8 and 0
  ASSERT_TRUE(Join(kCompressed, &zero.m).ok());
  EXPECT_EQ(Values(zero.m, "x.weight"), (std::vector<float>{-1, 0, 1, 2, -8, -6, -4, -2, 3, 3.5f, 4, 4.5f, 3, 3.25f, 3.5f, 3.75f}));
  Json bytes = kCompressed;
  bytes["format"] = "int-quantized";
  bytes["config_groups"]["group_0"]["weights"] = {{"num_bits", 8}, {"type", "int"}, {"strategy", "tensor"}};
  Parts one;
  one.Add<int8_t>("x.weight", DType::kI8, {1, 3}, {-128, 0, 127}).Add<float>("x.weight_scale", DType::kF32, {1}, {2});
  ASSERT_TRUE(Join(bytes, &one.m).ok());
  EXPECT_EQ(Values(one.m, "x.weight"), (std::vector<float>{-256, 0, 254}));
}

// Four bits in bytes, as layers with rounded activations have them; what belongs to the activations is taken out of the list.
TEST(JoinGrouped, FourBitsInBytesByHand) {
  Json bytes = kCompressed;
  bytes["format"] = "int-quantized";
  bytes["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}, {"dynamic", false}};
  const auto parts = [](int8_t last) {
    Parts p;
    p.Add<int8_t>("x.weight", DType::kI8, {1, 8}, {-8, 7, 0, 1, 2, 3, 4, last}).Halves("x.weight_scale", {1, 2}, {0.5f, 2});
    p.Add<float>("x.input_scale", DType::kF32, {1}, {0.25f});
    return p;
  };
  Parts p = parts(-5);
  ASSERT_TRUE(Join(bytes, &p.m).ok());
  EXPECT_EQ(Values(p.m, "x.weight"), (std::vector<float>{-4, 3.5f, 0, 0.5f, 4, 6, 8, -10}));
  EXPECT_EQ(p.m.tensors.size(), 1u);
  EXPECT_EQ(p.m.tensors[0].grouped->facts.highest, 7);
  for (const int8_t code : {int8_t{8}, int8_t{-9}}) {
    Parts beyond = parts(code);
    EXPECT_EQ(Join(bytes, &beyond.m).error().code(), Code::kCorrupt);
  }
}

// E2M1: 0x1 0.5, 0x7 6, 0x9 -0.5, 0xf -6; scales E4M3: 0x38 1, 0x40 2, 0x30 0.5; E8M0: 127 is 1, 129 is 4.
Json Fp4Config(int group) {
  Json c = kCompressed;
  c["format"] = group == 16 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
  c["config_groups"]["group_0"]["weights"] = {
      {"num_bits", 4}, {"type", "float"}, {"strategy", group == 16 ? "tensor_group" : "group"}, {"group_size", group}};
  return c;
}
Parts Fp4(int group) {
  Parts p;
  std::vector<uint8_t> codes(static_cast<size_t>(group));  // one row of two groups
  codes[0] = 0x71;
  codes[codes.size() - 1] = 0x9f;
  p.Add("x.weight_packed", DType::kCount, {1, group}, codes)["x.weight_packed"].foreign_type = "U8";
  const std::vector<uint8_t> scales = group == 16 ? std::vector<uint8_t>{0x38, 0x40} : std::vector<uint8_t>{127, 129};
  p.Add("x.weight_scale", DType::kCount, {1, 2}, scales)["x.weight_scale"].foreign_type = group == 16 ? "F8_E4M3" : "U8";
  if (group == 16) p.Add<float>("x.weight_global_scale", DType::kF32, {1}, {8});  // divides
  return p;
}
TEST(JoinGrouped, Fp4ByHand) {
  for (const int group : {16, 32}) {
    Parts p = Fp4(group);
    const Status joined = Join(Fp4Config(group), &p.m);
    ASSERT_TRUE(joined.ok()) << joined.error().message();
    std::vector<float> want(static_cast<size_t>(2 * group), 0.0f);
    const float first = group == 16 ? 1.0f / 8 : 1, second = group == 16 ? 2.0f / 8 : 4;
    want[0] = 0.5f * first;
    want[1] = 6 * first;
    want[want.size() - 2] = -6 * second;
    want[want.size() - 1] = -0.5f * second;
    EXPECT_EQ(Values(p.m, "x.weight"), want);
    EXPECT_EQ(SameBlockType(*p.m.tensors[0].grouped), group == 16 ? DType::kCount : DType::kMXFP4);
  }
}
TEST(JoinGrouped, RefusesFp4ThatDoesNotFit) {
  const auto refused = [](int group, auto change) {
    Parts p = Fp4(group);
    change(p);
    const Status s = Join(Fp4Config(group), &p.m);
    return !s.ok() && s.error().code() == Code::kCorrupt;
  };
  EXPECT_TRUE(refused(16, [](Parts& p) { p.Remove("x.weight_global_scale"); }));
  EXPECT_TRUE(refused(16, [](Parts& p) { p.Remove("x.weight_scale"); }));
  EXPECT_TRUE(refused(16, [](Parts& p) { p["x.weight_scale"].foreign_type = "U8"; })) << "the scheme is NVFP4";
  EXPECT_TRUE(refused(16, [](Parts& p) { p["x.weight_packed"].dims = {2, 8}; }));
  EXPECT_TRUE(refused(32, [](Parts& p) { p["x.weight_scale"].dims = {2, 1}; }));
  const std::vector<uint8_t> nan = {127, 255};
  EXPECT_TRUE(refused(32, [&](Parts& p) { p["x.weight_scale"].data = std::as_bytes(std::span(nan)); }));
}

// Rows 0 to 3 of one column lie in bits 0-1, 2-3, 4-5, 6-7 of the byte; of more packed rows, row r and q give row r + q * rows.
TEST(JoinGrouped, BitNetByHand) {
  const auto parts = [] {
    Parts p;
    p.Add<uint8_t>("x.weight", DType::kCount, {2, 2}, {0b10'01'00'10, 0b00'00'01'01, 0b01'10'10'00, 0b10'10'10'10});
    p["x.weight"].foreign_type = "U8";
    p.Halves("x.weight_scale", {1}, {4});
    return p;
  };
  const std::vector<float> codes = {1, 0, -1, 1, -1, 0, 1, 1, 0, -1, 1, 1, 1, -1, 0, 1};  // [8, 2]
  const auto times = [&](float scale) {
    std::vector<float> v = codes;
    for (float& x : v) x *= scale;
    return v;
  };
  const Json divides = {{"quant_method", "bitnet"}};
  const Json multiplies = {{"quant_method", "bitnet"}, {"linear_class", "autobitlinear"}, {"quantization_mode", "offline"}};
  for (const auto& [config, scale] : {std::pair(divides, 0.25f), std::pair(multiplies, 4.0f)}) {
    Parts p = parts();
    const Status joined = Join(config, &p.m);
    ASSERT_TRUE(joined.ok()) << joined.error().message();
    EXPECT_EQ(Values(p.m, "x.weight"), times(scale));
    EXPECT_EQ(p.m.tensors[0].grouped->facts.lowest, -1);
  }
  Parts odd = parts();
  odd["x.weight_scale"].dims = {2};
  EXPECT_EQ(Join(divides, &odd.m).error().code(), Code::kCorrupt);
  Json online = multiplies;
  online["quantization_mode"] = "online";
  EXPECT_EQ(Read(online).error().code(), Code::kUnsupported);
  Json norms = divides;
  norms["use_rms_norm"] = true;
  EXPECT_EQ(Read(norms).error().code(), Code::kUnsupported);
}

TEST(JoinGrouped, OtherTensorsStayWhereTheyAre) {
  Parts p;
  p.Halves("a.weight", {1}, {1});
  Parts codes = Awq();
  for (const Tensor& t : codes.m.tensors) p.m.tensors.push_back(t);
  p.Halves("z.weight", {1}, {1});
  ASSERT_TRUE(Join(kAwq, &p.m).ok());
  ASSERT_EQ(p.m.tensors.size(), 3u);
  EXPECT_EQ(p.m.tensors[0].name + p.m.tensors[1].name + p.m.tensors[2].name, "a.weightx.weightz.weight");
}

// Refusals name the tensor and say what to do.
void ExpectRefused(const Json& quantization, Model* m, const std::string& says) {
  const Status s = Join(quantization, m);
  ASSERT_FALSE(s.ok()) << says;
  EXPECT_NE(s.error().message().find(says), std::string::npos) << s.error().message();
  EXPECT_FALSE(s.error().hint().empty());
}

TEST(JoinGrouped, RefusesPartsThatDoNotFit) {
  for (const char* part : {"x.qzeros", "x.scales"}) {
    Parts p = Awq();
    p.Remove(part);
    ExpectRefused(kAwq, &p.m, part);
  }
  for (const char* part : {"x.qweight", "x.qzeros", "x.scales"})
    for (const std::vector<int64_t>& dims :
         std::vector<std::vector<int64_t>>{{}, {0, 8}, {8}, {2, 0}, {2, 4}, {1, 1}, {1 << 30, 1 << 30}}) {
      Parts p = Awq();
      p[part].dims = dims;
      if (dims == std::vector<int64_t>{2, 4} && std::string(part) == "x.qzeros") continue;  // its bytes are checked by the container
      EXPECT_FALSE(Join(kAwq, &p.m).ok()) << part << " " << dims.size();
      Parts g = Gptq();
      g[part].dims = dims;
      EXPECT_FALSE(Join(kGptq, &g.m).ok()) << part << " " << dims.size();
    }
  Parts p = Gptq();
  p["x.scales"].dtype = DType::kI8;
  ExpectRefused(kGptq, &p.m, "x.scales");
  Parts q = Gptq();
  q["x.g_idx"].dims = {7};
  ExpectRefused(kGptq, &q.m, "x.g_idx");
  Parts r = Gptq();
  const int32_t bad = 2;
  std::memcpy(const_cast<std::byte*>(r["x.g_idx"].data.data()), &bad, 4);
  ExpectRefused(kGptq, &r.m, "column 0 is of group 2");
  Parts twice = Gptq();
  twice.Halves("x.weight", {1}, {1});
  ExpectRefused(kGptq, &twice.m, "packed and whole");
  Parts shape = Compressed();
  const int64_t many = INT64_MAX;
  std::memcpy(const_cast<std::byte*>(shape["x.weight_shape"].data.data()) + 8, &many, 8);
  ExpectRefused(kCompressed, &shape.m, "x.weight_packed");
  Parts scale = Compressed();
  scale["x.weight_scale"].dims = {4, 1};
  ExpectRefused(kCompressed, &scale.m, "x.weight_scale");
}

TEST(JoinGrouped, RefusesABitWidthOrGroupThatTheTensorsDoNotHave) {
  Json other = kGptq;
  other["bits"] = 8;
  Parts p = Gptq();
  ExpectRefused(other, &p.m, "x.qzeros");
  other = kGptq;
  other["group_size"] = 8;
  Parts q = Gptq();
  ExpectRefused(other, &q.m, "x.scales");
  other["dynamic"] = {{"x", {{"bits", 4}}}};  // GPTQModel: a module may differ, and its shapes say how
  Parts r = Gptq();
  EXPECT_TRUE(Join(other, &r.m).ok());
}

TEST(ReadQuantization, RefusesLayoutsThatItDoesNotRead) {
  const auto code = [](Json base, const char* key, Json value) {
    base[key] = std::move(value);
    const auto q = Read(base);
    return std::string(q.ok() ? "ok" : CodeName(q.error().code()));
  };
  EXPECT_EQ(code(kAwq, "version", "gemv"), "unsupported");
  EXPECT_EQ(code(kAwq, "version", "GEMM"), "ok");
  EXPECT_EQ(code(kAwq, "bits", 3), "unsupported");
  EXPECT_EQ(code(kAwq, "group_size", 0), "corrupt");
  EXPECT_EQ(code(kAwq, "group_size", "128"), "corrupt");
  EXPECT_EQ(code(kAwq, "group_size", -1), "ok");
  EXPECT_EQ(code(kGptq, "bits", 5), "unsupported");
  EXPECT_EQ(code(kGptq, "checkpoint_format", "marlin"), "unsupported");
  EXPECT_EQ(code(kCompressed, "format", "marlin-24"), "unsupported");
  EXPECT_EQ(code(kCompressed, "config_groups", nullptr), "corrupt");
  Json floats = kCompressed;
  floats["config_groups"]["group_0"]["weights"]["type"] = "float";
  EXPECT_EQ(Read(floats).error().code(), Code::kUnsupported);
  EXPECT_EQ(Read({{"quant_method", "bitsandbytes"}}).value().method, QuantMethod::kOther);
  EXPECT_EQ(ReadQuantization(Folder::OfTexts({{"config.json", "{}"}})).value().method, QuantMethod::kNone);
  const auto older = ReadQuantization(Folder::OfTexts({{"quant_config.json", R"({"w_bit": 4, "q_group_size": 64, "version": "GEMM"})"}}));
  EXPECT_EQ(older.value().method, QuantMethod::kAwq);
  EXPECT_EQ(older.value().schemes[0].group, 64);
}

}  // namespace
}  // namespace slm::model::hf
