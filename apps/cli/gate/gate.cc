// Judging a written file; see gate.h.
#include "gate/gate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "checks.h"
#include "fetch/digest.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

constexpr int kTokens = 2048, kWindow = 512;

// What both are opened with.
EvalOptions OptionsFor(int context) {
  EvalOptions e;
  e.base_weights = backend::FloatWeights::kFile;  // a float model in memory is most of what a run takes
  e.bos = "known";
  e.window = std::min(kWindow, context - 1);
  e.max_windows = e.window > 0 ? std::max(1, kTokens / e.window) : 1;
  return e;
}

// Before the hours of work that the gate would refuse to judge.
Status CheckLength(std::string_view text, const model::Model& source) {
  SLM_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, BuildTokenizer(source.tokenizer));
  const EvalOptions e = OptionsFor(source.config.max_context);
  SLM_ASSIGN_OR_RETURN(const int32_t bos, BeginToken(tokenizer, e.bos, source.path));
  const eval::WindowOptions windows = WindowsOf(e, bos);
  SLM_ASSIGN_OR_RETURN(const auto ids, EncodeText(tokenizer, text, windows));
  const auto n = eval::CountWindows(ids.size(), source.config.max_context, windows);
  return n.ok() ? Ok() : Status(n.error());
}

std::string Padded(std::string text) {
  text.resize(kGateMarkBytes, ' ');
  return text;
}

}  // namespace

void AddGate(CLI::App& app, GateOptions& o) {
  const char* group = "Gate";
  auto* most =
      app.add_option("--max-kld", o.max_kld,
                     "budget of the mean KLD from the source in nats: exit 3 when the file misses it; of a calibrated recipe without type "
                     "or budget of bits also what chooses the types")
          ->check(NumberFromZero())
          ->group(group);
  auto* text = app.add_option("--gate-text", o.text, "text to judge on, not that of calibration; default: a built-in one")
                   ->check(FileName())
                   ->group(group);
  app.add_flag("--no-gate", o.off, "do not compare what was written with the source")->excludes(most)->excludes(text)->group(group);
}

Result<HeldOut> OpenHeldOut(const GateOptions& o, const model::Model& source, const std::string& calibration) {
  HeldOut text;
  if (o.text.empty()) {
    text.sha256 = Sha256Of(GateText());
    return text;
  }
  SLM_ASSIGN_OR_RETURN(text.file, OpenText(o.text, "--gate-text"));
  text.name = o.text;
  text.sha256 = text.file.sha256;
  if (text.sha256 == calibration)
    return Error(Code::kInvalidArgument, "--gate-text " + o.text + ": is the text of calibration", "judge on another text");
  if (const Status fits = CheckLength(text.file.view(), source); !fits.ok()) return fits.error().At("--gate-text " + o.text);
  return text;
}

Result<Verdict> Judge(Io& io, const JudgeTask& task, const GateOptions& o, const HeldOut& text) {
  const int64_t start = NowNs();
  EvalOptions e = OptionsFor(task.context);
  e.open.model = task.file;
  e.open.n_threads = task.n_threads;
  e.open.memory = task.memory;
  e.base = task.source;
  Verdict v{.run = {}, .window = e.window, .seconds = 0, .max_kld = o.max_kld};
  SLM_ASSIGN_OR_RETURN(v.run, RunDivergence(io, e, text.view()));
  v.seconds = static_cast<double>(NowNs() - start) * 1e-9;
  return v;
}

ordered_json VerdictJson(const Verdict& v, const HeldOut& text) {
  ordered_json all = DivergenceJson(v.run), j;
  for (const char* key : {"kld", "top1", "top1_sigma", "dlnppl", "tokens", "windows"}) j[key] = std::move(all[key]);
  j["ctx"] = v.window;
  j["bos"] = v.run.bos >= 0 ? ordered_json(v.run.bos) : ordered_json(nullptr);
  j["protocol"] = "gptq";
  j["text"] = text.name;
  j["text_sha256"] = text.sha256;
  j["isa"] = v.run.isa;
  j["max_kld"] = v.max_kld ? ordered_json(*v.max_kld) : ordered_json(nullptr);
  j["passed"] = v.max_kld ? ordered_json(v.passed()) : ordered_json(nullptr);
  j["seconds"] = v.seconds;
  return j;
}

std::string VerdictText(const Verdict& v, const HeldOut& text) {
  const eval::Divergence& d = v.run.divergence;
  std::string s = fmt::format(
      "against the source: mean KLD {:.6f} ± {:.6f} nats, same top token {:.2f} %, Δ ln PPL {:+.5f} ± {:.5f} ({} tokens, {} text)",
      d.kld.mean, d.kld.sigma, 100 * d.top1.mean, d.dlnppl.mean, d.dlnppl.sigma, d.scored_tokens, text.name);
  if (v.max_kld) s += fmt::format("\nthe gate: {}, --max-kld {}", v.passed() ? "passed" : "MISSED", *v.max_kld);
  return s;
}

std::string PendingMark() { return Padded("pending: not judged yet"); }

std::string MarkOf(const Verdict& v, const HeldOut& text) {
  const eval::Divergence& d = v.run.divergence;
  return Padded(fmt::format("{}: mean KLD {:.4g} +- {:.2g} of at most {:.6g} nats, same top token {:.2f} %, {} tokens of text sha256 {}",
                            v.passed() ? "passed" : "missed", d.kld.mean, d.kld.sigma, v.max_kld.value_or(0), 100 * d.top1.mean,
                            d.scored_tokens, text.sha256.substr(0, 16)));
}

}  // namespace slm::cli
