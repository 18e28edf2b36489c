// PlanMemory: no value is overwritten while it is alive, on random graphs and on real ones, and the arena stays near its bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/graph.h"
#include "graph/testing/synthetic.h"

namespace slm::graph {
namespace {

int64_t Width(const Shape& s) {
  int64_t n = 1;
  for (int64_t d : s) n *= d == kT ? 1 : d;
  return n;
}

// Runs the plan on an arena of labels: whoever writes a cell leaves its label there, and each reader must find the label of the
// value that it reads. Reshape keeps labels. `label`: by value, the value whose numbers it shows.
void ExpectNobodyIsOverwritten(const Graph& g, const MemoryPlan& plan, int tokens) {
  std::vector<ValueId> cells(static_cast<size_t>(plan.arena_bytes / 4), kNoValue), label(g.values.size(), kNoValue);
  auto each_cell = [&](ValueId v, auto f) {
    const auto& slot = plan.slots[v];
    const Shape& s = g.values[v].shape;
    const int rows = std::find(s.begin(), s.end(), kT) != s.end() ? tokens : 1;
    ASSERT_EQ(slot.offset % 64, 0);
    ASSERT_EQ(slot.row_values % 32, 0);
    ASSERT_LE(Width(s), slot.row_values);
    ASSERT_LE(slot.offset / 4 + rows * slot.row_values, static_cast<int64_t>(cells.size()));
    for (int r = 0; r < rows; ++r)
      for (int64_t i = 0; i < slot.row_values; ++i) f(cells[slot.offset / 4 + r * slot.row_values + i]);
  };
  for (const Node& n : g.nodes) {
    for (ValueId in : n.inputs) {
      if (in == kNoValue || plan.slots[in].offset < 0) continue;
      bool intact = true;
      each_cell(in, [&](ValueId& cell) { intact = intact && cell == label[in]; });
      ASSERT_TRUE(intact) << n.name << " reads " << g.values[in].name << " after it was overwritten";
    }
    for (ValueId out : n.outputs) {
      if (plan.slots[out].offset < 0) continue;
      label[out] = n.op == Op::kReshape ? label[n.inputs[0]] : out;
      each_cell(out, [&](ValueId& cell) { cell = label[out]; });
      if (n.op == Op::kReshape) {
        EXPECT_EQ(plan.slots[out].offset, plan.slots[n.inputs[0]].offset);
        continue;
      }
      // An output may not touch an input either, since kernels write before they have read all.
      for (ValueId in : n.inputs) {
        if (in == kNoValue || plan.slots[in].offset < 0) continue;
        bool intact = true;
        each_cell(in, [&](ValueId& cell) { intact = intact && cell != label[out]; });
        ASSERT_TRUE(intact) << n.name << " writes over its input";
      }
    }
  }
}

// Most bytes alive at one node, counted value by value: no plan without sharing can be smaller.
int64_t LiveBound(const Graph& g, const MemoryPlan& plan, int tokens) {
  std::vector<int> first(g.values.size(), -1), last(g.values.size(), -1);
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    for (ValueId v : g.nodes[i].outputs) first[v] = last[v] = i;
    for (ValueId v : g.nodes[i].inputs)
      if (v != kNoValue) last[v] = i;
  }
  int64_t bound = 0;
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    int64_t live = 0;
    for (size_t v = 0; v < g.values.size(); ++v)
      if (plan.slots[v].offset >= 0 && first[v] <= i && i <= last[v]) live += plan.slots[v].row_values * 4 * tokens;
    bound = std::max(bound, live);
  }
  return bound;
}

Graph RandomGraph(std::mt19937& rng) {
  Graph g;
  g.input_ids = g.AddValue({"ids", {kT}, ElementType::kI64, nullptr});
  g.input_positions = g.AddValue({"positions", {kT}, ElementType::kI64, nullptr});
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  std::vector<ValueId> pool = {g.AddValue({"x", {kT, 96}, ElementType::kF32, nullptr})};
  g.nodes.push_back({Op::kSwish, "x", {g.input_ids}, {pool[0]}, {}, -1});  // stands for any source
  for (int i = 0; i < 60; ++i) {
    const std::string name = "v" + std::to_string(i);
    const ValueId a = pool[pool.size() - 1 - pick(std::min<int>(6, static_cast<int>(pool.size())))];
    const Shape shape = g.values[a].shape;
    auto emit = [&](Op op, std::vector<ValueId> in, std::vector<Shape> out) {
      Node n{op, name, std::move(in), {}, {}, -1};
      for (size_t o = 0; o < out.size(); ++o)
        n.outputs.push_back(g.AddValue({name + "." + std::to_string(o), out[o], ElementType::kF32, nullptr}));
      pool.insert(pool.end(), n.outputs.begin(), n.outputs.end());
      g.nodes.push_back(std::move(n));
    };
    const int64_t width = Width(shape);
    switch (pick(4)) {
      case 0: emit(Op::kAdd, {a, a}, {shape}); break;
      case 1: emit(Op::kReshape, {a}, {shape.size() == 2 && width % 8 == 0 ? Shape{kT, width / 8, 8} : Shape{kT, width}}); break;
      case 2: width > 40 ? emit(Op::kSplit, {a}, {{kT, width - 24}, {kT, 24}}) : emit(Op::kTanh, {a}, {shape}); break;
      default: emit(Op::kMul, {a, pool[pick(static_cast<int>(pool.size()))]}, {{kT, 1 + pick(300)}}); break;
    }
  }
  g.output_logits = pool.back();
  return g;
}

TEST(PlanMemory, KeepsLiveValuesApartOnRandomGraphs) {
  std::mt19937 rng(7);
  for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) {
    const Graph g = RandomGraph(rng);
    const int tokens = 1 + i % 3;
    const auto plan = PlanMemory(g, {.tokens = tokens, .aliases = {}, .row_values = {}, .unplanned = {}});
    ASSERT_TRUE(plan.ok());
    ExpectNobodyIsOverwritten(g, plan.value(), tokens);
  }
}

MemoryPlanOptions WithoutLogits(const Graph& g, int tokens) {
  return {.tokens = tokens, .aliases = {}, .row_values = {}, .unplanned = {g.output_logits}};
}

TEST(PlanMemory, SmolLm2At512Tokens) {
  Graph g = BuildDecoder(testing::ModelOfShapes(testing::SmolLm2Config()), {64}).Take();
  ASSERT_TRUE(RunPasses(g, {}).ok());
  const MemoryPlan plan = PlanMemory(g, WithoutLogits(g, 512)).Take();
  const int64_t bound = LiveBound(g, plan, 512);
  RecordProperty("arena_bytes", std::to_string(plan.arena_bytes));
  RecordProperty("bound_bytes", std::to_string(bound));
  EXPECT_LE(plan.arena_bytes, bound * 11 / 10) << "fragmentation above a tenth";
  // gate|up (3072) + its product (1536) + the residual stream (576) of 512 tokens in f32.
  EXPECT_EQ(bound, int64_t{512} * 4 * (3072 + 1536 + 576));
  const MemoryPlan small = PlanMemory(g, WithoutLogits(g, 3)).Take();
  ExpectNobodyIsOverwritten(g, small, 3);
}

TEST(PlanMemory, FollowsTheCallersSharing) {
  Graph g = BuildDecoder(testing::ModelOfShapes(testing::SmallConfig()), {16}).Take();
  auto id = [&](const std::string& name) {
    return static_cast<ValueId>(std::find_if(g.values.begin(), g.values.end(), [&](const Value& v) { return v.name == name; }) -
                                g.values.begin());
  };
  MemoryPlanOptions o = WithoutLogits(g, 4);
  // Two links of a chain: the stream stays in one slot over the whole layer.
  o.aliases = {{id("layers.0.mlp_add"), id("layers.0.attn_add")}, {id("layers.0.attn_add"), id("embed_tokens")}};
  o.row_values = {{id("layers.0.q_proj"), 100}};
  const MemoryPlan plan = PlanMemory(g, o).Take();
  const int64_t stream = plan.slots[id("embed_tokens")].offset;
  EXPECT_EQ(plan.slots[id("layers.0.attn_add")].offset, stream);
  EXPECT_EQ(plan.slots[id("layers.0.mlp_add")].offset, stream);
  EXPECT_EQ(plan.slots[id("layers.0.q_proj")].row_values, 128);
  EXPECT_EQ(plan.slots[g.output_logits].offset, -1);
  EXPECT_EQ(plan.slots[g.input_ids].offset, -1);
  // Everybody else within the layer keeps off the stream's bytes.
  const int64_t end = stream + plan.slots[id("embed_tokens")].row_values * 4 * 4;
  for (const char* name :
       {"layers.0.attn_norm", "layers.0.q_rope", "layers.0.attn", "layers.0.o_proj", "layers.0.act", "layers.0.down_proj"}) {
    const auto& slot = plan.slots[id(name)];
    EXPECT_TRUE(slot.offset >= end || slot.offset + slot.row_values * 4 * 4 <= stream) << name;
  }
}

TEST(PlanMemory, RefusesWhatMakesNoSense) {
  const Graph g = BuildDecoder(testing::ModelOfShapes(testing::SmallConfig()), {16}).Take();
  const ValueId constant = g.nodes[1].inputs[1];
  auto code = [&](auto change) {
    MemoryPlanOptions o = WithoutLogits(g, 4);
    change(o);
    const auto plan = PlanMemory(g, o);
    return plan.ok() ? std::string("ok") : std::string(CodeName(plan.error().code()));
  };
  EXPECT_EQ(code([](MemoryPlanOptions&) {}), "ok");
  EXPECT_EQ(code([](MemoryPlanOptions& o) { o.tokens = 0; }), "invalid_argument");
  EXPECT_EQ(code([](MemoryPlanOptions& o) { o.unplanned = {1000000}; }), "invalid_argument");
  EXPECT_EQ(code([&](MemoryPlanOptions& o) { o.aliases = {{g.output_logits, constant}}; }), "invalid_argument");
  EXPECT_EQ(code([](MemoryPlanOptions& o) {
              o.row_values = {{5, int64_t{1} << 45}};
              o.unplanned.clear();
              o.tokens = 2000000000;
            }),
            "limit");
}

}  // namespace
}  // namespace slm::graph
