// Matrices of codes in groups as packed kinds: the kind that each layout gets, what is said about it, and every value against the file's.
#include "backend/cpu/grouped_codes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/tiny_for_test.h"

namespace slm::backend {
namespace {
using kernels::PackedKind;

const std::string kFolder = std::string(SLM_SOURCE_DIR) + "/tests/tiny/grouped/";

struct Read {
  std::shared_ptr<model::Model> m;
  graph::Constant c;
  KindChoice choice;
};

Read Open(const std::string& name, const char* tensor) {
  Read r{model::LoadModel(kFolder + name).Take(), {}, {}};
  const model::Tensor* t = r.m->FindName(std::string("model.layers.0.") + tensor);
  EXPECT_TRUE(t && t->grouped) << name;
  r.c.parts.push_back({t, 0, t->dims[0]});
  r.choice = ChooseKind(r.c);
  return r;
}

// Largest distance of what the codes of a panel mean from the values of the file, over the largest value.
double PanelError(const Read& r) {
  const model::GroupedMatrix& m = *r.c.parts[0].tensor->grouped;
  const size_t n = static_cast<size_t>(m.n), k = static_cast<size_t>(m.k), nb = k / 32;
  std::vector<uint8_t> q(n * k);
  std::vector<float> scale(n * nb), min(n * nb), values(n * k), want(n * k);
  ReadGroupedPanel(m, 0, m.n, r.choice, {q.data(), scale.data(), min.data(), nullptr, nullptr, values.data()});
  model::ReadGroupedValues(m, 0, m.n, want.data());
  const bool bytes = kernels::LinesOf(r.choice.kind).codes == 16;
  double worst = 0, top = 0;
  for (size_t i = 0; i < n * k; ++i) {
    const size_t b = i / k * nb + i % k / 32;
    const int code = bytes ? static_cast<int8_t>(q[i]) : q[i] - kernels::ZeroPoint(r.choice.kind);
    const float got = scale[b] * static_cast<float>(code) + (kernels::HasMin(r.choice.kind) ? min[b] : 0);
    worst = std::max(worst, std::fabs(double{got} - want[i]));
    top = std::max(top, std::fabs(double{want[i]}));
  }
  return worst / top;
}

TEST(GroupedCodes, SmallCodesAreKeptExactly) {
  const struct {
    const char* name;
    PackedKind kind;
  } cases[] = {
      {"awq", PackedKind::kQ5}, {"gptq", PackedKind::kQ5}, {"gptq3", PackedKind::kQ4}, {"ct4", PackedKind::kQ4}, {"ct8", PackedKind::kQ8}};
  for (const auto& c : cases) {
    const Read r = Open(c.name, "mlp.down_proj.weight");
    EXPECT_EQ(r.choice.kind, c.kind) << c.name;
    EXPECT_STREQ(r.choice.note, "") << c.name;
    EXPECT_EQ(PanelError(r), 0) << c.name;
  }
}

TEST(GroupedCodes, WhatIsRoundedIsSaid) {
  Read r = Open("ct4_zero", "mlp.down_proj.weight");  // f32 scales that are no halves; the codes stay
  EXPECT_EQ(r.choice.kind, PackedKind::kQ5);
  EXPECT_STREQ(r.choice.note, "scales rounded to f16");
  EXPECT_EQ(PanelError(r), 0) << "rounding is the packer's";
  r = Open("gptq8", "mlp.down_proj.weight");
  EXPECT_EQ(r.choice.kind, PackedKind::kQ8Min);
  EXPECT_STRNE(r.choice.note, "");
  EXPECT_LE(PanelError(r), 1e-6);
  r = Open("gptq_act", "mlp.down_proj.weight");  // columns of a block are in different groups
  EXPECT_EQ(r.choice.kind, PackedKind::kQ8);
  EXPECT_STRNE(r.choice.note, "");
  EXPECT_LE(PanelError(r), 0.5 / 127);
  EXPECT_GT(PanelError(r), 0);
}

// Rows that a pass stacked get the kind that holds all of them.
TEST(GroupedCodes, AStackGetsTheWidestKind) {
  Read small = Open("ct4", "mlp.up_proj.weight");
  const Read large = Open("awq", "mlp.up_proj.weight");
  small.c.parts.push_back(large.c.parts[0]);
  EXPECT_EQ(ChooseKind(small.c).kind, PackedKind::kQ5);
}

}  // namespace
}  // namespace slm::backend
