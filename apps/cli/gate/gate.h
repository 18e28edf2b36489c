// The gate of slm quantize: the file as it was written, opened again by the reader, beside its float source on text that no calibration
// saw. A budget that is missed is exit 3, and the file itself says so.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "eval_options.h"
#include "model/model.h"
#include "verb.h"

namespace CLI {
class App;
}

namespace slm::cli {

struct GateOptions {
  bool off = false;
  std::string text;               // file; empty: GateText()
  std::optional<double> max_kld;  // budget of the mean KLD, nats
};
// Declares --max-kld, --gate-text and --no-gate.
void AddGate(CLI::App& app, GateOptions& options);

// The built-in text; see gate_text.cc for what it is and its licence.
std::string_view GateText();

// A text to judge on, of the user or the built-in one.
struct HeldOut {
  EvalText file;  // without a sum: the built-in one
  std::string name = "built-in";
  std::string sha256;
  std::string_view view() const { return file.sha256.empty() ? GateText() : file.view(); }
};
// `source` has its tokenizer's parts still. `calibration`: sum of the text that the model was calibrated on, which must not judge it; "":
// none. Errors, of the user's text: kIo, kInvalidArgument (that of calibration, or shorter than a window), BuildTokenizer's.
Result<HeldOut> OpenHeldOut(const GateOptions& options, const model::Model& source, const std::string& calibration);

struct JudgeTask {
  std::string file, source;  // paths of the quantized model and of the float one
  int context = 0;           // tokens that the model was made for
  int n_threads = 0;
  std::string memory;  // budget for both together, as --mem has it; empty: none
};
struct Verdict {
  DivergenceRun run;
  int window = 0;
  double seconds = 0;
  std::optional<double> max_kld;
  bool passed() const { return !max_kld || run.divergence.kld.mean <= *max_kld; }
};
// Both models over at most 2048 tokens of the text, in windows of 512 or what the context allows, with the begin token where the
// tokenizer has one. Errors: RunDivergence's.
Result<Verdict> Judge(Io& io, const JudgeTask& task, const GateOptions& options, const HeldOut& text);

// {kld, top1, top1_sigma, dlnppl, tokens, windows, ctx, bos, protocol, text, text_sha256, isa, max_kld, passed, seconds}; `passed` is
// null without a budget.
nlohmann::ordered_json VerdictJson(const Verdict& verdict, const HeldOut& text);
std::string VerdictText(const Verdict& verdict, const HeldOut& text);

// What the file says about its gate, under a key whose text has always kGateMarkBytes, so that it can be put there afterwards.
inline constexpr const char* kGateKey = "slmkit.gate";
inline constexpr size_t kGateMarkBytes = 160;
std::string PendingMark();
std::string MarkOf(const Verdict& verdict, const HeldOut& text);  // "passed: mean KLD 0.0123 of at most 0.05, …"

}  // namespace slm::cli
