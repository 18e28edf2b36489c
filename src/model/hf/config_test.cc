// config.json in both spellings, and everything that must be refused rather than ignored. Wanted values: transformers' own
// configuration classes and published models' values where a number is given.
#include "model/hf/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace slm::model::hf {
namespace {

using Json = nlohmann::json;

Json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 64},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 300},
          {"intermediate_size", 96},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"max_position_embeddings", 512},
          {"tie_word_embeddings", false}};
}

Json As(const char* hf_class, const char* type) {
  Json j = Llama();
  j["architectures"] = {hf_class};
  j["model_type"] = type;
  return j;
}

ModelConfig Read(const Json& j) {
  auto r = ParseConfig(j.dump());
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message());
  return r.ok() ? r.Take() : ModelConfig();
}

// Code name of the refusal, or "ok".
std::string Refusal(const Json& j) {
  const auto r = ParseConfig(j.dump());
  if (r.ok()) return "ok";
  EXPECT_FALSE(r.error().hint().empty());
  return CodeName(r.error().code());
}

std::string RefusalWith(const char* key, Json value) {
  Json j = Llama();
  j[key] = std::move(value);
  return Refusal(j);
}

TEST(HfConfig, PlainLlama) {
  const ModelConfig c = Read(Llama());
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rope.rotary_dim, 16);
  EXPECT_FALSE(c.rope.interleaved);
  EXPECT_FALSE(c.tied_head || c.qkv_bias || c.qk_norm || c.post_norms);
  EXPECT_TRUE(c.is_local.empty() && c.no_rope.empty());
  EXPECT_EQ(c.norm_offset, 0);
  EXPECT_EQ(c.attention_scale, 0);
}

TEST(HfConfig, Llama3RopeInBothSpellings) {
  const Json params = {{"rope_type", "llama3"},
                       {"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 128}};
  Json before = Llama(), after = Llama();
  before["rope_theta"] = 500000.0;
  before["rope_scaling"] = params;
  after.erase("rope_theta");
  after["rope_parameters"] = params;
  after["rope_parameters"]["rope_theta"] = 500000.0;
  for (const Json& j : {before, after}) {
    const RopeConfig r = Read(j).rope;
    EXPECT_EQ(r.scaling, RopeScaling::kLlama3);
    EXPECT_EQ(r.theta, 500000.0);
    EXPECT_EQ(r.factor, 32.0);
    EXPECT_EQ(r.original_context, 128);
  }
}

// As LlamaConfig and Gemma3TextConfig of transformers 5.24 print `rope_parameters` for such files.
TEST(HfConfig, OfTwoRopeObjectsTheOlderNameCounts) {
  const Json linear = {{"rope_type", "linear"}, {"factor", 4.0}}, plain = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  Json j = Llama();
  j["rope_theta"] = 700000.0;
  j["rope_scaling"] = linear;
  j["rope_parameters"] = plain;
  EXPECT_EQ(Read(j).rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(Read(j).rope.factor, 4.0);
  EXPECT_EQ(Read(j).rope.theta, 700000.0);
  j["rope_scaling"] = Json::object();
  EXPECT_EQ(Read(j).rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(Read(j).rope.theta, 500000.0);
  Json gemma = As("Gemma3ForCausalLM", "gemma3_text");
  gemma.erase("hidden_act");
  gemma["rope_scaling"] = linear;
  gemma["rope_parameters"] = {{"full_attention", plain}, {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  const ModelConfig c = Read(gemma);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(c.rope.theta, 500000.0);
  EXPECT_EQ(c.rope_local.scaling, RopeScaling::kNone);
}

TEST(HfConfig, PartOfAHeadIsRotatedOnlyWhereTheModelDoesSo) {
  Json j = Llama();
  j["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(Refusal(j), "corrupt");
  j["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(Read(j).rope.rotary_dim, 16);
}

TEST(HfConfig, LongRopeAttentionFactorIsThatOfPhi35Mini) {
  Json j = As("Phi3ForCausalLM", "phi3");
  j["max_position_embeddings"] = 131072;
  j["original_max_position_embeddings"] = 4096;
  j["partial_rotary_factor"] = 0.75;
  j["rope_scaling"] = {{"type", "longrope"}, {"long_factor", Json::array()}, {"short_factor", Json::array()}};
  for (int i = 0; i < 6; ++i) j["rope_scaling"]["long_factor"].push_back(1.0 + i), j["rope_scaling"]["short_factor"].push_back(1.0);
  j["sliding_window"] = 262144;
  const ModelConfig c = Read(j);
  EXPECT_EQ(c.rope.rotary_dim, 12);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(c.rope.original_context, 4096);
  EXPECT_NEAR(c.rope.attention_factor, 1.1902380714238083, 1e-15);  // as transformers prints it for Phi-3.5-mini
  EXPECT_EQ(c.sliding_window, 0) << "longer than the context: no window at all";
  EXPECT_TRUE(c.fused_qkv && c.fused_gate_up);
  j["rope_scaling"]["short_factor"].push_back(1.0);
  EXPECT_EQ(Refusal(j), "corrupt");
}

TEST(HfConfig, Gemma3InBothSpellings) {
  Json before = As("Gemma3ForCausalLM", "gemma3_text");
  before.erase("hidden_act");
  before.erase("tie_word_embeddings");
  before["hidden_activation"] = "gelu_pytorch_tanh";
  before["num_hidden_layers"] = 7;
  before["head_dim"] = 16;
  before["sliding_window"] = 128;
  before["query_pre_attn_scalar"] = 64;
  before["rope_theta"] = 1e6;
  before["rope_local_base_freq"] = 1e4;
  before["rope_scaling"] = {{"factor", 8.0}, {"rope_type", "linear"}};
  Json after = before;
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) after.erase(key);
  after["layer_types"] = Json::array();
  for (int i = 0; i < 7; ++i) after["layer_types"].push_back(i == 5 ? "full_attention" : "sliding_attention");
  after["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  Json whole = {{"architectures", {"Gemma3ForConditionalGeneration"}}, {"model_type", "gemma3"}, {"text_config", before}};
  whole["text_config"].erase("architectures");
  for (const Json& j : {before, after, whole}) {
    const ModelConfig c = Read(j);
    EXPECT_EQ(c.architecture, "gemma3");
    EXPECT_EQ(c.is_local, (std::vector<uint8_t>{1, 1, 1, 1, 1, 0, 1}));
    EXPECT_EQ(c.rope.theta, 1e6);
    EXPECT_EQ(c.rope.factor, 8.0);
    EXPECT_EQ(c.rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(c.rope_local.theta, 1e4);
    EXPECT_EQ(c.rope_local.scaling, RopeScaling::kNone);
    EXPECT_EQ(c.activation, Activation::kGeluTanh);
    EXPECT_EQ(c.norm_offset, 1);
    EXPECT_EQ(c.embedding_scale, 8.0f);
    EXPECT_EQ(c.attention_scale, 0.125f);
    EXPECT_TRUE(c.tied_head && c.qk_norm && c.post_norms);
  }
  before["use_bidirectional_attention"] = true;
  EXPECT_EQ(Refusal(before), "unsupported");
}

TEST(HfConfig, WindowsOfTheOtherArchitectures) {
  Json mistral = As("MistralForCausalLM", "mistral");
  mistral["sliding_window"] = 128;
  EXPECT_EQ(Read(mistral).is_local, (std::vector<uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(Read(mistral).rope_local.theta, 10000.0) << "local layers rotate like global ones";
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(Read(mistral).sliding_window, 0);
  Json qwen = As("Qwen2ForCausalLM", "qwen2");
  qwen["sliding_window"] = 128;
  qwen["use_sliding_window"] = false;
  qwen["max_window_layers"] = 1;
  EXPECT_TRUE(Read(qwen).is_local.empty());
  EXPECT_TRUE(Read(qwen).qkv_bias && !Read(qwen).o_bias);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(Read(qwen).is_local, (std::vector<uint8_t>{0, 1, 1, 1}));
  Json gemma2 = As("Gemma2ForCausalLM", "gemma2");
  gemma2["head_dim"] = 16;
  gemma2["sliding_window"] = 128;
  const ModelConfig c = Read(gemma2);
  EXPECT_EQ(c.is_local, (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(c.attention_softcap, 50.0f) << "class default";
  EXPECT_EQ(c.logit_softcap, 30.0f);
}

TEST(HfConfig, LayersWithoutRope) {
  Json j = As("SmolLM3ForCausalLM", "smollm3");
  EXPECT_EQ(Read(j).no_rope, (std::vector<uint8_t>{0, 0, 0, 1})) << "every fourth, by class default";
  j["no_rope_layers"] = {1, 0, 1, 1};  // 1 means that the layer rotates
  EXPECT_EQ(Read(j).no_rope, (std::vector<uint8_t>{0, 1, 0, 0}));
  j["no_rope_layers"] = {1, 0};
  EXPECT_EQ(Refusal(j), "corrupt");
}

TEST(HfConfig, RefusesWhatItWouldComputeWrongly) {
  EXPECT_EQ(RefusalWith("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}), "unsupported");
  EXPECT_EQ(RefusalWith("rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}), "unsupported");
  EXPECT_EQ(RefusalWith("hidden_act", "relu2"), "unsupported");
  EXPECT_EQ(RefusalWith("num_local_experts", 8), "unsupported");
  EXPECT_EQ(RefusalWith("is_encoder_decoder", true), "unsupported");
  EXPECT_EQ(RefusalWith("model_type", "other"), "unsupported");
  EXPECT_EQ(RefusalWith("architectures", {"LlamaForSequenceClassification"}), "unsupported");
  Json qwen = As("Qwen3ForCausalLM", "qwen3");
  qwen["layer_types"] = {"linear_attention", "full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(Refusal(qwen), "unsupported");
}

TEST(HfConfig, RefusesWhatCannotBe) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size", "max_position_embeddings"})
    for (const Json& bad : {Json(0), Json(-1), Json(1.5), Json("64"), Json(uint64_t{1} << 62), Json(true), Json::array()})
      EXPECT_EQ(RefusalWith(key, bad), "corrupt") << key << " " << bad;
  EXPECT_EQ(RefusalWith("num_key_value_heads", 3), "corrupt");
  EXPECT_EQ(RefusalWith("head_dim", 15), "corrupt") << "odd: cannot rotate";
  EXPECT_EQ(RefusalWith("rms_norm_eps", 0.0), "corrupt");
  EXPECT_EQ(RefusalWith("rope_theta", -1.0), "corrupt");
  EXPECT_EQ(RefusalWith("eos_token_id", 300), "corrupt");
  EXPECT_EQ(RefusalWith("eos_token_id", {1, "2"}), "corrupt");
  EXPECT_EQ(Refusal(Json::array()), "corrupt");
  EXPECT_FALSE(ParseConfig("").ok());
  EXPECT_FALSE(ParseConfig(std::string(100000, '[')).ok());
}

TEST(HfConfig, EndTokensOfBothFiles) {
  Json j = Llama();
  j["eos_token_id"] = 5;
  ModelConfig c = Read(j);
  ASSERT_TRUE(AddGenerationConfig(R"({"eos_token_id":[7,5,9],"bos_token_id":1})", &c).ok());
  EXPECT_EQ(c.eos_ids, (std::vector<int32_t>{5, 7, 9}));
  EXPECT_EQ(c.bos_ids, (std::vector<int32_t>{1}));
  EXPECT_FALSE(AddGenerationConfig(R"({"eos_token_id":[-1]})", &c).ok());
}

}  // namespace
}  // namespace slm::model::hf
