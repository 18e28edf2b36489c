// From a MODEL argument to something that can generate: the one place where the rooms below are put together for the verbs.
//
// Files are mapped, then two threads work side by side: one builds the tokenizer, the other the graph, its passes and the back
// end. Shared by run, chat, bench and everything else that loads a model.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/hybrid/hybrid.h"
#include "base/cpu_features.h"
#include "base/result.h"
#include "model/model.h"
#include "text/text.h"
#include "verb.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace slm::cli {

enum class Fallback : unsigned char { kAllowed, kForbidden };

// Options of ONNX Runtime; see ort_flags.h.
struct OrtFlags {
  std::string runtime;                 // --ort: where ONNX Runtime lies
  std::vector<std::string> providers;  // --ep-library NAME=PATH
  std::vector<std::string> options;    // --ep-option [NAME:]KEY=VALUE
  std::string power;                   // --power; empty: as the provider has it
};

struct OpenOptions {
  std::string model;                          // path or name in the store
  std::string backend = "auto";               // "cpu", "ort", or "auto": see TakesOrt
  std::string device = "auto";                // best first, separated by commas; "auto": the best one present
  std::string prefill_device, decode_device;  // empty: as `device`. Either makes two back ends, or places the two graphs of a static folder
  std::string prefill_model;                  // another form of the model, for prompts; empty: `model`
  OrtFlags ort;
  Fallback fallback = Fallback::kAllowed;
  int n_threads = 0;               // 0: DefaultThreadCount()
  int context = 0;                 // tokens; 0: the model's own, at most kDefaultContext
  int context_least = 0;           // tokens that will do for a model that was made for fewer than `context`; 0: none fewer
  std::string context_for;         // what the verb needs `context` for ("--window 512") when it is not the user's --ctx
  std::string context_from;        // the options that make it smaller
  std::string kv = "f16";          // a name of kernels::kKvTypeNames
  std::string compute = "native";  // "native" or "f32"
  std::vector<std::string> passes_off;
  std::string memory;  // budget: "600M", "2G" or bytes; empty: none
  backend::LogitsOf logits = backend::LogitsOf::kLastToken;
  backend::FloatWeights float_weights = backend::FloatWeights::kPacked;  // of the cpu back end
  int chunk = 0;                                                         // tokens of one Forward at most; 0: the back end's default
};
// A model's own context can be 128k tokens, whose cache would not fit a small device: more than this is asked for by name.
inline constexpr int kDefaultContext = 4096;

// Declares MODEL, --backend, --device, ONNX Runtime's options, --no-fallback, --threads, --ctx, --kv, --compute, --passes-off and --mem.
void AddOpenOptions(CLI::App& app, OpenOptions& options);

// A graph of a static folder whose device compiles: what it runs from.
struct GraphContext {
  std::string graph;    // file
  std::string context;  // path of the compiled graph; empty: compiled at load
  std::string why;      // of an empty one, where something was compiled that does not serve
};

struct OpenedModel {
  std::shared_ptr<const model::Model> model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<backend::Backend> backend;
  std::vector<int32_t> begin;                    // tokens that the back end needs at the front of a sequence; empty: the tokenizer's own
  std::string kv_type;                           // of the cache
  int64_t load_ns = 0;                           // from the call of OpenModel
  std::vector<GraphContext> contexts;            // of graphs on a device that compiles
  const backend::HandOver* hand_over = nullptr;  // of a back end that is two; its own
};

// --ctx for a model that was made for `own` tokens (0: not known). Error: kInvalidArgument when more are asked for.
Status CheckContext(int context, int own);
// Slots of the KV cache for a model that was made for `own` tokens (0: not known). Errors: kInvalidArgument when more are asked for.
Result<int> ContextFor(const OpenOptions& options, int own);

// Loads everything. Errors: what the rooms say; kInvalidArgument for options; kUnavailable for a device this build cannot
// reach; kLimit for the memory budget and for --no-fallback.
Result<OpenedModel> OpenModel(const Io& io, const OpenOptions& options);

// --mem for what is opened beside `m`; empty without one. Error: kLimit when nothing is left.
Result<std::string> MemoryLeft(const OpenOptions& options, const OpenedModel& m);

// The tokenizer of a file: from a GGUF's vocabulary, a tokenizer.json, or the pieces of an older folder. Errors: kNotFound when
// the file has none, and what the text room says.
Result<text::Tokenizer> BuildTokenizer(const model::TokenizerSource& source);
// The vocabulary of a GGUF file (kind "gguf"); views into `source`.
text::TokenizerParts PartsOf(const model::TokenizerSource& source);

// Declares -t,--threads; ThreadsOr gives the number to use.
CLI::Option* AddThreads(CLI::App& app, int& n_threads);
int ThreadsOr(int n_threads);  // n_threads, or DefaultThreadCount() for 0
// The kernels' tier: the best of this CPU, or what SLM_FORCE_ISA names. Errors: ChooseIsa's.
Result<Isa> IsaOfEnvironment(const CpuFeatures& cpu);
// Declares --mem; ParseBytes reads what it holds.
CLI::Option* AddMemory(CLI::App& app, std::string& memory);

// "600M", "2G", "512K" (powers of 1024) or a plain number of bytes. Errors: kInvalidArgument.
Result<int64_t> ParseBytes(const std::string& text);

}  // namespace slm::cli
