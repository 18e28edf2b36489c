// Result, Status, the macros that pass errors on, and the small arithmetic of arena and dtype.
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/dtype.h"

namespace slm {
namespace {

Result<int> Half(int x) {
  if (x % 2) return Error(Code::kInvalidArgument, "odd", "pass an even number");
  return x / 2;
}
Result<int> Quarter(int x) {
  SLM_ASSIGN_OR_RETURN(const int half, Half(x));
  SLM_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}
Status CheckEven(int x) {
  auto r = Half(x);
  if (!r.ok()) return r.error().At("check");
  return Ok();
}
Result<std::string> Twice(int x) {
  SLM_RETURN_IF_ERROR(CheckEven(x));
  return std::to_string(2 * x);
}

TEST(Result, CarriesAValueOrAnError) {
  EXPECT_EQ(Quarter(12).Take(), 3);
  const auto r = Quarter(6);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(r.error().message(), "odd");
  EXPECT_EQ(r.error().hint(), "pass an even number");
}

TEST(Result, ContextGoesInFrontAndKeepsCodeAndHint) {
  const auto r = Twice(3);
  ASSERT_FALSE(r.ok());
  const Error e = r.error().At("gguf");
  EXPECT_EQ(e.message(), "gguf: check: odd");
  EXPECT_EQ(e.code(), Code::kInvalidArgument);
  EXPECT_EQ(e.hint(), "pass an even number");
  EXPECT_EQ(Twice(4).Take(), "8");
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(5);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(*r.Take(), 5);
}

TEST(ResultDeathTest, ReadingTheWrongSideIsABug) {
  const Result<int> bad = Half(1);
  EXPECT_DEATH((void)bad.value(), "broken invariant");
  EXPECT_DEATH((void)Half(2).error(), "broken invariant");
  EXPECT_DEATH((void)Ok().error(), "broken invariant");
}

TEST(Result, EveryCodeHasAName) {
  for (int c = 0; c <= static_cast<int>(Code::kInternal); ++c) EXPECT_STRNE(CodeName(static_cast<Code>(c)), "unknown");
}

static_assert(AlignUp(0, 64) == 0 && AlignUp(1, 64) == 64 && AlignUp(64, 64) == 64 && AlignUp(65, 64) == 128);

TEST(ArenaPlan, OffsetsAreAlignedAndDisjoint) {
  ArenaPlan plan;
  EXPECT_EQ(plan.Add(1), 0u);
  EXPECT_EQ(plan.Add(64), 64u);
  EXPECT_EQ(plan.Add(0), 128u);
  EXPECT_EQ(plan.Add(65), 128u);
  EXPECT_EQ(plan.total(), 256u);
}

// Block sizes as the gguf package 0.19 lists them (GGML_QUANT_SIZES).
TEST(DType, BlockGeometryMatchesTheGgufPackage) {
  const struct {
    DType type;
    uint32_t block, bytes;
  } table[] = {{DType::kF32, 1, 4},      {DType::kF16, 1, 2},      {DType::kBF16, 1, 2},     {DType::kI8, 1, 1},
               {DType::kI16, 1, 2},      {DType::kI32, 1, 4},      {DType::kI64, 1, 8},      {DType::kF64, 1, 8},
               {DType::kQ4_0, 32, 18},   {DType::kQ4_1, 32, 20},   {DType::kQ5_0, 32, 22},   {DType::kQ5_1, 32, 24},
               {DType::kQ8_0, 32, 34},   {DType::kQ2_K, 256, 84},  {DType::kQ3_K, 256, 110}, {DType::kQ4_K, 256, 144},
               {DType::kQ5_K, 256, 176}, {DType::kQ6_K, 256, 210}, {DType::kIQ4_NL, 32, 18}, {DType::kIQ4_XS, 256, 136},
               {DType::kMXFP4, 32, 17},  {DType::kTQ1_0, 256, 54}, {DType::kTQ2_0, 256, 66}};
  ASSERT_EQ(std::size(table), static_cast<size_t>(DType::kCount));
  for (const auto& row : table) {
    EXPECT_EQ(Info(row.type).block, row.block) << Info(row.type).name;
    EXPECT_EQ(Info(row.type).block_bytes, row.bytes) << Info(row.type).name;
  }
  EXPECT_EQ(RowBytes(DType::kQ4_K, 512), 288u);
  EXPECT_EQ(RowBytes(DType::kF16, 3), 6u);
}

}  // namespace
}  // namespace slm
