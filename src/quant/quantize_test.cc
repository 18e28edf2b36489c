// A tiny model through PlanTensors and WriteGguf and back: types, errors as reported, the same bytes for any number of threads,
// and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "quant/quant.h"

namespace slm::quant {
namespace {
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kTiny = SLM_SOURCE_DIR "/tests/tiny/models/";

// A file of its own that goes away.
class TempFile {
 public:
  explicit TempFile(const std::string& bytes = {}) {
    static int count = 0;
    path_ = ::testing::TempDir() + "quantize_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++) + ".gguf";
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::shared_ptr<model::Model> Load(const std::string& path) {
  auto r = model::LoadModel(path);
  EXPECT_TRUE(r.ok()) << r.error().message();
  return r.ok() ? r.Take() : nullptr;
}

struct Written {
  Plan plan;
  Report report;
  std::string bytes;
};
Result<Written> Quantize(const model::Model& m, const Recipe& recipe, SourceTypes source = SourceTypes::kFloatOnly, int n_threads = 2) {
  Written w;
  SLM_ASSIGN_OR_RETURN(w.plan, PlanTensors(m, recipe, source));
  const auto sink = [&](std::span<const std::byte> b) -> Status {
    w.bytes.append(reinterpret_cast<const char*>(b.data()), b.size());
    return Ok();
  };
  SLM_ASSIGN_OR_RETURN(w.report, WriteGguf(m, w.plan, {.n_threads = n_threads, .progress = {}, .layer_done = {}}, sink));
  return w;
}

std::string ErrorOf(const model::Model& m, const Recipe& recipe, SourceTypes source = SourceTypes::kFloatOnly) {
  const auto r = Quantize(m, recipe, source);
  return r.ok() ? "written" : std::string(CodeName(r.error().code())) + ": " + r.error().message() + ": " + r.error().hint();
}

// The file of a model with bytes of one of its tensors overwritten.
std::string Overwritten(const std::string& name, const model::Model& m, const std::string& tensor, size_t at,
                        std::span<const std::byte> with) {
  std::string bytes = ReadFile(kTiny + name);
  const model::Tensor* t = m.FindName(tensor);
  const size_t offset = static_cast<size_t>(t->data.data() - m.files.front().bytes().data());
  std::memcpy(bytes.data() + offset + at, with.data(), with.size());
  return bytes;
}

double RelativeError(const model::Tensor& a, const model::Tensor& b) {
  const std::vector<float> x = model::DequantizeAll(a), y = model::DequantizeAll(b);
  double lost = 0, power = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    lost += d * d;
    power += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return power > 0 ? std::sqrt(lost / power) : 0;
}

TEST(Quantize, WritesAModelWithTheErrorsThatItReports) {
  const auto source = Load(kTiny + "llama.gguf");
  const auto w = Quantize(*source, {.body = DType::kQ4_0});
  ASSERT_TRUE(w.ok()) << w.error().message();
  EXPECT_EQ(w.value().report.bytes, w.value().bytes.size());
  const TempFile file(w.value().bytes);
  const auto m = Load(file.path());
  ASSERT_TRUE(m);
  ASSERT_EQ(m->tensors.size(), source->tensors.size());
  for (const TensorReport& t : w.value().report.tensors) {
    SCOPED_TRACE(t.name);
    const model::Tensor *from = source->FindName(t.name), *to = m->FindName(t.name);
    ASSERT_TRUE(from && to);
    EXPECT_EQ(to->dtype, t.to);
    EXPECT_EQ(to->dims, from->dims);
    EXPECT_NEAR(RelativeError(*from, *to), t.error, 1e-9);
    const bool matrix = from->dims.size() == 2;
    if (!matrix) {
      EXPECT_EQ(t.error, 0);
      continue;
    }
    const DType four_or_eight = t.name.starts_with("blk.") ? DType::kQ4_0 : DType::kQ8_0;
    EXPECT_EQ(t.to, from->dims[1] == 48 ? DType::kF16 : four_or_eight) << "32 does not divide 48";
    EXPECT_LT(t.error, t.to == DType::kQ4_0 ? 0.15 : 0.01);
    EXPECT_GT(t.error, t.to == DType::kQ4_0 ? 0.01 : t.to == DType::kQ8_0 ? 0.0005 : -1.0);
  }
  EXPECT_THAT(w.value().plan.notes, Contains(HasSubstr("width 48 does not divide into blocks of 32: F16 instead of Q4_0 (2)")));
  EXPECT_THAT(m->metadata, Contains(std::pair<std::string, std::string>("general.file_type", "2")));
  EXPECT_EQ(m->config.d_model, source->config.d_model);
  EXPECT_EQ(m->tokenizer.tokens.size(), source->tokenizer.tokens.size());
}

TEST(Quantize, TheSameBytesForAnyNumberOfThreads) {
  const auto source = Load(kTiny + "llama.gguf");
  const auto one = Quantize(*source, {.body = DType::kQ4_1}, SourceTypes::kFloatOnly, 1);
  ASSERT_TRUE(one.ok());
  for (const int n : {2, 3, 7}) {
    const auto more = Quantize(*source, {.body = DType::kQ4_1}, SourceTypes::kFloatOnly, n);
    ASSERT_TRUE(more.ok());
    EXPECT_TRUE(one.value().bytes == more.value().bytes) << n;
  }
}

TEST(Quantize, SuperBlocksFallBackToBlocksOf32) {
  const auto source = Load(kTiny + "llama.gguf");
  const auto w = Quantize(*source, {.head = DType::kQ6_K, .body_bpw = 0});
  ASSERT_TRUE(w.ok()) << w.error().message();
  for (const TensorReport& t : w.value().report.tensors) {
    if (t.name != "blk.0.attn_q.weight" && t.name != "output.weight") continue;
    EXPECT_EQ(t.to, t.name == "output.weight" ? DType::kQ8_0 : DType::kQ4_1);
  }
  EXPECT_THAT(w.value().plan.notes, Contains(HasSubstr("width 32 does not divide into blocks of 256: Q4_1 instead of Q4_K")));
}

// Of the matrices of llama.gguf that stand-ins hold, per layer: q and o 32 x 32, k and v 16 x 32, gate and up 48 x 32; down is F16.
TEST(Quantize, StandInsLoseTheirMinimumUntilTheLayersKeepToTheLimit) {
  const auto source = Load(kTiny + "llama.gguf");
  const auto types = [&](double limit) {
    const Plan plan = PlanTensors(*source, {.body_bpw = limit}, SourceTypes::kFloatOnly).Take();
    std::map<std::string, DType> out;
    for (const Choice& c : plan.choices)
      if (c.is_body) out[c.tensor->name] = c.dtype;
    EXPECT_EQ(out.size(), 14u);
    return std::make_pair(out, plan);
  };
  const auto [none, free] = types(0);
  for (const auto& [name, dtype] : none) EXPECT_EQ(dtype, name.find("ffn_down") != std::string::npos ? DType::kF16 : DType::kQ4_1) << name;
  // Half a bit a weight less: just under the queries of both layers, so that one up projection has to go, too.
  const double weights = 2.0 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32), queries = 0.5 * 2 * 32 * 32 / weights;
  const auto [some, held] = types(free.body_bpw() - queries - 1e-6);
  EXPECT_LE(held.body_bpw(), free.body_bpw() - queries - 1e-6);
  for (const auto& [name, dtype] : some) {
    const bool lost = name.find("attn_q") != std::string::npos || name == "blk.1.ffn_up.weight";
    EXPECT_EQ(dtype, lost ? DType::kQ4_0 : none.at(name)) << name;
  }
  EXPECT_THAT(held.notes, Contains(HasSubstr("Q4_0 instead of Q4_K (3)")));
  EXPECT_THAT(held.notes, Contains(HasSubstr("Q4_1 instead of Q4_K (9)")));
  for (const auto& [name, dtype] : types(4.7).first) {
    const bool down = name.find("ffn_down") != std::string::npos;
    EXPECT_EQ(dtype, down ? DType::kF16 : DType::kQ4_0) << "the F16 matrices alone are above the limit";
  }
}

TEST(Quantize, ASourceThatIsQuantizedIsRefusedUnlessAsked) {
  const auto source = Load(kTiny + "quantized.gguf");
  EXPECT_THAT(ErrorOf(*source, {}), AllOf(HasSubstr("unsupported"), HasSubstr("is already Q"), HasSubstr("--requantize")));
  const auto w = Quantize(*source, {.body = DType::kQ4_0}, SourceTypes::kAny);
  ASSERT_TRUE(w.ok()) << w.error().message();
  int same = 0;
  for (const TensorReport& t : w.value().report.tensors)
    if (t.from == DType::kQ4_0 && t.to == DType::kQ4_0) {
      EXPECT_EQ(t.error, 0) << "copied";
      ++same;
    }
  EXPECT_GT(same, 0);
}

TEST(Quantize, OtherSourcesAreRefused) {
  EXPECT_THAT(ErrorOf(*Load(kTiny + "llama"), {}), AllOf(HasSubstr("unsupported"), HasSubstr("cannot be quantized")));
  EXPECT_THAT(ErrorOf(*Load(kTiny + "llama.gguf"), {.body = DType::kIQ4_NL}), AllOf(HasSubstr("invalid_argument"), HasSubstr("IQ4_NL")));
}

TEST(Quantize, NamesTheRowThatHoldsNan) {
  const auto source = Load(kTiny + "llama.gguf");
  const uint16_t bad[] = {0x7e00, 0x7c00};  // NaN, infinity
  for (const uint16_t& v : bad) {
    const std::string bytes = Overwritten("llama.gguf", *source, "blk.1.attn_k.weight", (5 * 32 + 3) * 2, std::as_bytes(std::span(&v, 1)));
    const TempFile file(bytes);
    EXPECT_THAT(ErrorOf(*Load(file.path()), {}), AllOf(HasSubstr("corrupt"), HasSubstr("blk.1.attn_k.weight: row 5")));
  }
}

TEST(Quantize, AHeadThatEqualsTheEmbeddingIsStoredOnce) {
  const auto source = Load(kTiny + "llama.gguf");
  const model::Tensor *embedding = source->FindName("token_embd.weight"), *head = source->FindName("output.weight");
  ASSERT_EQ(embedding->data.size(), head->data.size());
  const TempFile twice(Overwritten("llama.gguf", *source, "output.weight", 0, embedding->data));
  const auto m = Load(twice.path());
  ASSERT_FALSE(m->config.tied_head);
  const auto w = Quantize(*m, {});
  ASSERT_TRUE(w.ok());
  EXPECT_THAT(w.value().plan.notes, Contains(HasSubstr("stored once")));
  const TempFile file(w.value().bytes);
  const auto tied = Load(file.path());
  ASSERT_TRUE(tied);
  EXPECT_TRUE(tied->config.tied_head);
  EXPECT_EQ(tied->FindName("output.weight"), nullptr);
  const auto different = Quantize(*source, {});
  ASSERT_TRUE(different.ok());
  EXPECT_THAT(different.value().plan.notes, ::testing::Not(Contains(HasSubstr("stored once"))));
}

TEST(Quantize, ABudgetBuysBitsForTheFragileTensors) {
  const auto source = Load(kTiny + "llama.gguf");
  const Plan without = PlanTensors(*source, {.body = DType::kQ4_0}, SourceTypes::kFloatOnly).Take();
  const auto types = [](const Plan& p, const std::string& part) {
    std::vector<DType> out;
    for (const Choice& c : p.choices)
      if (c.tensor->name.find(part) != std::string::npos) out.push_back(c.dtype);
    return out;
  };
  EXPECT_THAT(types(without, "attn_v"), ::testing::Each(DType::kQ4_0));
  // One value projection is 16 x 32 weights: 4 bits more each.
  const double one = 4.0 * 16 * 32 / static_cast<double>(without.weights());
  const Plan some = PlanTensors(*source, {.body = DType::kQ4_0, .bpw = without.bpw() + 1.5 * one}, SourceTypes::kFloatOnly).Take();
  EXPECT_EQ(types(some, "attn_v"), (std::vector{DType::kQ8_0, DType::kQ4_0}));
  EXPECT_LE(some.bpw(), without.bpw() + 1.5 * one);
  const Plan all = PlanTensors(*source, {.body = DType::kQ4_0, .bpw = 32}, SourceTypes::kFloatOnly).Take();
  EXPECT_EQ(types(all, "attn_v"), (std::vector{DType::kQ8_0, DType::kQ8_0}));
  EXPECT_EQ(types(all, "attn_q"), types(without, "attn_q"));
  EXPECT_THAT(all.notes, Contains(HasSubstr("attn_v.weight as Q8_0 in 2 layers")));
  EXPECT_THAT(ErrorOf(*source, {.body = DType::kQ4_0, .bpw = 2}), AllOf(HasSubstr("limit"), HasSubstr("2.000"), HasSubstr("--bpw")));
}

// Q4_1 for Q4_K takes 5 bits, Q4_0 in its place 4.5: less cannot be had. 48 columns stay F16.
TEST(Quantize, LimitsOfBitsAreRefusedBeforeTheWork) {
  const auto source = Load(kTiny + "llama3_rope.gguf");
  const double least = PlanTensors(*source, {.body_bpw = 1}, SourceTypes::kFloatOnly).value().body_bpw();
  EXPECT_TRUE(PlanTensors(*source, {.body_bpw = least, .body_bpw_is_wish = false}, SourceTypes::kFloatOnly).ok());
  EXPECT_THAT(ErrorOf(*source, {.body_bpw = least - 0.01, .body_bpw_is_wish = false}), AllOf(HasSubstr("limit"), HasSubstr("--body-bpw")));
  EXPECT_THAT(ErrorOf(*source, {.body = DType::kQ8_0, .body_bpw = 5, .body_bpw_is_wish = false}), HasSubstr("--body-bpw"));
  const Plan both =
      PlanTensors(*source, {.body = DType::kQ4_0, .bpw = 32, .body_bpw = least + 0.001, .body_bpw_is_wish = false}, SourceTypes::kFloatOnly)
          .Take();
  EXPECT_LE(both.body_bpw(), least + 0.001) << "the budget of the file does not buy past the limit of the layers";
  Recipe measured = Recipes()[1];
  measured.types = {DType::kQ4_0, DType::kQ8_0};
  measured.body_bpw = 0;
  measured.bpw = 3;
  EXPECT_THAT(ErrorOf(*source, measured), AllOf(HasSubstr("limit"), HasSubstr("--bpw 3.000"), HasSubstr("bits per weight")));
  measured.bpw = 0;
  measured.body_bpw = 3;
  EXPECT_TRUE(PlanTensors(*source, measured, SourceTypes::kFloatOnly).ok()) << "a wish";
  measured.body_bpw_is_wish = false;
  EXPECT_THAT(ErrorOf(*source, measured), HasSubstr("--body-bpw 3.000"));
}

TEST(Quantize, MemoryDoesNotGrowWithTheModel) {
  const auto source = Load(kTiny + "llama.gguf");
  Plan plan = PlanTensors(*source, {}, SourceTypes::kFloatOnly).Take();
  model::Tensor large = *source->FindName("blk.0.attn_q.weight");
  large.dims = {1 << 20, 8192};
  plan.choices.push_back({&large, DType::kQ4_K, true, 0});
  EXPECT_LT(NeedBytes(*source, plan, {.n_threads = 4, .progress = {}, .layer_done = {}}), uint64_t{16} << 20);
}

}  // namespace
}  // namespace slm::quant
