// slm bench: prefill and decode speed of one model, in llama-bench's terms, every figure checked before it is printed.
//
// pp N: evaluates N random tokens from an empty context (logits of the last one). tg N @dD: N greedy steps after D tokens.
// ttft N: a warm prompt of N tokens up to the first chosen token. One warm-up of each test, then r repetitions; greedy tokens must
// be the same in each, else the run fails. Random tokens: a fixed linear congruential sequence, another one a repetition.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/threads.h"
#include "open_model.h"
#include "telemetry/telemetry.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

struct BenchOptions {
  OpenOptions open;
  std::vector<int> pp{512}, tg{128}, depths{0}, ttft{32}, threads;
  int repetitions = 5;
  bool no_warm_up = false;
};

struct Test {
  std::string name;
  int tokens = 0;  // that the figure counts
  int prompt = 0;  // evaluated before the clock starts (tg) or under it (pp, ttft)
  enum class Kind : uint8_t { kPrefill, kDecode, kFirstToken } kind = Kind::kPrefill;
};

std::vector<int32_t> RandomTokens(int n, int vocab, uint64_t seed) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;
  for (int32_t& id : ids) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    id = static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocab));
  }
  return ids;
}

int32_t ArgMax(std::span<const float> row) { return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()); }

Status CheckCancel(const Io& io) { return io.cancelled() ? Status(Error(Code::kCancelled, "interrupted")) : Ok(); }

Result<backend::Logits> Prefill(const Io& io, backend::Backend& b, std::span<const int32_t> ids) {
  backend::Logits last;
  while (!ids.empty()) {
    SLM_RETURN_IF_ERROR(CheckCancel(io));
    const size_t n = std::min(ids.size(), static_cast<size_t>(b.capabilities().max_tokens));
    SLM_ASSIGN_OR_RETURN(last, b.Forward(ids.first(n), backend::LogitsOf::kLastToken));
    ids = ids.subspan(n);
  }
  return last;
}

struct Outcome {
  int64_t ns = 0;
  std::vector<int32_t> chosen;
};

Result<Outcome> RunOnce(const Io& io, const OpenedModel& m, const Test& t, uint64_t seed) {
  backend::Backend& b = *m.backend;
  SLM_RETURN_IF_ERROR(b.Rewind(0));
  auto prompt = RandomTokens(std::max(1, t.prompt), b.capabilities().vocab_size, seed);
  std::copy_n(m.begin.begin(), std::min(m.begin.size(), prompt.size()), prompt.begin());
  Outcome o;
  const int64_t start_ns = NowNs();
  SLM_ASSIGN_OR_RETURN(backend::Logits l, Prefill(io, b, prompt));
  o.chosen.push_back(ArgMax(l.Row(0)));
  o.ns = NowNs() - start_ns;
  if (t.kind != Test::Kind::kDecode) return o;
  o.chosen.reserve(static_cast<size_t>(t.tokens) + 1);
  const int64_t decode_ns = NowNs();
  for (int i = 0; i < t.tokens; ++i) {
    SLM_RETURN_IF_ERROR(CheckCancel(io));
    SLM_ASSIGN_OR_RETURN(l, b.Forward({&o.chosen.back(), 1}, backend::LogitsOf::kLastToken));
    o.chosen.push_back(ArgMax(l.Row(0)));
  }
  o.ns = NowNs() - decode_ns;
  return o;
}

ordered_json Spread(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  const double median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
  return {{"median", median}, {"min", v.front()}, {"max", v.back()}};
}

// Operations of a prefill of n tokens: every matrix for every token, but the head for the last one only.
double PrefillOps(const OpenedModel& m, int n) {
  const double head = 2.0 * m.model->config.vocab_size * m.model->config.d_model;
  return (static_cast<double>(m.backend->capabilities().ops_per_token) - head) * n + head;
}

// Runs one test: warm-up, repetitions, and the check that the same input gave the same tokens.
Result<ordered_json> RunTest(Io& io, const OpenedModel& m, const Test& t, const BenchOptions& options) {
  const auto& cap = m.backend->capabilities();
  std::vector<int32_t> expected;  // what the prompt of seed 1 chooses
  if (!options.no_warm_up) {
    SLM_ASSIGN_OR_RETURN(Outcome warm, RunOnce(io, m, t, 1));
    expected = std::move(warm.chosen);
  }
  std::vector<double> tps, ms;
  for (int r = 0; r < options.repetitions; ++r) {
    // Decode always repeats the warm-up's prompt and must repeat its tokens; prefill takes a fresh prompt, and the last
    // repetition the warm-up's, for the same check.
    const bool repeat = t.kind == Test::Kind::kDecode || r == options.repetitions - 1;
    SLM_ASSIGN_OR_RETURN(const Outcome o, RunOnce(io, m, t, repeat ? 1 : static_cast<uint64_t>(r) + 2));
    if (repeat && expected.empty()) expected = o.chosen;
    if (repeat && o.chosen != expected)
      return Error(Code::kInternal, t.name + ": the same prompt gave other tokens in another repetition", "report this as a bug");
    ms.push_back(static_cast<double>(o.ns) / 1e6);
    tps.push_back(t.tokens / (static_cast<double>(o.ns) / 1e9));
  }
  ordered_json j = {{"test", t.name}, {"tokens", t.tokens}, {"threads", cap.n_threads}, {"tps", Spread(tps)}, {"ms", Spread(ms)}};
  const double median_tps = j["tps"]["median"];
  j["bytes_per_token"] = cap.bytes_per_token;
  const bool decode = t.kind == Test::Kind::kDecode;
  j["gbps"] = decode ? ordered_json(static_cast<double>(cap.bytes_per_token) * median_tps / 1e9) : ordered_json(nullptr);
  j["gops"] = t.kind == Test::Kind::kPrefill ? ordered_json(PrefillOps(m, t.tokens) / t.tokens * median_tps / 1e9) : ordered_json(nullptr);
  j["depth"] = decode ? t.prompt : 0;
  j["repetitions"] = options.repetitions;
  const auto memory = telemetry::ReadProcessMemory();
  j["peak_rss_bytes"] = memory.ok() ? ordered_json(memory.value().peak_rss_bytes) : ordered_json(nullptr);
  j["isa"] = cap.isa;
  j["kv"] = m.kv_type;
  j["cpu"] = DetectCpu().brand;
  return j;
}

std::vector<Test> TestsOf(const BenchOptions& o) {
  std::vector<Test> tests;
  for (int n : o.pp)
    if (n > 0) tests.push_back({"pp" + std::to_string(n), n, n, Test::Kind::kPrefill});
  for (int n : o.ttft)
    if (n > 0) tests.push_back({"ttft" + std::to_string(n), n, n, Test::Kind::kFirstToken});
  for (int n : o.tg)
    for (int d : o.depths)
      if (n > 0) tests.push_back({"tg" + std::to_string(n) + (d > 0 ? " @d" + std::to_string(d) : ""), n, d, Test::Kind::kDecode});
  return tests;
}

std::string Row(const ordered_json& j) {
  char line[200];
  const std::string test = j["test"];
  const auto& tps = j["tps"];
  std::string rate = !j["gbps"].is_null()   ? fmt::format("{:.1f} GB/s of weights", j["gbps"].get<double>())
                     : !j["gops"].is_null() ? fmt::format("{:.0f} GOP/s", j["gops"].get<double>())
                                            : fmt::format("{:.1f} ms to the first token", j["ms"]["median"].get<double>());
  std::snprintf(line, sizeof line, "%-14s %7d  %9.1f  (%.1f-%.1f)   %s\n", test.c_str(), j["threads"].get<int>(),
                tps["median"].get<double>(), tps["min"].get<double>(), tps["max"].get<double>(), rate.c_str());
  return line;
}

Result<int> Bench(Io& io, BenchOptions o) {
  if (o.repetitions < 1) return Error(Code::kInvalidArgument, "-r must be at least 1");
  const std::vector<Test> tests = TestsOf(o);
  if (tests.empty()) return Error(Code::kInvalidArgument, "nothing to measure", "give --pp, --tg or --ttft a number above 0");
  if (o.threads.empty()) o.threads = {DefaultThreadCount()};
  int need = 1;
  for (const Test& t : tests) need = std::max(need, t.prompt + (t.kind == Test::Kind::kDecode ? t.tokens + 1 : 0));
  if (o.open.context == 0) {
    o.open.context = need;
    o.open.context_for = "the longest test";
    o.open.context_from = "--pp, --tg, --depth or --ttft";
  }
  if (o.open.context < need)
    return Error(Code::kInvalidArgument, fmt::format("--ctx {} is too short: the tests need {}", o.open.context, need), "raise --ctx");
  bool first = true;
  for (int threads : o.threads) {
    OpenOptions open = o.open;
    open.n_threads = threads;
    SLM_ASSIGN_OR_RETURN(const OpenedModel m, OpenModel(io, open));
    if (first && !io.json) {
      const auto& cap = m.backend->capabilities();
      io.Print(
          fmt::format("{}\nCPU {}, kernels {}, KV cache {}, {:.1f} MB of weights a token, {} repetitions: median "
                      "(lowest-highest)\n\n{:<14} {:>7}  {:>9}\n",
                      o.open.model, DetectCpu().brand, cap.isa, m.kv_type, static_cast<double>(cap.bytes_per_token) / 1e6, o.repetitions,
                      "test", "threads", "tokens/s"));
    }
    first = false;
    for (const Test& t : tests) {
      SLM_ASSIGN_OR_RETURN(const ordered_json j, RunTest(io, m, t, o));
      if (io.json) io.PrintJson(j);
      else io.Print(Row(j));
    }
  }
  for (const auto& zone : telemetry::ReportZones())  // builds with SLM_ZONES only
    io.Note(fmt::format("zone {:<16} {:>9} calls {:>10.3f} ms", zone.name, zone.calls, static_cast<double>(zone.total_ns) / 1e6));
  return int{kExitOk};
}

}  // namespace

Body DeclareBench(CLI::App& app, Io& io) {
  auto o = std::make_shared<BenchOptions>();
  AddOpenOptions(app, o->open);
  // Several thread counts may be measured in one run here.
  app.remove_option(app.get_option("--threads"));
  app.add_option("-t,--threads", o->threads, "thread counts, separated by commas (default: all physical cores)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--pp", o->pp, "prompt lengths for prefill speed, separated by commas; 0: none")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--tg", o->tg, "numbers of greedy steps for decode speed; 0: none")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--depth", o->depths, "tokens in the context before decode starts")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--ttft", o->ttft, "prompt lengths for the time to the first token; 0: none")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("-r,--repetitions", o->repetitions, "repetitions after one warm-up")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("--no-warmup", o->no_warm_up, "times the first evaluation too, as a new process pays for it");
  app.footer(
      "With --json: one JSON line a test.\n\nExample:\n  slm bench smollm2-135m-instruct --pp 512 --tg 128 --depth 0,1024 -r 5 -t 1,2");
  return [o, &io]() -> Result<int> { return Bench(io, *o); };
}

}  // namespace slm::cli
