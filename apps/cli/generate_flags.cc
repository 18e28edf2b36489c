// Generation flags in, measured numbers out. A figure without its sensor is null, never a guess.
#include "generate_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checks.h"
#include "energy_sink.h"
#include "progress.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

Result<std::pair<int32_t, float>> ParseBias(const std::string& text) {
  const Error bad(Code::kInvalidArgument, "--logit-bias '" + text + "' is not ID=VALUE",
                  "give a token id and a number, as in --logit-bias 42=-5, or 42=-inf to ban it");
  const size_t eq = text.find('=');
  if (eq == std::string::npos) return bad;
  int32_t id = 0;
  float value = 0;
  const char *begin = text.data(), *end = begin + text.size();
  const auto left = std::from_chars(begin, begin + eq, id);
  const char* number = begin + eq + (eq + 1 < text.size() && text[eq + 1] == '+' ? 2 : 1);
  const auto right = std::from_chars(number, end, value);
  if (left.ec != std::errc() || left.ptr != begin + eq || right.ec != std::errc() || right.ptr != end) return bad;
  return std::pair{id, value};
}

double Ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// Rounded so that a JSON reader sees 12.345 and not 12.345000000000001.
double Round(double x, double steps_per_unit) { return std::round(x * steps_per_unit) / steps_per_unit; }

struct Gaps {
  double mean = 0, p50 = 0, p95 = 0, p99 = 0;  // ms
};

std::optional<Gaps> GapsOf(std::vector<int64_t> ns) {
  if (ns.empty()) return std::nullopt;
  std::sort(ns.begin(), ns.end());
  // Nearest rank: the smallest value with at least q of the values at or below it.
  const auto rank = [&](double q) {
    const auto i = static_cast<size_t>(std::ceil(q * static_cast<double>(ns.size())));
    return Ms(ns[std::max<size_t>(i, 1) - 1]);
  };
  const int64_t sum = std::accumulate(ns.begin(), ns.end(), int64_t{0});
  return Gaps{Ms(sum) / static_cast<double>(ns.size()), rank(0.5), rank(0.95), rank(0.99)};
}

std::optional<double> PrefillRate(const decode::GenerateStats& s) {
  const int evaluated = s.prompt_tokens - s.cached_tokens;
  if (s.prefill_ns <= 0 || evaluated <= 0) return std::nullopt;
  return evaluated / (static_cast<double>(s.prefill_ns) / 1e9);
}

std::optional<double> DecodeRate(const decode::GenerateStats& s) {
  const int64_t sum = std::accumulate(s.itl_ns.begin(), s.itl_ns.end(), int64_t{0});
  if (sum <= 0) return std::nullopt;
  return static_cast<double>(s.itl_ns.size()) / (static_cast<double>(sum) / 1e9);
}

ordered_json OrNull(const std::optional<double>& x, double steps_per_unit) {
  return x ? ordered_json(Round(*x, steps_per_unit)) : ordered_json(nullptr);
}

ordered_json PlacementJson(const backend::Backend& backend) {
  ordered_json devices = ordered_json::object(), ops = ordered_json::array();
  for (const auto& row : backend.Placement()) {
    devices[row.device] = devices.value(row.device, 0) + row.count;
    ops.push_back({{"op", row.op},
                   {"count", row.count},
                   {"device", row.device},
                   {"backend", row.backend},
                   {"kernel", row.kernel},
                   {"reason", row.reason}});
  }
  return {{"devices", std::move(devices)}, {"ops", std::move(ops)}};
}

}  // namespace

void AddGenerateFlags(CLI::App& app, GenerateFlags& flags) {
  decode::GenerateOptions& o = flags.options;
  decode::SamplingOptions& s = o.sampling;
  const char* length = "Length";
  app.add_option("-n,--max-tokens", o.max_tokens, "most tokens of an answer; 0 evaluates the prompt only")
      ->capture_default_str()
      ->check(FromZero())
      ->group(length);
  app.add_option("--stop", o.stop, "text that ends the answer and is not printed; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(length);
  app.add_flag("--ignore-eos", o.ignore_eos, "go on after the model's end token")->group(length);
  app.add_flag("--show-special", o.show_special, "print special tokens too")->group(length);
  const char* sampling = "Sampling";
  app.add_option("--temperature,--temp", s.temperature, "0: always the likeliest token")->capture_default_str()->group(sampling);
  app.add_option("--top-k", s.top_k, "only the K likeliest; 0: off")->capture_default_str()->group(sampling);
  app.add_option("--top-p", s.top_p, "only the likeliest with this mass together; 1: off")->capture_default_str()->group(sampling);
  app.add_option("--min-p", s.min_p, "only those with this share of the likeliest one's probability; 0: off")
      ->capture_default_str()
      ->group(sampling);
  app.add_option("--repetition-penalty", s.repetition_penalty, "divides the logits of recent tokens; 1: off")
      ->capture_default_str()
      ->group(sampling);
  app.add_option("--penalty-window", s.penalty_window, "recent tokens for --repetition-penalty; -1: all")
      ->capture_default_str()
      ->group(sampling);
  app.add_option("--presence-penalty", s.presence_penalty, "taken once from tokens of the answer")->capture_default_str()->group(sampling);
  app.add_option("--frequency-penalty", s.frequency_penalty, "taken per use of a token in the answer")
      ->capture_default_str()
      ->group(sampling);
  app.add_option("--logit-bias", flags.logit_bias, "ID=VALUE added to a token's logit, -inf bans it; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(sampling);
  app.add_option("--seed", s.seed, "same seed, same text")->check(Seed())->capture_default_str()->group(sampling);
}

Result<decode::GenerateOptions> FinishFlags(const GenerateFlags& flags, const OpenedModel& opened) {
  decode::GenerateOptions o = flags.options;
  for (const std::string& text : flags.logit_bias) {
    SLM_ASSIGN_OR_RETURN(const auto bias, ParseBias(text));
    o.sampling.logit_bias.push_back(bias);
  }
  const auto& config = opened.model->config.eos_ids;
  o.eos_ids.assign(config.begin(), config.end());
  const auto ends = opened.tokenizer->end_ids();
  o.eos_ids.insert(o.eos_ids.end(), ends.begin(), ends.end());
  std::sort(o.eos_ids.begin(), o.eos_ids.end());
  o.eos_ids.erase(std::unique(o.eos_ids.begin(), o.eos_ids.end()), o.eos_ids.end());
  return o;
}

Result<Measured> GenerateMeasured(decode::Session& session, std::span<const int32_t> prompt, const decode::GenerateOptions& options,
                                  decode::TokenSink& sink, const decode::CancelFlag& cancel) {
  telemetry::EnergyMeter meter;
  meter.Start();
  EnergySink sampled(sink, meter);
  auto stats = session.Generate(prompt, options, sampled, cancel);
  Measured m;
  m.energy = Credible(meter.Stop());
  if (!stats.ok()) return stats.error();
  m.stats = stats.Take();
  m.temperature = telemetry::ReadTemperature();
  if (const auto memory = telemetry::ReadProcessMemory(); memory.ok()) m.peak_rss_bytes = memory.value().peak_rss_bytes;
  return m;
}

ordered_json MeasuredJson(const Measured& m, const OpenedModel& opened) {
  const decode::GenerateStats& s = m.stats;
  const backend::Capabilities& c = opened.backend->capabilities();
  ordered_json j;
  j["finish_reason"] = decode::FinishReasonName(s.finish_reason);
  j["stop_string"] = s.stop_string.empty() ? ordered_json(nullptr) : ordered_json(s.stop_string);
  j["prompt_tokens"] = s.prompt_tokens;
  j["cached_tokens"] = s.cached_tokens;
  j["generated_tokens"] = s.generated_tokens;
  j["ttft_ms"] = s.ttft_ns > 0 ? ordered_json(Round(Ms(s.ttft_ns), 1e3)) : ordered_json(nullptr);
  j["prefill_tps"] = OrNull(PrefillRate(s), 1e2);
  j["decode_tps"] = OrNull(DecodeRate(s), 1e2);
  j["itl_ms"] = nullptr;
  if (const auto g = GapsOf(s.itl_ns))
    j["itl_ms"] = {{"mean", Round(g->mean, 1e3)}, {"p50", Round(g->p50, 1e3)}, {"p95", Round(g->p95, 1e3)}, {"p99", Round(g->p99, 1e3)}};
  j["load_ms"] = Round(Ms(opened.load_ns), 1e3);
  j["peak_rss_bytes"] = m.peak_rss_bytes ? ordered_json(*m.peak_rss_bytes) : ordered_json(nullptr);
  j["memory"] = {{"weights_bytes", c.weights_bytes},
                 {"kv_bytes", c.kv_bytes},
                 {"kv_type", opened.kv_type},
                 {"activations_bytes", c.activations_bytes}};
  j["context"] = c.max_context;
  j["device"] = c.device;
  j["isa"] = c.isa;
  j["threads"] = c.n_threads;
  j["placement"] = PlacementJson(*opened.backend);
  j["compiled"] = ordered_json::array();
  for (const GraphContext& g : opened.contexts)
    j["compiled"].push_back({{"graph", g.graph},
                             {"context", g.context.empty() ? ordered_json(nullptr) : ordered_json(g.context)},
                             {"why", g.why.empty() ? ordered_json(nullptr) : ordered_json(g.why)}});
  j["energy"] = nullptr;
  if (m.energy)
    j["energy"] = {{"joules", Round(m.energy->joules, 1e4)},
                   {"watts", Round(m.energy->watts, 1e3)},
                   {"source", m.energy->source},
                   {"method", telemetry::EnergyMethodName(m.energy->method)},
                   {"n_samples", m.energy->n_samples}};
  j["temperature"] = nullptr;
  if (m.temperature) j["temperature"] = {{"celsius", m.temperature->celsius}, {"source", m.temperature->source}};
  j["speculation"] = nullptr;
  j["hand_over"] = nullptr;
  if (const backend::HandOver* h = opened.hand_over)
    j["hand_over"] = {{"count", h->count}, {"tokens", h->tokens}, {"bytes", h->bytes}, {"ms", Round(Ms(h->ns), 1e3)}};
  return j;
}

std::string PlacementText(const backend::Backend& backend) {
  const auto rows = backend.Placement();
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.op.size());
  std::string text;
  for (const auto& row : rows)
    text += fmt::format("  {:{}} {:>5}  {}  {}{}{}\n", row.op, width, fmt::format("x{}", row.count), row.device, row.kernel,
                        row.reason.empty() ? "" : "  ", row.reason);
  return text;
}

std::string MeasuredText(const Measured& m, const OpenedModel& opened) {
  const decode::GenerateStats& s = m.stats;
  const backend::Capabilities& c = opened.backend->capabilities();
  std::string text = fmt::format("prompt   {} tokens, {} of them cached", s.prompt_tokens, s.cached_tokens);
  if (s.ttft_ns > 0) text += fmt::format("; first token after {:.1f} ms", Ms(s.ttft_ns));
  if (const auto rate = PrefillRate(s)) text += fmt::format(", {:.1f} tok/s", *rate);
  text += fmt::format("\nanswer   {} tokens", s.generated_tokens);
  if (const auto rate = DecodeRate(s)) text += fmt::format(", {:.1f} tok/s", *rate);
  if (const auto g = GapsOf(s.itl_ns)) text += fmt::format("; gaps p50 {:.2f} p95 {:.2f} p99 {:.2f} ms", g->p50, g->p95, g->p99);
  text += fmt::format("; ended by {}\n", decode::FinishReasonName(s.finish_reason));
  text += fmt::format("memory   weights {}, KV cache {} ({}) for {} tokens, activations {}", FormatBytes(c.weights_bytes),
                      FormatBytes(c.kv_bytes), opened.kv_type, c.max_context, FormatBytes(c.activations_bytes));
  if (m.peak_rss_bytes) text += fmt::format("; peak resident {}", FormatBytes(*m.peak_rss_bytes));
  text += fmt::format("\ndevice   {}, {} kernels, {} thread{}; loaded in {:.0f} ms\n", c.device, c.isa, c.n_threads,
                      c.n_threads == 1 ? "" : "s", Ms(opened.load_ns));
  for (const GraphContext& g : opened.contexts)
    text += g.context.empty() ? fmt::format("graph    {} compiled at load\n", g.graph)
                              : fmt::format("graph    {} compiled before: {}\n", g.graph, g.context);
  if (const backend::HandOver* h = opened.hand_over)
    text += fmt::format("handed   {} tokens of KV cache over, {} time{}: {}, {:.2f} ms\n", h->tokens, h->count, h->count == 1 ? "" : "s",
                        FormatBytes(h->bytes), Ms(h->ns));
  if (m.energy)
    text += fmt::format("energy   {:.2f} J, {:.2f} W ({}, {})\n", m.energy->joules, m.energy->watts, m.energy->source,
                        telemetry::EnergyMethodName(m.energy->method));
  else text += "energy   no sensor\n";
  if (m.temperature) text += fmt::format("heat     {:.1f} degrees Celsius ({})\n", m.temperature->celsius, m.temperature->source);
  return text;
}

}  // namespace slm::cli
