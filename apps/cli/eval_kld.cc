// slm eval MODEL kld --base BASE: how far a model's distributions are from its base's, both run side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "eval_options.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

// Rows of logits that each side holds memory for: at 262144 tokens of vocabulary 134 MB; 256 are no faster.
constexpr int kRows = 128;

// Widths of the logits and the string of every token that both files name. A file may pad its list (GGUF does, to the width).
Status CheckSameVocabulary(const OpenedModel& m, const OpenedModel& b, const EvalOptions& o) {
  const int n = m.backend->capabilities().vocab_size, n_base = b.backend->capabilities().vocab_size;
  const std::string hint = "a divergence needs a base with the same vocabulary";
  if (n != n_base)
    return Error(Code::kInvalidArgument, fmt::format("{} has a vocabulary of {} tokens, {} one of {}", o.open.model, n, o.base, n_base),
                 hint);
  const int both = std::min(m.tokenizer->VocabSize(), b.tokenizer->VocabSize());
  for (int id = 0; id < both; ++id) {
    const std::string_view token = m.tokenizer->TokenBytes(id), base_token = b.tokenizer->TokenBytes(id);
    if (token != base_token)
      return Error(Code::kInvalidArgument,
                   fmt::format("the vocabularies ({} and {} tokens) differ: token {} is '{}' in {}, '{}' in {}", n, n_base, id, token,
                               o.open.model, base_token, o.base),
                   hint);
  }
  return Ok();
}

// The base gets what the model left of the memory budget.
Result<OpenOptions> OptionsOfBase(const Io& io, const EvalOptions& o, const OpenedModel& m) {
  OpenOptions base = OpenBase(io, o, OpenForWindows(o, kRows));
  base.float_weights = o.base_weights;
  SLM_ASSIGN_OR_RETURN(base.memory, MemoryLeft(base, m));
  return base;
}

// Both sides must see the same windows, so they must agree on the begin token.
Result<int32_t> BeginTokenOfBoth(const OpenedModel& m, const OpenedModel& b, const EvalOptions& o) {
  SLM_ASSIGN_OR_RETURN(const int32_t bos, BeginToken(*m.tokenizer, o.bos, o.open.model));
  SLM_ASSIGN_OR_RETURN(const int32_t base_bos, BeginToken(*b.tokenizer, o.bos, o.base));
  if (bos == base_bos) return bos;
  const auto name = [](int32_t id) { return id < 0 ? std::string("no begin token") : fmt::format("begin token {}", id); };
  return Error(Code::kInvalidArgument, fmt::format("{} wants {}, {} {}", o.open.model, name(bos), o.base, name(base_bos)),
               o.bos == "auto" ? "say --bos always or --bos never" : "say --bos never");
}

ordered_json Json(const eval::Estimate& e) { return {{"mean", e.mean}, {"sigma", e.sigma}}; }

}  // namespace

ordered_json DivergenceJson(const DivergenceRun& run) {
  const eval::Divergence& d = run.divergence;
  ordered_json kld = Json(d.kld), dlnppl = Json(d.dlnppl), delta_p = Json(d.delta_p);
  for (const auto& [name, value] :
       {std::pair("p50", d.p50), {"p90", d.p90}, {"p95", d.p95}, {"p99", d.p99}, {"p999", d.p999}, {"max", d.max}})
    kld[name] = value;
  dlnppl["correlation"] = std::isnan(d.correlation) ? ordered_json(nullptr) : ordered_json(d.correlation);
  delta_p["rms"] = d.rms_delta_p.mean;
  delta_p["rms_sigma"] = d.rms_delta_p.sigma;
  ordered_json base = {{"model", run.base.model}, {"ppl", d.base.ppl}, {"ppl_sigma", d.base.ppl_sigma}, {"compute", run.base.compute}};
  return {{"tokens", d.scored_tokens},     {"windows", d.windows},       {"ppl", d.model.ppl},         {"ppl_sigma", d.model.ppl_sigma},
          {"base", std::move(base)},       {"kld", std::move(kld)},      {"top1", d.top1.mean},        {"top1_sigma", d.top1.sigma},
          {"delta_p", std::move(delta_p)}, {"rms_logits", d.rms_logits}, {"dlnppl", std::move(dlnppl)}};
}

namespace {

std::string ToText(const eval::Divergence& d) {
  std::string s = fmt::format("KLD              {:.6f} ± {:.6f} nats a token\n", d.kld.mean, d.kld.sigma);
  s += fmt::format("  percentiles    50 % {:.6f}  90 % {:.6f}  95 % {:.6f}  99 % {:.6f}  99.9 % {:.6f}  most {:.6f}\n", d.p50, d.p90, d.p95,
                   d.p99, d.p999, d.max);
  s += fmt::format("same top token   {:.3f} ± {:.3f} %\n", 100 * d.top1.mean, 100 * d.top1.sigma);
  s += fmt::format("Δp, right token  mean {:+.4f} ± {:.4f} %  root mean square {:.4f} ± {:.4f} %\n", 100 * d.delta_p.mean,
                   100 * d.delta_p.sigma, 100 * d.rms_delta_p.mean, 100 * d.rms_delta_p.sigma);
  s += fmt::format("logits           {:.5f} of their root mean square\n", d.rms_logits);
  s += fmt::format("Δ ln PPL         {:+.6f} ± {:.6f}", d.dlnppl.mean, d.dlnppl.sigma);
  s += std::isnan(d.correlation) ? "\n" : fmt::format("  (correlation {:.3f} %)\n", 100 * d.correlation);
  s += fmt::format("perplexity       {:.4f} ± {:.4f}, of the base {:.4f} ± {:.4f}\n", d.model.ppl, d.model.ppl_sigma, d.base.ppl,
                   d.base.ppl_sigma);
  return s;
}

}  // namespace

Result<DivergenceRun> RunDivergence(Io& io, const EvalOptions& o, std::string_view text) {
  SLM_ASSIGN_OR_RETURN(const OpenedModel m, OpenModel(io, OpenForWindows(o, kRows)));
  DivergenceRun run;
  SLM_ASSIGN_OR_RETURN(run.base, OptionsOfBase(io, o, m));
  SLM_ASSIGN_OR_RETURN(const OpenedModel b, OpenModel(io, run.base));
  SLM_RETURN_IF_ERROR(CheckSameVocabulary(m, b, o));
  SLM_ASSIGN_OR_RETURN(run.bos, BeginTokenOfBoth(m, b, o));
  const eval::WindowOptions windows = WindowsOf(o, run.bos);
  SLM_ASSIGN_OR_RETURN(const auto ids, EncodeText(*m.tokenizer, text, windows));
  WindowNotes notes(io);
  const auto& c = m.backend->capabilities();
  run.isa = c.isa;
  SLM_ASSIGN_OR_RETURN(run.divergence,
                       eval::MeasureDivergence(*m.backend, *b.backend, ids, {.windows = windows, .n_threads = c.n_threads},
                                               [&](int done, int all, double kld) { return notes(done, all, "KLD", kld); }));
  return run;
}

Result<int> EvalDivergence(Io& io, const EvalOptions& o) {
  if (o.base.empty()) return Error(Code::kInvalidArgument, "kld measures against another model", "give it with --base");
  SLM_ASSIGN_OR_RETURN(const EvalText text, OpenText(o.text));
  SLM_ASSIGN_OR_RETURN(const DivergenceRun run, RunDivergence(io, o, text.view()));
  const eval::Divergence& d = run.divergence;
  if (io.json) {
    ordered_json j = DivergenceJson(run);
    if (o.max_kld) {
      j["max_kld"] = *o.max_kld;
      j["passed"] = d.kld.mean <= *o.max_kld;
    }
    j["protocol"] = o.protocol;
    j["ctx"] = o.window;
    j["bos"] = run.bos >= 0 ? ordered_json(run.bos) : ordered_json(nullptr);
    j["text_sha256"] = text.sha256;
    j["isa"] = run.isa;
    j["kv"] = o.open.kv;
    j["compute"] = o.open.compute;
    io.PrintJson(j);
  } else {
    io.Print(ToText(d));
    io.Print(fmt::format("({} protocol, {} tokens scored in {} windows of {}, BOS {}, compute {} against {}, text sha256 {}…)\n",
                         o.protocol, d.scored_tokens, d.windows, o.window, run.bos >= 0 ? std::to_string(run.bos) : "none", o.open.compute,
                         run.base.compute, text.sha256.substr(0, 12)));
  }
  if (!o.max_kld || d.kld.mean <= *o.max_kld) return int{kExitOk};
  io.Note(fmt::format("the mean KLD {:.6f} is more than the budget, --max-kld {}", d.kld.mean, *o.max_kld));
  return int{kExitGate};
}

}  // namespace slm::cli
