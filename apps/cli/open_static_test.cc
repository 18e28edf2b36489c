// Folders of static graphs as a back end: the logits of own kernels for prompts of every length, nothing compiled again, and what is
// refused. What needs ONNX Runtime is skipped without it, a failure with SLM_NEED_ORT=1.
#include "open_static.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "export_qdq.h"
#include "ort_flags.h"

namespace slm::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kContext = 320, kChunk = 32;

// The tiny Llama of the tests, said to be made for a longer context.
class StaticFolder : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    char name[] = "/tmp/slm_static_XXXXXX";
    root_ = mkdtemp(name);
    const fs::path tiny = fs::path(SLM_SOURCE_DIR) / "tests/tiny/models/llama";
    fs::copy(tiny, root_ + "/llama", fs::copy_options::recursive);
    json config = json::parse(std::ifstream(tiny / "config.json"));
    config["max_position_embeddings"] = 512;
    std::ofstream(root_ + "/llama/config.json") << config;
    Export("f32", "f32");
    Export("w8", "w8");
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  static void Export(const std::string& weights, const std::string& folder, QdqRequest r = {}) {
    CancelFlag cancel{false};
    Io io{.out = [](std::string_view) { return true; }, .err = [](std::string_view) { return true; }, .store = root_, .cancel = &cancel};
    r.out = root_ + "/" + folder, r.weights = weights, r.context = kContext, r.chunk = kChunk;
    r.calibration.sequences = weights == "f32" ? 0 : 8;
    r.calibration.length = 64;
    auto model = model::LoadModel(root_ + "/llama");
    ASSERT_TRUE(model.ok()) << model.error().message();
    const auto made = ExportQdq(model.Take(), r, io);
    ASSERT_TRUE(made.ok()) << made.error().message();
  }

  void SetUp() override {
    io_.out = io_.err = [](std::string_view) { return true; };
    io_.store = root_;
    io_.cancel = &cancel_;
    if (const auto runtime = OpenOrtRuntime({}, 1); !runtime.ok()) {
      ASSERT_EQ(getenv("SLM_NEED_ORT"), nullptr) << runtime.error().message();
      GTEST_SKIP() << runtime.error().message();
    }
  }

  OpenOptions Options(const std::string& model, backend::LogitsOf logits = backend::LogitsOf::kLastToken) const {
    OpenOptions o;
    o.model = root_ + "/" + model;
    o.context = kContext;
    o.n_threads = 1;
    o.logits = logits;
    return o;
  }
  std::unique_ptr<backend::Backend> Open(const OpenOptions& o) const {
    auto opened = OpenModel(io_, o);
    EXPECT_TRUE(opened.ok()) << opened.error().message();
    return opened.ok() ? std::move(opened.value().backend) : nullptr;
  }
  std::unique_ptr<backend::Backend> OpenOwn(backend::LogitsOf logits = backend::LogitsOf::kLastToken) const {
    OpenOptions own = Options("llama", logits);
    own.kv = own.compute = "f32";
    return Open(own);
  }
  std::string Refusal(const OpenOptions& o) const {
    const auto opened = OpenModel(io_, o);
    return opened.ok() ? "" : opened.error().message();
  }

  static std::vector<int32_t> Tokens(int n) {
    std::vector<int32_t> out = {262};  // the model's begin token
    for (int i = 1; i < n; ++i) out.push_back((37 * i + i / 7) % 199 + 1);
    return out;
  }
  // Logits of the last token.
  static std::vector<float> Feed(backend::Backend& b, std::span<const int32_t> tokens) {
    EXPECT_TRUE(b.Rewind(0).ok());
    std::vector<float> row;
    while (!tokens.empty()) {
      const size_t n = std::min(tokens.size(), static_cast<size_t>(b.capabilities().max_tokens));
      const auto l = b.Forward(tokens.first(n), backend::LogitsOf::kLastToken);
      EXPECT_TRUE(l.ok()) << l.error().message();
      if (!l.ok()) return {};
      row.assign(l.value().Row(0).begin(), l.value().Row(0).end());
      tokens = tokens.subspan(n);
    }
    return row;
  }
  static double Worst(const std::vector<float>& got, const std::vector<float>& want) {
    if (got.size() != want.size()) return INFINITY;
    double worst = 0, top = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::fabs(double{got[i]} - want[i]));
      top = std::max(top, std::fabs(double{want[i]}));
    }
    return worst / top;
  }

  static std::string root_;
  CancelFlag cancel_{false};
  Io io_;
};
std::string StaticFolder::root_;

TEST_F(StaticFolder, PromptsOfEveryLengthAreTheDynamicGraphsAndNothingIsCompiledAgain) {
  OpenOptions o = Options("f32");
  o.device = "SlmTestExecutionProvider";
  o.ort.providers = {std::string("SlmTestExecutionProvider=") + SLM_ORT_TEST_PROVIDER};
  const auto b = Open(o), own = OpenOwn();
  ASSERT_TRUE(b && own);
  void* library = dlopen(SLM_ORT_TEST_PROVIDER, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << "the provider that took the products";
  const auto compilations = reinterpret_cast<int (*)()>(dlsym(library, "SlmTestCompilations"));
  ASSERT_NE(compilations, nullptr);
  const int at_load = compilations();
  EXPECT_GT(at_load, 0);
  const std::vector<int32_t> tokens = Tokens(kContext);
  for (int n = 1; n <= 300; ++n) {
    const auto prompt = std::span(tokens).first(static_cast<size_t>(n));
    ASSERT_LT(Worst(Feed(*b, prompt), Feed(*own, prompt)), 2e-5) << n << " tokens";
  }
  EXPECT_EQ(compilations(), at_load);
  dlclose(library);
}

TEST_F(StaticFolder, DecodesToTheEndOfItsContext) {
  const auto b = Open(Options("w8"));
  ASSERT_TRUE(b);
  const std::vector<int32_t> tokens = Tokens(kContext);
  Feed(*b, std::span(tokens).first(kContext - 8));
  for (int i = kContext - 8; i < kContext; ++i)
    ASSERT_TRUE(b->Forward(std::span(tokens).subspan(static_cast<size_t>(i), 1), backend::LogitsOf::kLastToken).ok());
  EXPECT_EQ(b->used(), kContext);
  EXPECT_EQ(b->Forward(std::span(tokens).first(1), backend::LogitsOf::kLastToken).error().code(), Code::kLimit);
}

// The prefix is in the folder: its keys, values and logits are those that the float model computes.
TEST_F(StaticFolder, ThePrefixIsTheFloatModels) {
  const auto all = backend::LogitsOf::kAllTokens;
  const auto b = Open(Options("w8", all)), own = OpenOwn(all);
  ASSERT_TRUE(b && own);
  const std::vector<int32_t> tokens = Tokens(kChunk);
  const auto got = b->Forward(tokens, all), want = own->Forward(tokens, all);
  ASSERT_TRUE(got.ok() && want.ok());
  const auto row = [](const backend::Logits& l, int i) { return std::vector<float>(l.Row(i).begin(), l.Row(i).end()); };
  EXPECT_LT(Worst(row(got.value(), 0), row(want.value(), 0)), 2e-5) << "what follows the prefix is in the folder as f32";
  for (int i = 1; i < kChunk; ++i) EXPECT_LT(Worst(row(got.value(), i), row(want.value(), i)), 0.2) << i;
  ASSERT_TRUE(b->Rewind(0).ok());
  const auto first = b->Forward(std::span(tokens).first(1), backend::LogitsOf::kLastToken);
  ASSERT_TRUE(first.ok());
  EXPECT_LT(Worst(row(first.value(), 0), row(want.value(), 0)), 2e-5);
}

// The graph for one token, read as one for any number. Own kernels round no activation: they are nearer to the float graph than the
// folder's own runtime.
TEST_F(StaticFolder, OwnKernelsComputeTheSame) {
  const auto all = backend::LogitsOf::kAllTokens;
  const std::vector<int32_t> tokens = Tokens(100);
  for (const auto& [folder, worst, rms] : {std::tuple{"f32", 2e-5, 1e-5}, {"w8", 0.02, 0.005}}) {
    OpenOptions own = Options(folder, all);
    own.backend = "cpu";
    own.kv = own.compute = "f32";
    const auto b = Open(Options(folder, all)), mine = Open(own);
    ASSERT_TRUE(b && mine);
    EXPECT_EQ(mine->capabilities().max_context, kContext);
    double squares = 0, spread = 0;
    for (size_t at = 0; at < tokens.size(); at += 20) {
      const auto part = std::span(tokens).subspan(at, 20);
      const auto want = b->Forward(part, all), got = mine->Forward(part, all);
      ASSERT_TRUE(want.ok() && got.ok());
      for (int i = 0; i < 20; ++i) {
        const std::vector<float> x(got.value().Row(i).begin(), got.value().Row(i).end()),
            y(want.value().Row(i).begin(), want.value().Row(i).end());
        EXPECT_LT(Worst(x, y), worst) << folder << ", token " << at + static_cast<size_t>(i);
        for (size_t k = 0; k < x.size(); ++k) squares += (double{x[k]} - y[k]) * (double{x[k]} - y[k]), spread += double{y[k]} * y[k];
      }
    }
    EXPECT_LT(std::sqrt(squares / spread), rms) << folder;
  }
}

TEST_F(StaticFolder, SequencesWithoutThePrefixAreRefused) {
  const auto b = Open(Options("w8"));
  ASSERT_TRUE(b);
  const std::vector<int32_t> other = {5, 6, 7};
  const auto r = b->Forward(other, backend::LogitsOf::kLastToken);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kInvalidArgument);
  EXPECT_NE(r.error().message().find("is 5, and these graphs need 262"), std::string::npos) << r.error().message();
  EXPECT_EQ(b->used(), 0);
}

// A prompt on the integer graphs, the tokens after it on own kernels, and the other way round.
TEST_F(StaticFolder, HandsItsCacheOver) {
  OpenOptions o = Options("llama");
  o.prefill_model = root_ + "/w8";
  o.kv = "f32";  // of the side that own kernels compute
  const auto opened = OpenModel(io_, o);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened.value().kv_type, "int16+f32");
  ASSERT_NE(opened.value().hand_over, nullptr);
  EXPECT_EQ(opened.value().begin, std::vector<int32_t>{262});
  const std::vector<int32_t> tokens = Tokens(60);
  const auto alone = Open(Options("w8"));
  ASSERT_TRUE(alone);
  const auto feed = [&](backend::Backend& b) {
    Feed(b, std::span(tokens).first(50));
    std::vector<float> last;
    for (size_t i = 50; i < 60; ++i) {
      const auto l = b.Forward(std::span(tokens).subspan(i, 1), backend::LogitsOf::kLastToken);
      EXPECT_TRUE(l.ok());
      if (l.ok()) last.assign(l.value().Row(0).begin(), l.value().Row(0).end());
    }
    return last;
  };
  const auto both = feed(*opened.value().backend);
  EXPECT_LT(Worst(both, feed(*alone)), 0.2);
  const auto own = OpenOwn();
  ASSERT_TRUE(own);
  EXPECT_LT(Worst(both, feed(*own)), 0.2);
  EXPECT_EQ(opened.value().hand_over->tokens, 50);
}

// One damage each: the message names what does not fit, and nothing is read past a table.
TEST_F(StaticFolder, DamagedFoldersAreRefused) {
  const json sound = json::parse(std::ifstream(root_ + "/w8/manifest.json"));
  struct Row {
    const char* says;
    std::function<void(json&)> damage;
  };
  const std::vector<Row> rows = {
      {"slmkit-static", [](json& j) { j["version"] = 2; }},
      {"context", [](json& j) { j["context"] = 0; }},
      {"rope", [](json& j) { j["context"] = 4096; }},
      {"embedding", [](json& j) { j["model"]["vocab_size"] = 100000; }},
      {"layers", [](json& j) { j["model"]["layers"] = 5000; }},
      {"prefix_key.2", [](json& j) { j["model"]["layers"] = 3, j["cache"].erase("key_scales"), j["cache"].erase("value_scales"); }},
      {"key_scales",
       [](json& j) {
         j["cache"]["key_scales"] = {1.0, -1.0};
       }},
      {"tokens", [](json& j) { j["graphs"][0]["tokens"] = 0; }},
      {"the description says", [](json& j) { j["graphs"][0]["tokens"] = 64; }},
      {"../w8/prefill.onnx", [](json& j) { j["graphs"][0]["file"] = "../w8/prefill.onnx"; }},
      {"absent.safetensors", [](json& j) { j["host_file"] = "absent.safetensors"; }},
      {"no tensor", [](json& j) { j["inputs"][0]["table"] = "nothing"; }},
      {"\"masked\"",
       [](json& j) {
         for (auto& i : j["inputs"])
           if (i["rows"] == "mask") i["masked"] = 70000;
       }},
      {"vocabulary", [](json& j) { j["prefix"]["tokens"] = {100000}; }},
      {"prefix_key.0",
       [](json& j) {
         j["prefix"]["tokens"] = {262, 5};
       }},
      {"the graph has no", [](json& j) { j["logits"]["name"] = "other"; }},
      {"no sum of", [](json& j) { j["files"].erase("decode.onnx"); }},
  };
  fs::copy(root_ + "/w8", root_ + "/bad", fs::copy_options::recursive);
  for (const Row& row : rows) {
    json j = sound;
    row.damage(j);
    std::ofstream(root_ + "/bad/manifest.json") << j;
    const std::string said = Refusal(Options("bad"));
    EXPECT_NE(said.find(row.says), std::string::npos) << row.says << ": " << said;
  }
  fs::remove_all(root_ + "/bad");
}

// ONNX Runtime would run any bytes: zeros as weights, or the graph of another export.
TEST_F(StaticFolder, FilesThatAreNotTheManifestsAreRefused) {
  for (const char* file : {"weights.bin", "decode.onnx", "prefill.onnx", "host.safetensors"}) {
    fs::copy(root_ + "/w8", root_ + "/other", fs::copy_options::recursive);
    std::fstream f(root_ + "/other/" + file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(-9, std::ios::end);
    f.put('!');
    f.close();
    const std::string said = Refusal(Options("other"));
    EXPECT_NE(said.find(file), std::string::npos) << said;
    EXPECT_NE(said.find("SHA-256"), std::string::npos) << said;
    fs::remove_all(root_ + "/other");
  }
}

TEST_F(StaticFolder, BothSidesHaveOneContext) {
  OpenOptions o = Options("llama");
  o.context = 0;  // own kernels would take 512
  o.prefill_model = root_ + "/w8";
  const auto opened = OpenModel(io_, o);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened.value().backend->capabilities().max_context, kContext);
  const auto alone = Open(Options("w8"));
  ASSERT_TRUE(alone);
  EXPECT_LT(opened.value().backend->capabilities().kv_bytes, 3 * alone->capabilities().kv_bytes) << "int16 and f16, each about as large";
}

TEST_F(StaticFolder, OwnKernelsSayWhatTheyDoNotTake) {
  Export("f32", "four", {.decode = 4});
  Export("f32", "columns", {.keys = "columns"});
  for (const auto& [folder, says] : {std::pair{"four", "decode.onnx: a graph for 4 tokens"}, {"columns", "layers.0.k_rope.low"}}) {
    OpenOptions o = Options(folder);
    o.backend = "cpu";
    EXPECT_NE(Refusal(o).find(says), std::string::npos) << Refusal(o);
  }
}

}  // namespace
}  // namespace slm::cli
