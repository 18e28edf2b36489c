// The ONNX Runtime back end against transformers' logits, its limits, and where nodes run. What needs the library is skipped without it.
#include "backend/ort/ort.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/cpu/tiny_for_test.h"
#include "backend/ort/copies.h"
#include "backend/ort/runtime_for_test.h"

namespace slm::backend::ort {
namespace {

constexpr const char* kTestProvider = "SlmTestExecutionProvider";
const std::vector<ProviderLibrary> kTestLibrary = {{kTestProvider, SLM_ORT_TEST_PROVIDER}};

std::unique_ptr<Backend> Open(const std::shared_ptr<Runtime>& runtime, const OrtOptions& o) {
  auto b = CreateOrtBackend(runtime, TinyDecoder(), o);
  EXPECT_TRUE(b.ok()) << (b.ok() ? "" : b.error().message());
  return b.ok() ? std::move(b.value().backend) : nullptr;
}

OrtOptions Options() {
  OrtOptions o;
  o.context = 64;
  o.chunk = 32;
  return o;
}

TEST(OrtLibrary, SaysHowToGetIt) {
  const auto r = OpenRuntime({.places = {"/nowhere/at/all.so", std::string(SLM_SOURCE_DIR) + "/docs"}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kUnavailable);
  EXPECT_NE(r.error().message().find("docs: no libonnxruntime.so in it"), std::string::npos) << r.error().message();
  EXPECT_NE(r.error().hint().find("./dev ort"), std::string::npos);
}

TEST(OrtLibrary, RefusesOthers) {
  const auto other = OpenRuntime({.places = {SLM_ORT_TEST_PROVIDER}});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message().find("not ONNX Runtime"), std::string::npos) << other.error().message();
  const auto old = OpenRuntime({.places = {SLM_ORT_OLD_RUNTIME}});
  ASSERT_FALSE(old.ok());
  EXPECT_EQ(old.error().code(), Code::kUnsupported);
  EXPECT_NE(old.error().message().find("1.20.1 is too old; 1.24"), std::string::npos) << old.error().message();
}

TEST(OrtLibrary, KnowsItsProviders) {
  const auto runtime = OpenForTest(kTestLibrary);
  SLM_ORT_OR_SKIP(runtime);
  const RuntimeInfo info = Describe(*runtime);
  EXPECT_GE(info.api, kOldestApi);
  EXPECT_LE(info.api, kNewestApi);
  std::map<std::string, std::string> devices;
  for (const Provider& p : info.providers) devices[p.name] = p.device;
  EXPECT_EQ(devices["CPUExecutionProvider"], "cpu");
  EXPECT_EQ(devices[kTestProvider], "cpu");
  const auto absent = OpenRuntime({.places = {OrtForTest()}, .providers = {{"X", "/nowhere/x.so"}}});
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code(), Code::kNotFound);
}

TEST(OrtBackend, LogitsEqualTransformers) {
  const auto runtime = OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  const Expected e = ExpectedOf("qwen3");
  const std::span<const int32_t> prompt(e.prompt);
  // In one piece, in pieces, token by token: the row after the prompt.
  for (const size_t at_once : {size_t{32}, size_t{7}, size_t{1}}) {
    auto b = Open(runtime, Options());
    ASSERT_TRUE(b);
    Logits l;
    for (auto rest = prompt; !rest.empty(); rest = rest.subspan(std::min(at_once, rest.size()))) {
      auto r = b->Forward(rest.first(std::min(at_once, rest.size())), LogitsOf::kLastToken);
      ASSERT_TRUE(r.ok()) << r.error().message();
      l = r.Take();
    }
    EXPECT_LE(RelativeError(l.Row(0), std::span(e.logits).last(e.vocab)), e.tolerance) << at_once;
  }
}

TEST(OrtBackend, RowsOfAllTokens) {
  const auto runtime = OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  const Expected e = ExpectedOf("qwen3");
  OrtOptions o = Options();
  o.logits = LogitsOf::kAllTokens;
  auto b = Open(runtime, o);
  ASSERT_TRUE(b);
  const std::vector<float> all = AllRows(*b, e.prompt, 10);
  ASSERT_EQ(all.size(), e.prompt.size() * e.vocab);
  EXPECT_LE(RelativeError(std::span(all).last(e.logits.size()), e.logits), e.tolerance);
}

TEST(OrtBackend, RewindGivesTheSameAgain) {
  const auto runtime = OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  const Expected e = ExpectedOf("qwen3");
  const std::span<const int32_t> prompt(e.prompt);
  auto b = Open(runtime, Options());
  ASSERT_TRUE(b);
  const std::vector<int32_t> other(20, 5);
  ASSERT_TRUE(b->Forward(prompt.first(6), LogitsOf::kLastToken).ok());
  ASSERT_TRUE(b->Forward(other, LogitsOf::kLastToken).ok());
  ASSERT_TRUE(b->Rewind(6).ok());
  EXPECT_EQ(b->used(), 6);
  const auto l = b->Forward(prompt.subspan(6), LogitsOf::kLastToken);
  ASSERT_TRUE(l.ok());
  EXPECT_LE(RelativeError(l.value().Row(0), std::span(e.logits).last(e.vocab)), e.tolerance);
  EXPECT_EQ(b->Rewind(25).error().code(), Code::kInvalidArgument);
}

TEST(OrtBackend, HoldsItsLimits) {
  const auto runtime = OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  OrtOptions o = Options();
  o.context = 6;
  auto b = Open(runtime, o);
  ASSERT_TRUE(b);
  EXPECT_EQ(b->capabilities().max_tokens, 6);
  EXPECT_EQ(b->capabilities().kv_bytes, 4 * 6 * 2 * 16 * 4) << "2 layers of keys and values, 6 slots, 2 heads of 16, f32";
  EXPECT_GT(b->capabilities().activations_bytes, 0);
  EXPECT_EQ(b->Forward({}, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  const int32_t outside[] = {96}, four[] = {1, 2, 3, 4}, negative[] = {-1};
  EXPECT_EQ(b->Forward(outside, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(b->Forward(negative, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(b->Forward(four, LogitsOf::kAllTokens).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(b->Forward(four, LogitsOf::kLastToken).ok());
  EXPECT_EQ(b->Forward(four, LogitsOf::kLastToken).error().code(), Code::kLimit);
  EXPECT_EQ(b->used(), 4);
  o.memory_budget_bytes = 1000;
  const auto tight = CreateOrtBackend(runtime, TinyDecoder(), o);
  ASSERT_FALSE(tight.ok());
  EXPECT_EQ(tight.error().code(), Code::kLimit);
  EXPECT_NE(tight.error().message().find("at least"), std::string::npos) << "known before the cache is taken";
  o.memory_budget_bytes = b->capabilities().kv_bytes + 1;  // only the runtime's own part is too much
  const auto late = CreateOrtBackend(runtime, TinyDecoder(), o);
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().message().find("runtime"), std::string::npos) << late.error().message();
  Decoder heavy = TinyDecoder();
  heavy.path = "absent.onnx";
  heavy.weights_bytes = 2000;
  o.memory_budget_bytes = 1000;
  EXPECT_EQ(CreateOrtBackend(runtime, heavy, o).error().code(), Code::kLimit) << "before the file is opened";
  o = Options();
  o.context = 65;
  EXPECT_EQ(CreateOrtBackend(runtime, TinyDecoder(), o).error().code(), Code::kInvalidArgument);
}

TEST(OrtBackend, RefusesGraphsOfOtherShape) {
  const auto runtime = OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  Decoder d = TinyDecoder();
  d.n_layers = 1;  // the second layer's cache is then an input without a role
  auto r = CreateOrtBackend(runtime, d, Options());
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kUnsupported);
  EXPECT_NE(r.error().message().find("past_key_values.1.key"), std::string::npos) << r.error().message();
  d.n_layers = 3;
  r = CreateOrtBackend(runtime, d, Options());
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message().find("past_key_values.2.key"), std::string::npos) << r.error().message();
  d = TinyDecoder();
  d.path += ".data";
  r = CreateOrtBackend(runtime, d, Options());
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kCorrupt) << r.error().message();
}

TEST(OrtBackend, BadLogitsEndTheRun) {
  const auto runtime = OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  namespace fs = std::filesystem;
  const fs::path source = fs::path(TinyDecoder().path).parent_path(), folder = fs::path(testing::TempDir()) / "ort_nan";
  fs::create_directories(folder);
  fs::copy_file(source / "model.onnx", folder / "model.onnx", fs::copy_options::overwrite_existing);
  const std::vector<float> nan(fs::file_size(source / "model.onnx.data") / sizeof(float), std::nanf(""));
  std::ofstream(folder / "model.onnx.data", std::ios::binary)
      .write(reinterpret_cast<const char*>(nan.data()), static_cast<std::streamsize>(nan.size() * sizeof(float)));
  Decoder d = TinyDecoder();
  d.path = (folder / "model.onnx").string();
  auto made = CreateOrtBackend(runtime, d, Options());
  ASSERT_TRUE(made.ok()) << made.error().message();
  const int32_t one[] = {1};
  const auto l = made.value().backend->Forward(one, LogitsOf::kLastToken);
  ASSERT_FALSE(l.ok());
  EXPECT_EQ(l.error().code(), Code::kCorrupt);
  EXPECT_EQ(made.value().backend->used(), 0);
  fs::remove_all(folder);
}

// Nodes of an operator by provider.
std::map<std::string, int> CountsOf(const std::vector<PlacementRow>& rows, const std::string& op) {
  std::map<std::string, int> out;
  for (const PlacementRow& r : rows)
    if (r.op == op) out[r.kernel] += r.count;
  return out;
}

TEST(OrtPlacement, AllOnTheCpu) {
  const auto runtime = OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  OrtOptions o = Options();
  o.choice.devices = {"cpu"};
  o.choice.rest = OnCpu::kForbidden;
  auto b = Open(runtime, o);
  ASSERT_TRUE(b);
  for (const PlacementRow& r : b->Placement()) {
    EXPECT_EQ(r.device, "cpu");
    EXPECT_EQ(r.kernel, "CPUExecutionProvider");
    EXPECT_EQ(r.reason, "");
  }
  EXPECT_EQ(CountsOf(b->Placement(), "GroupQueryAttention"), (std::map<std::string, int>{{"CPUExecutionProvider", 2}}));
}

TEST(OrtPlacement, AProviderWithoutModesOfPowerLeavesANote) {
  const auto runtime = OpenForTest(kTestLibrary);
  SLM_ORT_OR_SKIP(runtime);
  for (const Power power : {Power::kAsItIs, Power::kLow}) {
    const auto placed = PlaceNodes(runtime, TinyDecoder().path, {.devices = {kTestProvider}, .power = power});
    ASSERT_TRUE(placed.ok()) << placed.error().message();
    const auto& notes = placed.value().notes;
    const bool said = std::any_of(notes.begin(), notes.end(), [](const std::string& n) { return n.find("power") != std::string::npos; });
    EXPECT_EQ(said, power == Power::kLow);
  }
}

// The provider takes products with a constant matrix: q, k, v, o, gate, up, down of two layers and the head, less what was fused before.
TEST(OrtPlacement, AProviderTakesWhatItKnows) {
  const auto runtime = OpenForTest(kTestLibrary);
  SLM_ORT_OR_SKIP(runtime);
  const Expected e = ExpectedOf("qwen3");
  OrtOptions o = Options();
  o.choice.devices = {kTestProvider};
  auto b = Open(runtime, o);
  ASSERT_TRUE(b);
  const auto products = CountsOf(b->Placement(), "MatMul");
  ASSERT_EQ(products.size(), 1u);
  EXPECT_GT(products.at(kTestProvider), 0);
  for (const PlacementRow& r : b->Placement()) {
    if (r.kernel == "CPUExecutionProvider") {
      EXPECT_EQ(r.reason, std::string("left by ") + kTestProvider);
    }
  }
  // Both providers work in the CPU's memory.
  EXPECT_EQ(CountsOf(b->Placement(), "Memcpy"), (std::map<std::string, int>{{"between memories", 0}}));
  const auto l = b->Forward(e.prompt, LogitsOf::kLastToken);
  ASSERT_TRUE(l.ok()) << l.error().message();
  EXPECT_LE(RelativeError(l.value().Row(0), std::span(e.logits).last(e.vocab)), e.tolerance);
}

// The shape of ONNX Runtime's own profiles, shortened by hand: two copies of 256 and 64 bytes among other events.
TEST(OrtCopies, AreCountedInAProfile) {
  const auto c = CopiesIn(R"([{"cat":"Session","name":"model_run","args":{}},
    {"cat":"Node","name":"a_kernel_time","args":{"op_name":"MatMul","output_size":"1024","provider":"CPUExecutionProvider"}},
    {"cat":"Node","name":"b_kernel_time","args":{"op_name":"MemcpyFromHost","output_size":"256"}},
    {"cat":"Node","name":"c_fence_before","args":{"op_name":"Add"}},
    {"cat":"Node","name":"d_kernel_time","args":{"op_name":"MemcpyToHost","output_size":"64"}}])");
  ASSERT_TRUE(c.ok()) << c.error().message();
  EXPECT_EQ(c.value().count, 2);
  EXPECT_EQ(c.value().bytes, 320);
  EXPECT_EQ(CopiesIn("{}").error().code(), Code::kCorrupt);
  EXPECT_EQ(CopiesIn("[").error().code(), Code::kCorrupt);
}

TEST(OrtPlacement, NodesLeftToTheCpuAreNamed) {
  const auto runtime = OpenForTest(kTestLibrary);
  SLM_ORT_OR_SKIP(runtime);
  OrtOptions o = Options();
  o.choice.devices = {kTestProvider};
  o.choice.rest = OnCpu::kForbidden;
  const auto r = CreateOrtBackend(runtime, TinyDecoder(), o);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kLimit);
  EXPECT_NE(r.error().message().find("GroupQueryAttention x2 ("), std::string::npos) << r.error().message();
  EXPECT_EQ(r.error().message().find("MatMul x"), std::string::npos) << r.error().message();
}

TEST(OrtPlacement, AbsentDevicesLeaveANote) {
  const auto runtime = OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  OrtOptions o = Options();
  o.choice.devices = {"QNNExecutionProvider", "cpu"};
  auto r = CreateOrtBackend(runtime, TinyDecoder(), o);
  ASSERT_TRUE(r.ok()) << r.error().message();
  EXPECT_EQ(r.value().notes, (std::vector<std::string>{"QNNExecutionProvider: no execution provider offers it"}));
  o.choice.absent = Absent::kExpected;
  r = CreateOrtBackend(runtime, TinyDecoder(), o);
  ASSERT_TRUE(r.ok());
  EXPECT_TRUE(r.value().notes.empty());
  o.choice.rest = OnCpu::kForbidden;
  EXPECT_EQ(CreateOrtBackend(runtime, TinyDecoder(), o).error().code(), Code::kLimit);
}

}  // namespace
}  // namespace slm::backend::ort
