// Divergence against numpy's figures in double (testdata/make_divergence.py), and what is promised on top: zero of a model against
// itself, the same figures whatever the chunks and threads, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "eval/eval.h"

namespace slm::eval {
namespace {

using nlohmann::json;

// Gives the rows of a list one after the other, whatever it is fed, and counts what it is fed.
class RowsBackend final : public backend::Backend {
 public:
  RowsBackend(std::vector<float> rows, int vocab, int chunk = 512) : rows_(std::move(rows)) {
    c_.vocab_size = vocab;
    c_.max_context = 64;
    c_.max_tokens = chunk;
  }
  Result<backend::Logits> Forward(std::span<const int32_t> tokens, backend::LogitsOf) override {
    fed.insert(fed.end(), tokens.begin(), tokens.end());
    const int n = static_cast<int>(tokens.size());
    if (n > c_.max_tokens) return Error(Code::kInvalidArgument, "a chunk too long");
    const float* at = rows_.data() + next_ * static_cast<size_t>(c_.vocab_size);
    next_ += tokens.size();
    used_ += n;
    if (next_ * static_cast<size_t>(c_.vocab_size) > rows_.size()) return Error(Code::kCorrupt, "logits are NaN");
    return backend::Logits{at, n, c_.vocab_size, c_.vocab_size};
  }
  Status Rewind(int position) override {
    used_ = position;
    return Ok();
  }
  int used() const override { return used_; }
  const backend::Capabilities& capabilities() const override { return c_; }
  std::vector<backend::PlacementRow> Placement() const override { return {}; }
  std::vector<int32_t> fed;

 private:
  std::vector<float> rows_;
  size_t next_ = 0;
  int used_ = 0;
  backend::Capabilities c_;
};

struct Fixture {
  json figures;
  std::vector<int32_t> text;
  std::vector<float> model, base;
  int vocab = 0, window = 0;

  Fixture() {
    const std::string folder = SLM_SOURCE_DIR "/src/eval/testdata/";
    std::ifstream numbers(folder + "divergence.json"), rows(folder + "divergence.f32", std::ios::binary);
    figures = json::parse(numbers);
    text = figures["text"].get<std::vector<int32_t>>();
    vocab = figures["vocab"], window = figures["window"];
    for (auto* side : {&model, &base}) {
      side->resize(text.size() * static_cast<size_t>(vocab));
      rows.read(reinterpret_cast<char*>(side->data()), static_cast<std::streamsize>(side->size() * sizeof(float)));
    }
    if (!rows) throw std::runtime_error("divergence.f32 is too short");
  }
  Result<Divergence> Measure(Protocol protocol, int chunk = 512, int n_threads = 1) const {
    RowsBackend p(model, vocab, chunk), b(base, vocab);
    return MeasureDivergence(p, b, text, {.windows = {.protocol = protocol, .window = window}, .n_threads = n_threads});
  }
};

// Sums of some tens of numbers of size 1 in double, of logits up to 1000: errors of about 1e-13.
void ExpectNear(double value, double want) { EXPECT_NEAR(value, want, 1e-11 * std::max(1.0, std::abs(want))); }
void ExpectNear(const Estimate& e, const json& want) {
  ExpectNear(e.mean, want[0].get<double>());
  ExpectNear(e.sigma, want[1].get<double>());
}

TEST(Divergence, IsNumpys) {
  const Fixture f;
  for (const Protocol protocol : {Protocol::kGptq, Protocol::kLlama}) {
    SCOPED_TRACE(ProtocolName(protocol));
    const json& want = f.figures[ProtocolName(protocol)];
    const auto r = f.Measure(protocol);
    ASSERT_TRUE(r.ok()) << r.error().message();
    const Divergence& d = r.value();
    EXPECT_EQ(d.scored_tokens, want["tokens"]);
    EXPECT_EQ(d.windows, 3);
    ExpectNear(d.kld, want["kld"]);
    const double percentiles[] = {d.p50, d.p90, d.p95, d.p99, d.p999, d.max};
    for (size_t i = 0; i < std::size(percentiles); ++i) ExpectNear(percentiles[i], want["percentiles"][i].get<double>());
    ExpectNear(d.top1, want["top1"]);
    ExpectNear(d.delta_p, want["delta_p"]);
    ExpectNear(d.rms_delta_p, want["rms_delta_p"]);
    ExpectNear({d.model.mean_nll, d.model.sigma_nll}, want["nll"]);
    ExpectNear({d.base.mean_nll, d.base.sigma_nll}, want["base_nll"]);
    ExpectNear(d.dlnppl, want["dlnppl"]);
    ExpectNear(d.correlation, want["correlation"].get<double>());
    EXPECT_DOUBLE_EQ(d.model.ppl, std::exp(d.model.mean_nll));
    EXPECT_DOUBLE_EQ(d.base.ppl_sigma, d.base.ppl * d.base.sigma_nll);
  }
}

TEST(Divergence, ChunksAndThreadsDoNotChangeABit) {
  const Fixture f;
  const auto whole = f.Measure(Protocol::kGptq), pieces = f.Measure(Protocol::kGptq, 5, 3);
  ASSERT_TRUE(whole.ok() && pieces.ok());
  EXPECT_EQ(whole.value().kld.mean, pieces.value().kld.mean);
  EXPECT_EQ(whole.value().dlnppl.sigma, pieces.value().dlnppl.sigma);
  EXPECT_EQ(whole.value().correlation, pieces.value().correlation);
}

TEST(Divergence, OfAModelFromItselfIsZero) {
  const Fixture f;
  RowsBackend p(f.base, f.vocab, 7), b(f.base, f.vocab);
  const auto r = MeasureDivergence(p, b, f.text, {.windows = {.window = f.window}, .n_threads = 2});
  ASSERT_TRUE(r.ok()) << r.error().message();
  const Divergence& d = r.value();
  for (const double zero :
       {d.kld.mean, d.kld.sigma, d.p50, d.max, d.delta_p.mean, d.rms_delta_p.mean, d.rms_delta_p.sigma, d.dlnppl.mean, d.dlnppl.sigma})
    EXPECT_EQ(zero, 0.0);
  EXPECT_EQ(d.top1.mean, 1.0);
  EXPECT_EQ(d.top1.sigma, 0.0);
  EXPECT_NEAR(d.correlation, 1.0, 1e-12);
  EXPECT_EQ(d.model.ppl, d.base.ppl);
}

TEST(Divergence, BothAreFedTheSameWindows) {
  const int vocab = 4;
  const std::vector<float> flat(10 * vocab, 0.5f);
  RowsBackend p(flat, vocab, 3), b(flat, vocab);
  const std::vector<int32_t> text = {0, 1, 2, 3, 3, 2, 1, 0, 1};
  const auto r = MeasureDivergence(p, b, text, {.windows = {.window = 4, .bos = 2}});
  ASSERT_TRUE(r.ok()) << r.error().message();
  EXPECT_EQ(p.fed, (std::vector<int32_t>{2, 0, 1, 2, 3, 2, 3, 2, 1, 0}));
  EXPECT_EQ(p.fed, b.fed);
  EXPECT_EQ(r.value().scored_tokens, 2 * 3);
  EXPECT_NEAR(r.value().base.ppl, 4.0, 1e-12);
  EXPECT_TRUE(std::isnan(r.value().correlation));  // neither varies
}

TEST(Divergence, Refusals) {
  const Fixture f;
  const auto refused = [&](int vocab, DivergenceOptions o, size_t n_rows, const DivergenceProgress& progress = {}) {
    RowsBackend p(std::vector<float>(n_rows * static_cast<size_t>(vocab)), vocab), b(f.base, f.vocab);
    const auto r = MeasureDivergence(p, b, f.text, o, progress);
    return r.ok() ? Error(Code::kInternal, "not refused") : r.error();
  };
  const DivergenceOptions good{.windows = {.window = 16}};
  const Error vocabularies = refused(60, good, 48);
  EXPECT_EQ(vocabularies.code(), Code::kInvalidArgument);
  EXPECT_NE(vocabularies.message().find("60"), std::string::npos);
  EXPECT_NE(vocabularies.message().find("61"), std::string::npos);
  EXPECT_EQ(refused(61, {.windows = {.window = 49}}, 48).code(), Code::kInvalidArgument);  // longer than the text
  EXPECT_EQ(refused(61, {.windows = {.window = 64}}, 48).code(), Code::kInvalidArgument);  // context 64 < 65
  EXPECT_EQ(refused(61, {.windows = {.protocol = Protocol::kLlama, .window = 3}}, 48).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused(61, good, 20).code(), Code::kCorrupt);  // what a back end says comes through
  EXPECT_EQ(refused(61, good, 48, [](int done, int, double) { return done < 2; }).code(), Code::kCancelled);
}

}  // namespace
}  // namespace slm::eval
