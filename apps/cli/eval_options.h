// What `slm eval` was asked, and what its measures share: the text, its windows and the begin token.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mmap.h"
#include "eval/eval.h"
#include "eval/tasks.h"
#include "open_model.h"
#include "verb.h"

namespace slm::cli {

struct EvalOptions {
  OpenOptions open;
  std::string what, text, protocol = "gptq", bos = "auto";
  int window = 512, max_windows = 0;
  // of tasks
  std::string file, labels, shots_file, answers;
  int max_items = 0, shots = 5, max_tokens = 256, code_seconds = 10;
  bool chat = false, run_code = false;
  // of kld, the base also of tasks
  std::string base, base_compute, base_device;  // the last two empty: as the model's
  backend::FloatWeights base_weights = backend::FloatWeights::kPacked;
  std::optional<double> max_kld;
};

// The text, in place: nothing but regular files of at most 256 MiB is mapped, and none is copied.
struct EvalText {
  MappedFile file;
  std::string sha256;
  std::string_view view() const { return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}; }
};
// `option` is the one that named it.
Result<EvalText> OpenText(const std::string& path, const char* option = "--text");

// Options for opening a model that gives every token's logits, about `chunk` rows at a time, with the context that windows take.
OpenOptions OpenForWindows(const EvalOptions& options, int chunk);

// The begin token of a window, -1 for none. `mode`: auto (what the tokenizer asks for), always, known (always where there is one), never.
// Errors: kInvalidArgument for always when the tokenizer has none; `model` names it.
Result<int32_t> BeginToken(const text::Tokenizer& tokenizer, const std::string& mode, const std::string& model);

eval::WindowOptions WindowsOf(const EvalOptions& options, int32_t bos);

// The text's ids. llama-perplexity encodes it as one that begins, so its first window is a begin token shorter.
Result<std::vector<int32_t>> EncodeText(const text::Tokenizer& tokenizer, std::string_view text, const eval::WindowOptions& windows);

// A line on stderr for each tenth of the windows (none with --json); false when the user interrupts.
class WindowNotes {
 public:
  explicit WindowNotes(Io& io) : io_(io) {}
  bool operator()(int done, int all, const char* name, double so_far);

 private:
  Io& io_;
  int noted_ = 0;
};

// MODEL beside its base over a text: what kld prints, and the gate of slm quantize judges by.
struct DivergenceRun {
  eval::Divergence divergence;
  OpenOptions base;
  int32_t bos = -1;  // -1: none
  std::string isa;
};
// Both are opened, the base with what the model left of --mem. Errors: those of OpenModel; kInvalidArgument (other vocabulary or begin
// token, text shorter than a window), kCancelled.
Result<DivergenceRun> RunDivergence(Io& io, const EvalOptions& options, std::string_view text);
// {tokens, windows, ppl, ppl_sigma, base, kld, top1, top1_sigma, delta_p, rms_logits, dlnppl}
nlohmann::ordered_json DivergenceJson(const DivergenceRun& run);

// Questions that one of two models answered rightly.
struct Flips {
  int64_t lost = 0, gained = 0, n = 0;
  double share() const { return static_cast<double>(lost + gained) / static_cast<double>(n); }
};
Flips FlipsOf(const std::vector<bool>& model, const std::vector<bool>& base);
nlohmann::ordered_json FlipsJson(const Flips& flips);
std::string FlipsText(const char* name, const Flips& flips);
nlohmann::ordered_json ShareJson(const eval::Proportion& share);
std::string ShareText(const char* name, const eval::Proportion& share);

// A file of tasks: a text, or one that gzip packed, as HumanEval is published.
struct TaskFile {
  EvalText file;  // its sum is that of the file as it is
  std::string unpacked;
  std::string_view view() const { return unpacked.empty() ? file.view() : std::string_view(unpacked); }
};
// Errors: OpenText's, kCorrupt (not gzip), kLimit (more than 256 MiB unpacked).
Result<TaskFile> OpenTaskFile(const std::string& path, const char* option);

// The base's own options: everything as the model's but the path, --base-compute and --base-device. Own kernels leave ONNX Runtime's
// options to the model.
OpenOptions OpenBase(const Io& io, const EvalOptions& options, OpenOptions model);

// The measures kld and tasks; of tasks, those that a model answers by writing.
Result<int> EvalProblems(Io& io, const EvalOptions& options, const TaskFile& file);
Result<int> EvalDivergence(Io& io, const EvalOptions& options);
Result<int> EvalTasks(Io& io, const EvalOptions& options);

}  // namespace slm::cli
