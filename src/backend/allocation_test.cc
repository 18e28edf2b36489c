// Forward allocates nothing: operator new is counted over prefill and decode steps, threads included. Of ONNX Runtime only our side is:
// what its own library allocates inside a call of its interface is not ours.
#include <gtest/gtest.h>

#include "backend/cpu/tiny_for_test.h"
#include "backend/ort/runtime.h"
#include "backend/ort/runtime_for_test.h"
#include "base/count_allocations_for_test.h"

namespace slm::backend {
namespace {

long AllocationsOf(const char* name, ComputeMode compute, kernels::KvType kv) {
  CpuOptions o;
  o.n_threads = 2;
  o.context = 64;
  o.chunk = 8;
  o.kv_type = kv;
  o.compute = compute;
  o.isa = TestIsa();
  auto b = OpenTiny(TinyPath(name), {}, o);
  const std::vector<int32_t> prompt{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_TRUE(b->Forward(prompt, LogitsOf::kLastToken).ok());
  const long before = n_allocations.load();
  EXPECT_TRUE(b->Forward(prompt, LogitsOf::kLastToken).ok());
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(b->Forward(std::span(prompt).first(1), LogitsOf::kLastToken).ok());
  EXPECT_TRUE(b->Rewind(3).ok());
  EXPECT_TRUE(b->Forward(prompt, LogitsOf::kLastToken).ok());
  return n_allocations.load() - before;
}

TEST(CpuBackend, ForwardAllocatesNothing) {
  for (const char* name : {"llama", "quantized.gguf", "quantized_tied.gguf"}) {
    EXPECT_EQ(AllocationsOf(name, ComputeMode::kNative, kernels::KvType::kF16), 0) << name;
    EXPECT_EQ(AllocationsOf(name, ComputeMode::kF32, kernels::KvType::kF32), 0) << name;
    EXPECT_EQ(AllocationsOf(name, ComputeMode::kNative, kernels::KvType::kInt8), 0) << name;
  }
}

// The three calls of a step, with what happens inside them taken out of the count.
const OrtApi* real_api = nullptr;
template <class F>
OrtStatus* Uncounted(F&& call) {
  const long before = n_allocations.load();
  OrtStatus* s = call();
  n_allocations.store(before);
  return s;
}
OrtApi GatedApi(const OrtApi& real) {
  real_api = &real;
  OrtApi api = real;
  api.RunWithBinding = [](OrtSession* s, const OrtRunOptions* o, const OrtIoBinding* b) noexcept {
    return Uncounted([&] { return real_api->RunWithBinding(s, o, b); });
  };
  api.BindInput = [](OrtIoBinding* b, const char* n, const OrtValue* v) noexcept {
    return Uncounted([&] { return real_api->BindInput(b, n, v); });
  };
  api.BindOutput = [](OrtIoBinding* b, const char* n, const OrtValue* v) noexcept {
    return Uncounted([&] { return real_api->BindOutput(b, n, v); });
  };
  return api;
}

TEST(OrtBackend, ForwardAllocatesNothingOfOurs) {
  const auto runtime = ort::OpenForTest();
  SLM_ORT_OR_SKIP(runtime);
  const OrtApi api = GatedApi(runtime->api());
  runtime->SetApiForTest(api);
  auto made = ort::CreateOrtBackend(runtime, ort::TinyDecoder(), {.context = 64, .chunk = 8});
  ASSERT_TRUE(made.ok()) << made.error().message();
  Backend& b = *made.value().backend;
  const std::vector<int32_t> prompt{1, 2, 3, 4, 5, 6, 7, 8};
  const long before = n_allocations.load();
  EXPECT_TRUE(b.Forward(prompt, LogitsOf::kLastToken).ok());
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(b.Forward(std::span(prompt).first(1), LogitsOf::kLastToken).ok());
  EXPECT_TRUE(b.Rewind(3).ok());
  EXPECT_TRUE(b.Forward(prompt, LogitsOf::kLastToken).ok());
  EXPECT_EQ(n_allocations.load() - before, 0);
  made.value().backend.reset();
  runtime->SetApiForTest(*real_api);
}

// The counter itself: an allocation is seen.
TEST(CpuBackend, TheCounterCounts) {
  const long before = n_allocations.load();
  auto p = std::make_unique<int>(3);
  EXPECT_EQ(*p, 3);
  EXPECT_GT(n_allocations.load(), before);
}

}  // namespace
}  // namespace slm::backend
