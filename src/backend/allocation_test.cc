// Forward allocates nothing: operator new is counted over prefill and decode steps, threads included.
#include <gtest/gtest.h>

#include "backend/cpu/tiny_for_test.h"
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

// The counter itself: an allocation is seen.
TEST(CpuBackend, TheCounterCounts) {
  const long before = n_allocations.load();
  auto p = std::make_unique<int>(3);
  EXPECT_EQ(*p, 3);
  EXPECT_GT(n_allocations.load(), before);
}

}  // namespace
}  // namespace slm::backend
