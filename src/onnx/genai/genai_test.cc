// Pipelines in genai_config.json: the order of the stages, and what contradicts itself.
#include "onnx/genai/genai.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace slm::onnx {
namespace {

// A configuration with this "pipeline", and more keys of the decoder.
std::string Config(const std::string& pipeline, const std::string& more = "") {
  return R"({"model": {"type": "decoder-pipeline", "decoder": {"num_hidden_layers": 2)" + more + R"(, "pipeline": )" + pipeline + "}}}";
}
std::string Stage(const std::string& name, const std::string& file, const std::string& more = "") {
  return fmt::format(R"("{}": {{"filename": "{}", "inputs": ["x"], "outputs": ["y"]{}}})", name, file, more);
}
std::string Message(const std::string& text) {
  const auto c = ParseGenAiConfig(text);
  return c.ok() ? "" : c.error().message();
}
void ExpectRefusal(const std::string& text, const std::string& part) {
  EXPECT_NE(Message(text).find(part), std::string::npos) << part << " is not in: " << Message(text);
}

// A parsed object has its keys in another order than the text, and so would the stages: they run as they are written.
TEST(GenAiPipeline, StagesAreInTheOrderOfTheText) {
  for (const bool in_one : {true, false}) {
    const std::string between = in_one ? ", " : "}, {";
    const auto c = ParseGenAiConfig(Config("[{" + Stage("z", "z.onnx", R"(, "run_on_token_gen": false)") + between +
                                           Stage("head", "h.onnx", R"(, "output_names_forwarder": {"y": "logits"}, "is_lm_head": true)") +
                                           between + Stage("a", "a.onnx") + "}]"));
    ASSERT_TRUE(c.ok()) << c.error().message();
    const std::vector<GenAiStage>& s = c.value().stages;
    ASSERT_EQ(s.size(), 3u);
    EXPECT_EQ(s[0].name + s[1].name + s[2].name, "zheada");
    EXPECT_EQ(s[0].file, "z.onnx");
    EXPECT_FALSE(s[0].on_token);
    EXPECT_TRUE(s[0].on_prompt && s[1].on_token);
    EXPECT_EQ(s[1].inputs, std::vector<std::string>{"x"});
    EXPECT_EQ(s[1].forwarded.at("y"), "logits");
    EXPECT_EQ(c.value().files.size(), 3u);
    EXPECT_TRUE(OnlyPipeline(c.value()));
    EXPECT_FALSE(OnlyDecoder(c.value()));
  }
}

TEST(GenAiPipeline, ADecoderBesideStagesIsNoPipeline) {
  const auto c = ParseGenAiConfig(Config("[{" + Stage("a", "a.onnx") + "}]", R"(, "filename": "model.onnx")"));
  ASSERT_TRUE(c.ok());
  EXPECT_FALSE(OnlyPipeline(c.value()) || OnlyDecoder(c.value()));
}

TEST(GenAiPipeline, AWindowSlidesUnlessItSaysOtherwise) {
  const auto slides = [](const std::string& window) {
    return ParseGenAiConfig(Config("[{" + Stage("a", "a.onnx") + "}]", window)).Take().slides_cache;
  };
  EXPECT_FALSE(slides(""));
  EXPECT_TRUE(slides(R"(, "sliding_window": {"window_size": 64})"));
  EXPECT_FALSE(slides(R"(, "sliding_window": {"window_size": 64, "slide_key_value_cache": false})"));
}

TEST(GenAiPipeline, WhatContradictsItselfIsRefused) {
  ExpectRefusal(Config("[{" + Stage("a", "a.onnx") + ", " + Stage("a", "b.onnx") + "}]"), "called the same");
  ExpectRefusal(Config("[{" + Stage("a", "a.onnx") + "}, {" + Stage("a", "b.onnx") + "}]"), "two stages");
  ExpectRefusal(Config("[{" + Stage("a", "") + "}]"), "no \"filename\"");
  ExpectRefusal(Config("[{" + Stage("a", "a.onnx", R"(, "output_names_forwarder": {"other": "z"})") + "}]"), "no output of the stage");
  ExpectRefusal(Config("[{" + Stage("a", "a.onnx", R"(, "output_names_forwarder": {"y": 1})") + "}]"), "an object of names");
  ExpectRefusal(Config(R"([{"a": {"filename": "a.onnx", "inputs": ["x", "x"]}}])"), "names \"x\" twice");
  ExpectRefusal(Config(R"([{"a": {"filename": "a.onnx", "inputs": [""]}}])"), "a list of names");
  ExpectRefusal(Config(R"([{"a": 1}])"), "objects of objects");
  ExpectRefusal(Config(R"({"a": {}})"), "a list");
  std::string many = "[{" + Stage("0", "0.onnx");
  for (int i = 1; i < 1000; ++i) many += ", " + Stage(std::to_string(i), fmt::format("{}.onnx", i));
  ExpectRefusal(Config(many + "}]"), "1000 stages");
  // The keys of another "pipeline" are not those of this one.
  ExpectRefusal(
      R"({"model": {"decoder": {"pipeline": [{"a": {"filename": "a.onnx"}}]}, "decoder": {"pipeline": [{"b": {"filename": "b.onnx"}}]}}})",
      "stands twice");
}

}  // namespace
}  // namespace slm::onnx
