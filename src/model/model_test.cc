// LoadModel on whole files and folders: the tiny models of every architecture, in both containers, and folders that lie.
#include "model/model.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace slm::model {
namespace {

namespace fs = std::filesystem;
const std::string kTiny = SLM_SOURCE_DIR "/tests/tiny/models/";
const std::string kSeeds = SLM_SOURCE_DIR "/tests/corpus/";

std::shared_ptr<const Model> Load(const std::string& path, LoadWhat what = LoadWhat::kAll) {
  auto r = LoadModel(path, what);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message());
  return r.ok() ? r.Take() : nullptr;
}

std::string ErrorOf(const std::string& path, LoadWhat what = LoadWhat::kAll) {
  const auto r = LoadModel(path, what);
  return r.ok() ? "loaded" : std::string(CodeName(r.error().code())) + ": " + r.error().message();
}

std::string ReadFile(const fs::path& p) {
  std::ifstream in(p, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void WriteFile(const fs::path& p, const std::string& text) { std::ofstream(p, std::ios::binary) << text; }

// A folder of its own that goes away.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "slm_model_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  std::string str() const { return path_.string(); }

 private:
  fs::path path_;
};

// The whole seed model as a folder with the given weight files.
void WriteFolder(const fs::path& folder) {
  fs::create_directories(folder);
  WriteFile(folder / "config.json", ReadFile(kSeeds + "config_fuzz/llama.json"));
  WriteFile(folder / "model.safetensors", ReadFile(kSeeds + "safetensors_fuzz/llama.safetensors"));
}

TEST(LoadModel, GgufAndFolderOfTheSameModelAgree) {
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma3", "phi3"}) {
    SCOPED_TRACE(name);
    const auto hf = Load(kTiny + name), gguf = Load(kTiny + name + ".gguf");
    ASSERT_TRUE(hf && gguf);
    const ModelConfig &a = hf->config, &b = gguf->config;
    EXPECT_EQ(a.architecture, b.architecture);
    EXPECT_EQ(std::tie(a.vocab_size, a.d_model, a.n_layers, a.n_heads, a.n_kv_heads, a.head_dim, a.d_ff, a.max_context),
              std::tie(b.vocab_size, b.d_model, b.n_layers, b.n_heads, b.n_kv_heads, b.head_dim, b.d_ff, b.max_context));
    EXPECT_EQ(std::tie(a.qkv_bias, a.o_bias, a.mlp_bias, a.qk_norm, a.post_norms, a.tied_head, a.fused_qkv, a.fused_gate_up,
                       a.sliding_window, a.is_local),
              std::tie(b.qkv_bias, b.o_bias, b.mlp_bias, b.qk_norm, b.post_norms, b.tied_head, b.fused_qkv, b.fused_gate_up,
                       b.sliding_window, b.is_local));
    EXPECT_EQ(a.activation, b.activation);
    EXPECT_FLOAT_EQ(a.rms_eps, b.rms_eps);
    EXPECT_FLOAT_EQ(a.embedding_scale, b.embedding_scale);
    EXPECT_NEAR(a.rope.theta, b.rope.theta, 1e-3);
    EXPECT_EQ(a.rope.rotary_dim, b.rope.rotary_dim);
    EXPECT_EQ(a.rope.scaling, b.rope.scaling);
    EXPECT_FLOAT_EQ(static_cast<float>(a.rope.factor), static_cast<float>(b.rope.factor));
    EXPECT_FLOAT_EQ(static_cast<float>(a.rope.attention_factor), static_cast<float>(b.rope.attention_factor));
    EXPECT_EQ(a.rope.long_factors, b.rope.long_factors);
    EXPECT_NEAR(a.rope_local.theta, b.rope_local.theta, 1e-3);
    EXPECT_FALSE(a.rope.interleaved);
  }
}

TEST(LoadModel, FindsTensorsByRole) {
  const auto m = Load(kTiny + "qwen2.gguf");
  ASSERT_TRUE(m);
  const Tensor* k = m->Find(Role::kK, 1);
  ASSERT_TRUE(k);
  EXPECT_EQ(k->name, "blk.1.attn_k.weight");
  EXPECT_EQ(k->dims, (std::vector<int64_t>{m->config.n_kv_heads * m->config.head_dim, m->config.d_model}));
  EXPECT_TRUE(m->Find(Role::kKBias, 0));
  EXPECT_FALSE(m->Find(Role::kKNorm, 0));
  EXPECT_FALSE(m->Find(Role::kK, 2)) << "no such layer";
  EXPECT_FALSE(m->Find(Role::kK, -1));
  EXPECT_EQ(m->Find(Role::kEmbedding, 7), m->Find(Role::kEmbedding));
}

TEST(LoadModel, SmallModelsOfEveryArchitecture) {
  for (const char* name : {"gemma", "gemma2", "granite", "llama3_rope", "llama_bias", "mistral", "smollm3"})
    EXPECT_TRUE(Load(kTiny + name)) << name;
  EXPECT_EQ(Load(kTiny + "llama3_rope.gguf")->config.rope.freq_factors.size(), 8u);
  EXPECT_TRUE(Load(kTiny + "llama.gguf")->config.rope.interleaved);
}

TEST(LoadModel, VocabularyOnlyAndContainerOnly) {
  const std::string vocabulary = kSeeds + "gguf_fuzz/vocabulary.gguf";
  const auto m = Load(vocabulary, LoadWhat::kTokenizerOnly);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->tokenizer.tokens.size(), 8u);
  EXPECT_EQ(m->tokenizer.tokens[3], "ab");
  EXPECT_EQ(m->tokenizer.add_bos, 1);
  EXPECT_EQ(m->tokenizer.chat_template, "{{ messages }}");
  EXPECT_EQ(m->config.eos_ids, (std::vector<int32_t>{0, 2})) << "the stated one, and a control token that ends a turn";
  EXPECT_NE(ErrorOf(vocabulary), "loaded");
  EXPECT_EQ(Load(kSeeds + "gguf_fuzz/types.gguf", LoadWhat::kContainer)->tensors.size(), 17u);
  EXPECT_NE(ErrorOf(kSeeds + "gguf_fuzz/types.gguf").find("unknown architecture"), std::string::npos);
  EXPECT_EQ(Load(kSeeds + "safetensors_fuzz/llama.safetensors", LoadWhat::kContainer)->format, "safetensors");
}

TEST(LoadModel, SaysWhatIsMissingOrDoesNotFit) {
  Scratch s;
  WriteFolder(s / "m");
  EXPECT_EQ(ErrorOf((s / "m").string()), "loaded");
  std::string config = ReadFile(s / "m/config.json");
  const std::string two_layers = std::string(config).replace(config.find("\"num_hidden_layers\": 1"), 22, "\"num_hidden_layers\": 2");
  WriteFile(s / "m/config.json", two_layers);
  EXPECT_NE(ErrorOf((s / "m").string()).find("model.layers.1.input_layernorm.weight\" is missing"), std::string::npos);
  const std::string wide = std::string(config).replace(config.find("\"intermediate_size\": 8"), 22, "\"intermediate_size\": 9");
  WriteFile(s / "m/config.json", wide);
  EXPECT_NE(ErrorOf((s / "m").string()).find("has shape [8, 8], the config implies [9, 8]"), std::string::npos);
  const std::string untied =
      std::string(config).replace(config.find("\"tie_word_embeddings\": true"), 27, "\"tie_word_embeddings\": false");
  WriteFile(s / "m/config.json", untied);
  EXPECT_NE(ErrorOf((s / "m").string()).find("lm_head.weight\" is missing"), std::string::npos);
  EXPECT_NE(ErrorOf((s / "nowhere").string()).find("not_found"), std::string::npos);
}

TEST(LoadModel, RefusesATensorOfALayerThatItWouldLeaveOut) {
  Scratch s;
  WriteFolder(s / "m");
  std::string weights = ReadFile(s / "m/model.safetensors");
  const auto rename = [&](const char* from, const char* to) {
    std::string changed = weights;
    changed.replace(changed.find(from), std::strlen(from), to);
    WriteFile(s / "m/model.safetensors", changed);
    return ErrorOf((s / "m").string());
  };
  EXPECT_NE(rename("self_attn.v_proj", "self_attn.w_proj").find("missing"), std::string::npos);
  // One more tensor: an empty one costs no data bytes. Header padding is made by shortening the metadata.
  std::string extra = weights;
  const std::string add = R"("model.layers.0.self_attn.sinks":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}, )";
  extra.insert(extra.find("\"model.embed"), add);
  uint64_t n = 0;
  std::memcpy(&n, weights.data(), 8);
  n += add.size();
  std::memcpy(extra.data(), &n, 8);
  WriteFile(s / "m/model.safetensors", extra);
  EXPECT_NE(ErrorOf((s / "m").string()).find("sinks\" has no place"), std::string::npos);
}

TEST(LoadModel, ShardNamesAndLinksCannotLeaveTheFolder) {
  Scratch s;
  WriteFolder(s / "m");
  fs::rename(s / "m/model.safetensors", s / "outside.safetensors");
  const auto with_shard = [&](const std::string& name) {
    std::string index = "{\"weight_map\":{\"model.embed_tokens.weight\":\"" + name + "\"}}";
    WriteFile(s / "m/model.safetensors.index.json", index);
    return ErrorOf((s / "m").string());
  };
  for (const char* name : {"../outside.safetensors", "/dev/zero", "..", ".", "", "a/../../outside.safetensors", "..\\\\outside.safetensors",
                           "x\\u0000.safetensors"})
    EXPECT_NE(with_shard(name).find("corrupt"), std::string::npos) << name;
  fs::create_symlink("../outside.safetensors", s / "m/link.safetensors");
  EXPECT_NE(with_shard("link.safetensors").find("leads out"), std::string::npos);
  fs::create_symlink("loop.safetensors", s / "m/loop.safetensors");
  EXPECT_NE(with_shard("loop.safetensors"), "loaded");
  fs::create_symlink("/dev/zero", s / "m/zero.safetensors");
  EXPECT_NE(with_shard("zero.safetensors").find("leads out"), std::string::npos);
  ASSERT_EQ(::mkfifo((s / "m/pipe.safetensors").c_str(), 0600), 0);
  EXPECT_NE(with_shard("pipe.safetensors").find("not a regular file"), std::string::npos);
  fs::rename(s / "outside.safetensors", s / "m/inside.safetensors");
  fs::create_symlink("inside.safetensors", s / "m/alias.safetensors");
  EXPECT_EQ(with_shard("alias.safetensors"), "loaded") << "a link within the folder";
}

TEST(LoadModel, ASnapshotOfTheHubCacheMayLinkToItsBlobs) {
  Scratch s;
  WriteFolder(s / "models--a--b/snapshots/0123");
  fs::create_directories(s / "models--a--b/blobs");
  fs::rename(s / "models--a--b/snapshots/0123/model.safetensors", s / "models--a--b/blobs/beef");
  fs::create_symlink("../../blobs/beef", s / "models--a--b/snapshots/0123/model.safetensors");
  EXPECT_EQ(ErrorOf((s / "models--a--b/snapshots/0123").string()), "loaded");
}

TEST(LoadModel, ATiedHeadThatDiffersIsAHeadOfItsOwn) {
  Scratch s;
  WriteFolder(s / "m");
  std::string weights = ReadFile(s / "m/model.safetensors");
  uint64_t n = 0;
  std::memcpy(&n, weights.data(), 8);
  const size_t data_bytes = weights.size() - 8 - n;
  const std::string add = ", \"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[" + std::to_string(data_bytes) + "," +
                          std::to_string(data_bytes + 256) + "]}";
  weights.insert(8 + n - 1, add);
  n += add.size();
  std::memcpy(weights.data(), &n, 8);
  weights.append(256, '\0');
  WriteFile(s / "m/model.safetensors", weights);
  EXPECT_TRUE(Load((s / "m").string())->config.tied_head) << "equal";
  weights.back() = 1;
  WriteFile(s / "m/model.safetensors", weights);
  const auto m = Load((s / "m").string());
  EXPECT_FALSE(m->config.tied_head);
  EXPECT_TRUE(m->Find(Role::kHead));
}

TEST(LoadModel, KnowsItsArchitectures) {
  const auto names = KnownArchitectures();
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma3", "phi3"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end());
}

}  // namespace
}  // namespace slm::model
