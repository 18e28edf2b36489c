// The budgets of tries: arithmetic by hand, and that every try is larger than the one before until nothing loses less.
#include "quantize_types.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace slm::cli {
namespace {

TEST(QuantizeTypes, BudgetsOfTries) {
  EXPECT_DOUBLE_EQ(NextBudget({}, 0.1).value(), 0.085);
  // Twice what is asked for: half of what was expected, less a quarter; the next time less a half.
  const Try missed{.expected = {.body_bpw = 4.5, .bytes = 1000, .kld = 0.08}, .kld = 0.2};
  EXPECT_DOUBLE_EQ(NextBudget(std::vector<Try>{missed}, 0.1).value(), 0.75 * 0.08 * 0.5);
  EXPECT_DOUBLE_EQ(NextBudget(std::vector<Try>{missed, missed}, 0.1).value(), 0.5 * 0.08 * 0.5);
  EXPECT_FALSE(NextBudget(std::vector<Try>{missed, missed, missed}, 0.1).has_value()) << "the fourth is the last";
}

// Two matrices of 1024 weights: losses 0.08, 0.02, 0.0005 and a quarter of that.
struct Case {
  model::Tensor a, b;
  quant::Sensitivities s;
  quant::Plan plan;
  Case() {
    a.dims = b.dims = {32, 32};
    s.types = {DType::kQ4_0, DType::kQ5_0, DType::kQ8_0};
    s.matrices = {{.tensor = &a, .kld = 8, .errors = {0.01, 0.0025, 0.0000625}},
                  {.tensor = &b, .kld = 2, .errors = {0.01, 0.0025, 0.0000625}}};
    plan.choices = {{&a, DType::kQ4_0, true, 0}, {&b, DType::kQ4_0, true, 0}};
  }
};

TEST(QuantizeTypes, TriesGrowUntilNothingLosesLess) {
  Case c;
  c.plan.recipe.most_kld = 0.05;
  std::vector<Try> tries;
  while (tries.empty() || !tries.back().last) {
    tries.push_back(ChooseTypes(c.s, tries, &c.plan).Take());
    EXPECT_EQ(tries.back().expected.bytes, c.plan.data_bytes());
    if (tries.size() > 1) {
      EXPECT_GT(tries.back().expected.bytes, tries[tries.size() - 2].expected.bytes);
    }
    ASSERT_LE(tries.size(), kMostTries);
    tries.back().kld = 1;  // whatever is written misses
  }
  EXPECT_DOUBLE_EQ(tries.front().expected.kld, 0.04) << "of 0.0425: Q5_0 for a, Q4_0 for b";
  EXPECT_EQ(c.plan.choices[0].dtype, DType::kQ8_0);
  EXPECT_EQ(c.plan.choices[1].dtype, DType::kQ8_0);
  EXPECT_NE(TryText(2, tries.back(), 0.05).find("nothing loses less"), std::string::npos);
}

TEST(QuantizeTypes, AWishGivesWayAndALimitDoesNot) {
  Case c;
  c.plan.recipe.body_bpw = 4;
  EXPECT_DOUBLE_EQ(ChooseTypes(c.s, {}, &c.plan).value().expected.body_bpw, 4.5);
  c.plan.recipe.body_bpw_is_wish = false;
  EXPECT_EQ(ChooseTypes(c.s, {}, &c.plan).error().code(), Code::kLimit);
  c.plan.recipe.body_bpw = 5;
  EXPECT_DOUBLE_EQ(ChooseTypes(c.s, {}, &c.plan).value().expected.body_bpw, 5);
  EXPECT_EQ(c.plan.choices[0].dtype, DType::kQ5_0);
  EXPECT_EQ(c.plan.choices[1].dtype, DType::kQ4_0);
}

TEST(QuantizeTypes, ValuesOnAGridAreNamed) {
  Case c;
  EXPECT_TRUE(GridNotes(c.s).empty());
  c.s.matrices[1].errors[0] = 1e-9;
  ASSERT_EQ(GridNotes(c.s).size(), 1u);
  EXPECT_EQ(GridNotes(c.s)[0].find("1 matrices lie on the grid of q4_0"), 0u);
}

}  // namespace
}  // namespace slm::cli
