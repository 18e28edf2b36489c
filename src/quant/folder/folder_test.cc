// Packed folders with calibration: the same bytes for any number of threads, layers that are never worse than without the steps, and grids
// that the format can hold. What the bytes mean is checked by tests/e2e/formats_test.py.
#include "quant/folder/folder.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "quant/folder/parts.h"

namespace slm::quant {
namespace {
using model::hf::PackedFormat;

struct Written {
  FolderReport report;
  std::string bytes;
};
Recipe Named(const char* name) {
  for (const Recipe& r : Recipes())
    if (r.name == name) return r;
  return {};
}
CalibrationText TextFor(const model::Model& m) {
  CalibrationText text;
  for (int s = 0; s < 3; ++s) {
    auto& sequence = text.sequences.emplace_back();
    for (int i = 0; i < 40; ++i) sequence.push_back(static_cast<int32_t>((7 * s + 5 * i + i * i) % m.config.vocab_size));
  }
  return text;
}
Result<Written> Write(const std::string& name, FolderRecipe recipe, int n_threads) {
  const auto m = model::LoadModel(SLM_SOURCE_DIR "/tests/tiny/models/" + name).Take();
  const CalibrationText text = TextFor(*m);
  SLM_ASSIGN_OR_RETURN(const FolderPlan plan, PlanFolder(*m, recipe, SourceTypes::kFloatOnly));
  const char* forced = std::getenv("SLM_FORCE_ISA");
  WriteOptions options;
  options.n_threads = n_threads;
  options.text = recipe.how.calibrated() ? &text : nullptr;
  options.isa = ChooseIsa(DetectCpu(), forced ? forced : "").Take();
  Written w;
  const auto sink = [&](std::span<const std::byte> b) -> Status {
    w.bytes.append(reinterpret_cast<const char*>(b.data()), b.size());
    return Ok();
  };
  SLM_ASSIGN_OR_RETURN(w.report, WriteFolder(*m, plan, options, sink));
  EXPECT_EQ(w.report.bytes, w.bytes.size());
  return w;
}

TEST(Folder, CalibratedBytesDoNotDependOnThreads) {
  for (const char* how : {"default", "best"}) {
    const FolderRecipe recipe{.format = PackedFormat::kGptqV2, .how = Named(how)};
    const std::string one = Write("llama", recipe, 1).Take().bytes;
    for (const int n : {2, 3}) EXPECT_TRUE(Write("llama", recipe, n).Take().bytes == one) << how << n;
  }
}

TEST(Folder, LayersAreNeverWorseThanWithoutTheSteps) {
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma3", "phi3"})
    for (const PackedFormat format : {PackedFormat::kAwq, PackedFormat::kGptq, PackedFormat::kCompressed})
      for (const bool symmetric : {false, true}) {
        SCOPED_TRACE(std::string(name) + (symmetric ? " symmetric " : " ") + std::to_string(static_cast<int>(format)));
        const auto written = Write(name, {.format = format, .symmetric = symmetric, .how = Named("default")}, 2);
        ASSERT_TRUE(written.ok()) << written.error().message();
        double plain = 0, error = 0;
        for (const LayerReport& l : written.value().report.layers) {
          EXPECT_LE(l.error, l.plain_error);
          plain += l.plain_error;
          error += l.error;
        }
        EXPECT_LT(error, plain) << "no step helped in any layer";
        EXPECT_GT(error, 0);
      }
}

// What is judged has its inputs rounded too; 4 bits and each way of rounding inputs, and storages without evenly spaced codes.
TEST(Folder, RoundedInputsAndOtherStorages) {
  using model::hf::PackedInputs;
  std::vector<FolderRecipe> recipes;
  for (const PackedInputs inputs : {PackedInputs::kDynamic, PackedInputs::kStatic})
    for (const int bits : {4, 8}) recipes.push_back({.format = PackedFormat::kCompressed, .bits = bits, .group = 16, .inputs = inputs});
  for (const Storage storage : {Storage::kLpbq, Storage::kNvFp4})
    recipes.push_back({.format = PackedFormat::kCompressed, .bits = 4, .group = 16, .storage = storage});
  for (FolderRecipe r : recipes)
    for (const char* how : {"default", "best"}) {
      SCOPED_TRACE(std::string(how) + " " + SchemeOf(r) + " " + std::to_string(static_cast<int>(r.inputs)));
      r.how = Named(how);
      r.how.smooth = r.inputs != PackedInputs::kFloat;
      const auto one = Write("llama", r, 1), two = Write("llama", r, 2);
      ASSERT_TRUE(one.ok()) << one.error().message();
      EXPECT_TRUE(one.value().bytes == two.value().bytes) << "any number of threads";
      for (const LayerReport& l : two.value().report.layers) {
        EXPECT_LE(l.error, l.plain_error);
        EXPECT_EQ(l.ranges.size(), r.inputs == PackedInputs::kStatic ? 4u : 0u);
        for (const InputRange& i : l.ranges) {
          EXPECT_GT(i.range, 0) << i.matrix;
          EXPECT_LE(i.range, i.largest * (1 + 1e-5f)) << i.matrix;
        }
      }
    }
}

// Half of the codes of each input cost more than all of them.
TEST(Folder, LayersShowWhatRoundedInputsCost) {
  const auto error = [](model::hf::PackedInputs inputs) {
    FolderRecipe r{
        .format = PackedFormat::kCompressed, .bits = 8, .group = 16, .symmetric = true, .inputs = inputs, .how = Named("default")};
    double sum = 0;
    const auto written = Write("llama", r, 2).Take();
    for (const LayerReport& l : written.report.layers) sum += l.error;
    return sum;
  };
  const double none = error(model::hf::PackedInputs::kFloat);
  EXPECT_GT(error(model::hf::PackedInputs::kDynamic), none);
  EXPECT_GT(error(model::hf::PackedInputs::kStatic), error(model::hf::PackedInputs::kDynamic));
}

TEST(Folder, StaticInputsNeedCalibration) {
  const auto m = model::LoadModel(SLM_SOURCE_DIR "/tests/tiny/models/llama").Take();
  const auto code = [&](const FolderRecipe& r) {
    const auto plan = PlanFolder(*m, r, SourceTypes::kFloatOnly);
    return plan.ok() ? "ok" : std::string(CodeName(plan.error().code()));
  };
  using model::hf::PackedInputs;
  EXPECT_EQ(code({.format = PackedFormat::kCompressed, .group = 0, .inputs = PackedInputs::kStatic}), "invalid_argument");
  EXPECT_EQ(code({.format = PackedFormat::kCompressed, .group = 0, .inputs = PackedInputs::kDynamic}), "ok");
  EXPECT_EQ(code({.format = PackedFormat::kGptq, .group = 0, .inputs = PackedInputs::kDynamic}), "invalid_argument");
  EXPECT_EQ(code({.format = PackedFormat::kAwq, .group = 16, .storage = Storage::kLpbq}), "invalid_argument");
  EXPECT_EQ(code({.format = PackedFormat::kCompressed, .group = 32, .storage = Storage::kMxFp4}), "unsupported") << "48 columns";
  FolderRecipe named;
  for (const char* name : {"w4-zp-g32", "w8-sym-channel", "lpbq-g16", "mxfp4", "nvfp4"}) {
    ASSERT_TRUE(SetScheme(name, &named).ok());
    EXPECT_EQ(SchemeOf(named), name);
  }
  EXPECT_FALSE(SetScheme("w4-full-g32", &named).ok());
  EXPECT_FALSE(SetScheme("w4-min-g32", &named).ok());
}

TEST(Folder, EveryGroupLength) {
  for (const int64_t group : {0, 16, 32, 128})
    for (const int bits : {4, 8}) {
      const auto w = Write("llama", {.format = PackedFormat::kCompressed, .bits = bits, .group = group, .how = Named("default")}, 2);
      ASSERT_TRUE(w.ok()) << group << ": " << w.error().message();
      EXPECT_EQ(w.value().report.layers.size(), 2u);
    }
}

TEST(Folder, GptqsFirstVersionHasNoZeroPointOfZero) {
  const std::vector<float> positive = {0.1f, 0.5f, 0.9f, 1.3f};  // the least grid would begin at 0
  GridSpec spec{.scheme = Scheme::kIntegerZero, .bits = 4, .search = Search::kNearest, .store = Store::kF32, .least_zero = 1};
  for (const Search search : {Search::kNearest, Search::kRefit}) {
    spec.search = search;
    const Grid g = ChooseGrid(spec, positive);
    EXPECT_GE(g.zero, 1);
    EXPECT_NEAR(ValueOf(g, 15), 1.3f, 0.05f) << "the largest value is not cut off";
    EXPECT_GE(ChooseGrid(spec, std::vector<float>(4, 0.0f)).zero, 1);
  }
}

TEST(Folder, WhatIsPackedAlreadyIsNotCalibrated) {
  const auto m = model::LoadModel(SLM_SOURCE_DIR "/tests/tiny/grouped/awq").Take();
  const auto plan = PlanFolder(*m, {.format = PackedFormat::kAwq, .how = Named("default")}, SourceTypes::kFloatOnly);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace slm::quant
