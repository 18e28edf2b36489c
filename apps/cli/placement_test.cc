// --no-fallback on placements that this build cannot make by itself.
#include "placement.h"

#include <gtest/gtest.h>

#include "verb.h"

namespace slm::cli {
namespace {

TEST(Placement, AnOperatorElsewhereIsNamedAndExits3) {
  std::vector<backend::PlacementRow> rows = {{"MatMulNBits", 210, "npu", "qnn", "htp", ""},
                                             {"GroupQueryAttention", 30, "cpu", "cpu", "attention_avx2", "no such operator on npu"}};
  const Status s = CheckPlacement(rows, "npu");
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code(), Code::kLimit);
  EXPECT_EQ(ExitCodeOf(s.error().code()), 3);
  for (const char* part : {"--no-fallback", "GroupQueryAttention", "30 nodes", "on cpu", "not on npu", "no such operator on npu"})
    EXPECT_NE(s.error().message().find(part), std::string::npos) << part << " in " << s.error().message();
  EXPECT_EQ(s.error().message().find("MatMulNBits"), std::string::npos);
  EXPECT_NE(CheckPlacement(rows, "cpu").error().message().find("MatMulNBits"), std::string::npos);
}

TEST(Placement, AllOnTheDeviceIsFine) {
  const std::vector<backend::PlacementRow> rows = {{"MatMul", 7, "cpu", "cpu", "ref", "Q6_K requantized to 8 bit"}};
  EXPECT_TRUE(CheckPlacement(rows, "cpu").ok());
  EXPECT_TRUE(CheckPlacement({}, "npu").ok());
}

}  // namespace
}  // namespace slm::cli
