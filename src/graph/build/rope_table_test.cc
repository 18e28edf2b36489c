// Frequencies against transformers' ROPE_INIT_FUNCTIONS (5.24, f32), tables against the definition.
#include "graph/build/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace slm::graph {
namespace {

using model::RopeConfig;
using model::RopeScaling;

void ExpectClose(const std::vector<double>& got, const std::vector<std::pair<size_t, double>>& want) {
  for (auto [i, w] : want) EXPECT_NEAR(got.at(i) / w, 1, 2e-6) << "pair " << i;
}

RopeConfig LongRope() {
  RopeConfig r;
  r.rotary_dim = 12;
  r.scaling = RopeScaling::kLongRope;
  r.original_context = 4096;
  r.short_factors = {1.0f, 1.05f, 1.1f, 1.2f, 1.3f, 1.5f};
  r.long_factors = {1.1f, 1.5f, 2.0f, 3.0f, 5.0f, 8.0f};
  return r;
}

TEST(RopeTable, Llama3AsTransformers) {
  RopeConfig r;
  r.theta = 500000;
  r.rotary_dim = 64;
  r.scaling = RopeScaling::kLlama3;
  r.factor = 32;
  r.original_context = 8192;
  ExpectClose(RopeFrequencies(r, 100).value(), {{0, 1},
                                                {8, 0.0376060307},
                                                {14, 0.00321144611},
                                                {15, 0.00129054801},
                                                {16, 0.000429556705},
                                                {17, 9.70828623e-05},
                                                {20, 8.57025589e-06},
                                                {31, 9.41830649e-08}});
}

TEST(RopeTable, LinearAsTransformers) {
  RopeConfig r;
  r.rotary_dim = 16;
  r.scaling = RopeScaling::kLinear;
  r.factor = 8;
  ExpectClose(RopeFrequencies(r, 100).value(), {{0, 0.125}, {1, 0.0395284705}, {2, 0.0125}, {5, 0.000395284733}, {7, 3.95284733e-05}});
}

TEST(RopeTable, LongRopeChoosesByContext) {
  const std::vector<std::pair<size_t, double>> brief = {
      {0, 1}, {1, 0.205184266}, {2, 0.0421962552}, {3, 0.00833333284}, {4, 0.00165725732}, {5, 0.000309439318}};
  const std::vector<std::pair<size_t, double>> extended = {{0, 0.909090877},   {1, 0.14362897},     {2, 0.023207942},
                                                           {3, 0.00333333341}, {4, 0.000430886837}, {5, 5.80198684e-05}};
  ExpectClose(RopeFrequencies(LongRope(), 4096).value(), brief);
  ExpectClose(RopeFrequencies(LongRope(), 4097).value(), extended);
}

TEST(RopeTable, RowsArePositionsAndFactorMultiplies) {
  RopeConfig r;
  r.rotary_dim = 4;
  r.theta = 100;  // frequencies 1 and 0.1
  r.attention_factor = 2;
  const RopeTable t = BuildRopeTable(r, 131072).value();
  ASSERT_EQ(t.cos.size(), 262144u);
  for (int p : {0, 1, 30, 63, 64, 65, 4097, 131071}) {
    EXPECT_FLOAT_EQ(t.cos[p * 2], static_cast<float>(2 * std::cos(p)));
    EXPECT_FLOAT_EQ(t.sin[p * 2 + 1], static_cast<float>(2 * std::sin(0.1 * p)));
  }
}

TEST(RopeTable, RefusesNumbersThatMakeNoSense) {
  auto refused = [](auto change) {
    RopeConfig r = LongRope();
    change(r);
    return !BuildRopeTable(r, 8).ok();
  };
  EXPECT_FALSE(refused([](RopeConfig&) {}));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.rotary_dim = 11; }));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.rotary_dim = 0; }));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.theta = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.theta = -1; }));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.short_factors.pop_back(); }));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.short_factors[2] = 0; }));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.original_context = 0; }));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.freq_factors = {1, 2}; }));
  EXPECT_TRUE(refused([](RopeConfig& r) { r.attention_factor = std::numeric_limits<double>::infinity(); }));
}

}  // namespace
}  // namespace slm::graph
