// What lowering decides, on small graphs written by hand: who adds into the residual, which norms and gates go to int8 only, who
// does another's work, how products are cut. Expectations by hand from the rules in analysis.h.
#include "backend/cpu/analysis.h"

#include <gtest/gtest.h>

#include <list>

namespace slm::backend {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::kT;
using graph::Op;
using graph::ValueId;

constexpr int64_t kWidth = 64;

// Nodes in order over values [T, n]; weights are tensors with a type and no bytes.
class Sketch {
 public:
  Graph g;
  ValueId Input(int64_t n = kWidth) { return Rows(n); }
  ValueId Rows(int64_t n) { return g.AddValue({.name = "v" + std::to_string(g.values.size()), .shape = {kT, n}}); }
  ValueId Vector(int64_t n) { return Constant(DType::kF32, {n}); }
  int Add(Op op, std::vector<ValueId> in, std::vector<ValueId> out) {
    g.nodes.push_back({op, "n" + std::to_string(g.nodes.size()), std::move(in), std::move(out), {}, 0});
    return static_cast<int>(g.nodes.size()) - 1;
  }
  // Product of x with `n` rows of type `dtype`.
  int Gemm(ValueId x, int64_t n, DType dtype = DType::kQ4_0) {
    const int64_t k = g.values[x].shape.back();
    return Add(Op::kGemm, {x, Constant(dtype, {n, k})}, {Rows(n)});
  }
  int Unary(Op op, ValueId x, int64_t n = kWidth) { return Add(op, {x}, {Rows(n)}); }
  int Norm(ValueId x) { return Add(Op::kRmsNorm, {x, Vector(kWidth)}, {Rows(kWidth)}); }
  // (norm, sum) of x + skip.
  int SkipNorm(ValueId x, ValueId skip) { return Add(Op::kSkipRmsNorm, {x, skip, Vector(kWidth)}, {Rows(kWidth), Rows(kWidth)}); }
  ValueId Out(int node, size_t i = 0) const { return g.nodes[node].outputs[i]; }
  // The head over x is the graph's result.
  int Head(ValueId x) {
    const int head = Gemm(x, 96);
    g.output_logits = Out(head);
    return head;
  }

 private:
  ValueId Constant(DType dtype, graph::Shape shape) {
    tensors_.push_back({.name = "w", .dtype = dtype, .dims = shape, .data = {}, .foreign_type = {}});
    auto c = std::make_shared<graph::Constant>();
    c->parts.push_back({&tensors_.back(), 0, shape[0]});
    graph::Value v{.name = "w" + std::to_string(g.values.size()), .shape = std::move(shape)};
    v.constant = std::move(c);
    return g.AddValue(std::move(v));
  }
  std::list<model::Tensor> tensors_;
};

// x -> norm -> product d -> (x + d, norm of it) -> head.
TEST(Analysis, AProductAddsIntoTheResidual) {
  Sketch s;
  const ValueId x = s.Input();
  const int norm = s.Norm(x), product = s.Gemm(s.Out(norm), kWidth), skip = s.SkipNorm(x, s.Out(product)), head = s.Head(s.Out(skip));
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_EQ(a.accumulates[product], skip);
  EXPECT_EQ(a.accumulates[head], -1);
  EXPECT_FALSE(a.stored[s.Out(product)]);
  EXPECT_EQ(a.Root(s.Out(skip, 1)), x) << "the sum stays in x's memory";
  EXPECT_EQ(a.segments[product], (std::vector<int64_t>{kWidth}));
  EXPECT_TRUE(a.in_logits[s.g.output_logits]);
}

// The sum of residual and product is read again after the product: the product must not touch it.
TEST(Analysis, NoAccumulationWhenTheProductIsReadTwice) {
  Sketch s;
  const ValueId x = s.Input();
  const int product = s.Gemm(s.Out(s.Norm(x)), kWidth), skip = s.SkipNorm(x, s.Out(product));
  const int sum = s.Add(Op::kAdd, {s.Out(skip), s.Out(product)}, {s.Rows(kWidth)});
  s.Head(s.Out(sum));
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_EQ(a.accumulates[product], -1);
  EXPECT_TRUE(a.stored[s.Out(product)]);
}

TEST(Analysis, NoAccumulationWhenTheResidualIsReadInBetween) {
  Sketch s;
  const ValueId x = s.Input();
  const int product = s.Gemm(s.Out(s.Norm(x)), kWidth);
  const int late = s.Unary(Op::kTanh, x);
  const int skip = s.SkipNorm(x, s.Out(product));
  const int sum = s.Add(Op::kAdd, {s.Out(skip), s.Out(late)}, {s.Rows(kWidth)});
  s.Head(s.Out(sum));
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_EQ(a.accumulates[product], -1);
  EXPECT_EQ(a.Root(s.Out(skip, 1)), x) << "nobody reads x afterwards";
}

TEST(Analysis, TheSumHasMemoryOfItsOwnWhenXLivesOn) {
  Sketch s;
  const ValueId x = s.Input();
  const int product = s.Gemm(s.Out(s.Norm(x)), kWidth), skip = s.SkipNorm(x, s.Out(product));
  const int sum = s.Add(Op::kAdd, {s.Out(skip), x}, {s.Rows(kWidth)});
  s.Head(s.Out(sum));
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_EQ(a.accumulates[product], -1);
  EXPECT_EQ(a.Root(s.Out(skip, 1)), s.Out(skip, 1));
  EXPECT_TRUE(a.stored[s.Out(product)]);
}

// Gemma: the branch is normed before it is added. The add step does that.
TEST(Analysis, ANormOfTheBranchIsAbsorbed) {
  Sketch s;
  const ValueId x = s.Input();
  const int product = s.Gemm(s.Out(s.Norm(x)), kWidth), post = s.Norm(s.Out(product)), skip = s.SkipNorm(x, s.Out(post));
  s.Head(s.Out(skip));
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_TRUE(a.absorbed[post]);
  EXPECT_FALSE(a.stored[s.Out(post)]);
  EXPECT_FALSE(a.into_activations[post]);
  EXPECT_TRUE(a.stored[s.Out(product)]);
  EXPECT_EQ(a.accumulates[product], -1);
}

// ... but not a norm of the residual itself, which the add overwrites.
TEST(Analysis, ANormOfTheResidualIsNotAbsorbed) {
  Sketch s;
  const ValueId x = s.Input();
  const int norm = s.Norm(x), skip = s.SkipNorm(x, s.Out(norm));
  s.Head(s.Out(skip));
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_FALSE(a.absorbed[norm]);
  EXPECT_TRUE(a.stored[s.Out(norm)]);
}

TEST(Analysis, ANormGoesToActivationsWhenOnlyQuantizedProductsReadIt) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_1, DType::kQ8_0, DType::kQ6_K}) {
    Sketch s;
    const ValueId x = s.Input();
    const int norm = s.Norm(x), first = s.Gemm(s.Out(norm), 32, dtype), second = s.Gemm(s.Out(norm), kWidth, dtype);
    const int skip = s.SkipNorm(x, s.Out(second));
    s.Add(Op::kTanh, {s.Out(first)}, {s.Rows(32)});
    s.Head(s.Out(skip));
    const Analysis a = Analyse(s.g, ComputeMode::kNative);
    EXPECT_TRUE(a.into_activations[norm]);
    EXPECT_FALSE(a.stored[s.Out(norm)]);
    EXPECT_TRUE(a.into_activations[skip]);
    const Analysis exact = Analyse(s.g, ComputeMode::kF32);
    EXPECT_FALSE(exact.into_activations[norm]) << "f32 arithmetic has no int8 activations";
    EXPECT_TRUE(exact.stored[s.Out(norm)]);
  }
}

TEST(Analysis, ANormStaysInFloatWhenSomethingElseReadsIt) {
  for (const DType second : {DType::kF16, DType::kF32, DType::kBF16}) {
    Sketch s;
    const int norm = s.Norm(s.Input());
    s.Gemm(s.Out(norm), 32);
    s.Gemm(s.Out(norm), 32, second);
    s.Head(s.Out(norm));
    EXPECT_FALSE(Analyse(s.g, ComputeMode::kNative).into_activations[norm]);
  }
  Sketch s;
  const int norm = s.Norm(s.Input());
  s.Unary(Op::kTanh, s.Out(norm));
  s.Head(s.Out(norm));
  EXPECT_FALSE(Analyse(s.g, ComputeMode::kNative).into_activations[norm]);
}

// There is one activation buffer: a product of something else between the readers would overwrite it.
TEST(Analysis, ANormStaysInFloatWhenAnotherProductComesInBetween) {
  Sketch s;
  const ValueId x = s.Input(), other = s.Input();
  const int norm = s.Norm(x);
  s.Gemm(s.Out(norm), 32);
  s.Gemm(other, 32);
  s.Head(s.Out(norm));
  EXPECT_FALSE(Analyse(s.g, ComputeMode::kNative).into_activations[norm]);
}

// q | k | v of 40, 8 and 8 rows: every piece starts on a panel of 32 rows.
TEST(Analysis, ASplitCutsTheProductIntoPanels) {
  Sketch s;
  const int product = s.Gemm(s.Input(), 56);
  const int split = s.Add(Op::kSplit, {s.Out(product)}, {s.Rows(40), s.Rows(8), s.Rows(8)});
  s.Head(s.Out(s.Unary(Op::kTanh, s.Out(split), 40)));
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_EQ(a.segments[product], (std::vector<int64_t>{40, 8, 8}));
  EXPECT_TRUE(a.absorbed[split]);
  EXPECT_EQ(a.row_values[s.Out(product)], 128);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(a.Root(s.Out(split, i)), s.Out(product));
  EXPECT_EQ(a.Column(s.Out(split, 0)), 0);
  EXPECT_EQ(a.Column(s.Out(split, 1)), 64);
  EXPECT_EQ(a.Column(s.Out(split, 2)), 96);
}

TEST(Analysis, AGateCutsTheProductInHalves) {
  Sketch s;
  const int product = s.Gemm(s.Input(), 96), gate = s.Unary(Op::kGatedActivation, s.Out(product), 48);
  s.Head(s.Out(gate));
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_EQ(a.segments[product], (std::vector<int64_t>{48, 48}));
  EXPECT_EQ(a.row_values[s.Out(product)], 128);
  EXPECT_TRUE(a.into_activations[gate]);
  EXPECT_FALSE(a.stored[s.Out(gate)]);
  EXPECT_FALSE(a.absorbed[gate]);
}

// Gemma 2: the logits are divided, squashed and multiplied in the logits buffer; what stands before the head is not there.
TEST(Analysis, WhatFollowsTheHeadLivesInTheLogits) {
  Sketch s;
  const int norm = s.Norm(s.Input()), head = s.Gemm(s.Out(norm), 96), cap = s.Unary(Op::kTanh, s.Out(head), 96);
  s.g.output_logits = s.Out(cap);
  const Analysis a = Analyse(s.g, ComputeMode::kNative);
  EXPECT_TRUE(a.in_logits[s.Out(cap)]);
  EXPECT_TRUE(a.in_logits[s.Out(head)]);
  EXPECT_FALSE(a.in_logits[s.Out(norm)]);
}

}  // namespace
}  // namespace slm::backend
