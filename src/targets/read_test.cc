// Descriptions: what the executable holds, inheritance, and errors that name their place.
#include "targets/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "targets/builtin.h"
#include "targets/targets.h"

namespace slm::targets {
namespace {

using onnx::ElementType;
using testing::HasSubstr;

// A whole description with `rows` and `more` keys.
std::string Text(const std::string& rows, const std::string& more = "") {
  return R"({"schema": 1, "name": "t", "sources": {"s": {"measured": "x 1"}}, "unlisted": {"reason": "no", "source": "s"}, "operators": [)" +
         rows + "]" + (more.empty() ? "" : ", " + more) + "}";
}
std::string ErrorOf(const std::string& text) {
  const auto t = ParseTarget(text, "file");
  return t.ok() ? "" : t.error().message();
}
const Row& FirstRow(const Target& t, const std::string& op) { return t.description().rows.at({"", op})[0]; }

TEST(Descriptions, AllOfTheExecutableAreRead) {
  EXPECT_THAT(TargetNames(), testing::IsSupersetOf({"cpu-x86", "cpu-arm64", "qnn-htp-v73", "qnn-htp-v75", "qnn-htp-v79", "qnn-htp-v81",
                                                    "openvino-npu-3720", "openvino-npu-4000", "openvino-npu-5010", "directml", "webgpu",
                                                    "webnn", "coreml", "vitisai"}));
  for (const BuiltIn& file : BuiltInFiles()) {
    const auto t = FindTarget(file.name);
    ASSERT_TRUE(t.ok()) << t.error().message();
    EXPECT_EQ(t.value().name(), file.name);
    EXPECT_FALSE(t.value().title().empty()) << file.name;
  }
}

TEST(Descriptions, AnUnknownNameListsTheOthers) {
  const auto t = FindTarget("qnn-htp-v99");
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.error().code(), Code::kNotFound);
  EXPECT_THAT(t.error().hint(), HasSubstr("qnn-htp-v73"));
}

TEST(Descriptions, TypesAreReadAsOnnxSpellsThem) {
  EXPECT_EQ(TypeNamed("float16"), Plain(ElementType::kFloat16));
  EXPECT_EQ(TypeNamed("q.uint4"), Quantized(ElementType::kUint4));
  EXPECT_EQ(TypeNamed("undefined"), 0u);
  EXPECT_EQ(TypeNamed("FLOAT"), 0u);
  EXPECT_EQ(TypeNames(Plain(ElementType::kFloat) | Quantized(ElementType::kUint8)), "float, q.uint8");
}

TEST(Descriptions, ARowSaysWhatItAsks) {
  const auto t =
      ParseTarget(Text(R"({"op": ["A", "B"], "opset": [7, 12], "in_each": ["wide", null, "int64"], "out": "float", "rank": [1, 4],
                                     "constant": [1], "with": {"axis": ["last", null], "mode": "x"}, "source": "s"})",
                       R"("types": {"wide": ["float", "double"]})"),
                  "file");
  ASSERT_TRUE(t.ok()) << t.error().message();
  const Row& row = FirstRow(t.value(), "B");
  EXPECT_EQ(row.first_opset, 7);
  EXPECT_EQ(row.last_opset, 12);
  EXPECT_EQ(row.in.Of(0), Plain(ElementType::kFloat) | Plain(ElementType::kDouble));
  EXPECT_EQ(row.in.Of(1), kAnyType);
  EXPECT_EQ(row.in.Of(2), Plain(ElementType::kInt64));
  EXPECT_EQ(row.in.Of(3), kAnyType);
  EXPECT_EQ(row.out.Of(5), Plain(ElementType::kFloat));
  EXPECT_EQ(row.most_rank, 4);
  EXPECT_EQ(row.constant, std::vector<size_t>{1});
  ASSERT_EQ(row.attributes.size(), 2u);
  EXPECT_TRUE(row.attributes[0].last_axis && row.attributes[0].absent);
  EXPECT_EQ(row.attributes[1].texts, std::vector<std::string>{"x"});
}

TEST(Descriptions, OwnRowsComeBeforeInheritedOnes) {
  const auto base = FindTarget("qnn-htp-v73");
  const auto t = ParseTarget(R"({"schema": 1, "name": "mine", "extends": "qnn-htp-v73", "sources": {"m": {"assumed": "y"}},
                                 "operators": [{"op": "Tanh", "native": false, "reason": "mine", "source": "m"}]})",
                             "file");
  ASSERT_TRUE(t.ok()) << t.error().message();
  const auto& rows = t.value().description().rows.at({"", "Tanh"});
  EXPECT_EQ(rows[0].reason, "mine");
  EXPECT_EQ(rows.size(), base.value().description().rows.at({"", "Tanh"}).size() + 1);
  EXPECT_TRUE(t.value().description().static_only);
}

TEST(Descriptions, ErrorsNameTheirPlace) {
  const struct {
    std::string text, message;
  } kCases[] = {
      {"[", "file: not valid JSON"},
      {"[]", "file: not an object"},
      {R"({"schema": 2, "name": "t"})", "file: schema: 2"},
      {Text("", R"("colour": 1)"), "file: unknown key \"colour\""},
      {Text(R"({"op": "MatMul", "in_each": ["flaot"], "source": "s"})"),
       "file: operators[0] (MatMul): in_each[0]: no element type \"flaot\""},
      {Text(R"({"op": "MatMul", "typs": [], "source": "s"})"), "operators[0] (MatMul): unknown key \"typs\""},
      {Text(R"({"op": "MatMul"})"), "operators[0] (MatMul): source: none given"},
      {Text(R"({"op": "MatMul", "source": "z"})"), "source: \"z\" is not in \"sources\""},
      {Text(R"({"op": "MatMul", "native": false, "source": "s"})"), "reason: none given for a row that refuses"},
      {Text(R"({"op": "MatMul", "opset": [9, 3], "source": "s"})"), "opset: ends before it begins"},
      {Text(R"({"op": "MatMul", "constant": [64], "source": "s"})"), "constant: not a list of numbers from 0 to 63"},
      {Text(R"({"op": 3, "source": "s"})"), "op: not a string or a list of strings"},
      {Text(R"({"source": "s"})"), "operators[0]: op: none given"},
      {Text("7"), "operators[0]: not an object"},
      {Text("", R"("types": {"float": "int8"})"), "types: float: is an element type already"},
      {Text("", R"("extends": "nobody")"), "file: extends: no target \"nobody\""},
      {Text("", R"("fallback": {"target": "cpu-x86"})"), "fallback: source: none given"},
      {Text("", R"("limits": [{"what": "weights_bytes", "most": 0, "source": "s"}])"), "limits[0]: most: not above 0"},
      {Text("", R"("limits": [{"what": "hope", "most": 1, "source": "s"}])"), "limits[0]: what: no limit of that name"},
      {R"({"schema": 1, "name": "t", "sources": {"s": {"measured": "x", "assumed": "y"}}})", "sources.s: source: needs one of"},
      {R"({"schema": 1, "name": "t"})", "file: unlisted: says no reason"},
  };
  for (const auto& c : kCases) EXPECT_THAT(ErrorOf(c.text), HasSubstr(c.message)) << c.text;
}

TEST(Descriptions, CutAnywhereTheyAreRefused) {
  const std::string_view whole = BuiltInFiles()[0].text;
  const size_t end = whole.rfind('}');
  for (size_t n = 0; n < end; n += n < 2000 ? 1 : 97) EXPECT_FALSE(ParseTarget(whole.substr(0, n), "cut").ok()) << n;
}

}  // namespace
}  // namespace slm::targets
