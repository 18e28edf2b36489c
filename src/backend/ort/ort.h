// The ONNX Runtime back end: an exported decoder evaluated by a library that is found at run time, on the execution providers it has.
//
// Nothing of ONNX Runtime is linked. OpenRuntime opens the library, agrees on a version of its interface (24 to 29) and makes the one
// environment with the one pool of threads; a back end is a session on it. What a decoder's file holds is told by the caller, who has
// read it: this room knows no file format.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace slm::backend::ort {

// The interface that this build can talk: one below is refused, a newer library offers these too.
inline constexpr int kOldestApi = 24, kNewestApi = 29;

struct ProviderLibrary {
  std::string name, path;  // the name under which it is registered: its providers' names begin with it
};

struct RuntimeOptions {
  std::vector<std::string> places;  // files, folders to look in, or plain names for the system's loader; tried in order
  int n_threads = 1;                // of every session's pool
  std::vector<ProviderLibrary> providers;
};

// An execution provider on a device that it offers.
struct Provider {
  std::string name, vendor, version;
  std::string device;  // "cpu", "gpu", "npu"
  std::string file;    // its library; "" when the runtime has it built in
};

class Runtime;  // library, environment, registered providers. Thread-safe

// Errors: kUnavailable (no such library; the hint says how to get it), kUnsupported (older than API 24), kIo (a provider's library).
// A second runtime in the process uses the first one's libraries and threads, and must go before it.
Result<std::shared_ptr<Runtime>> OpenRuntime(const RuntimeOptions& options);

struct RuntimeInfo {
  std::string version, path;
  int api = 0;  // version agreed on
  std::vector<Provider> providers;
};
RuntimeInfo Describe(const Runtime& runtime);

enum class OnCpu : uint8_t { kAllowed, kForbidden };
enum class Absent : uint8_t { kNoted, kExpected };

enum class Power : uint8_t { kAsItIs, kBurst, kBalanced, kLow };

struct ProviderOption {
  std::string provider;  // "": whichever is taken
  std::string key, value;
};

struct Choice {
  // What to run on, best first: "npu", "gpu", "cpu", or a provider's name. Absent ones are passed over; the CPU takes the rest.
  std::vector<std::string> devices;
  Absent absent = Absent::kNoted;  // kNoted: a device that no provider offers leaves a note
  OnCpu rest = OnCpu::kAllowed;    // kForbidden: an error when a node is left to the CPU although devices[0] is there to ask for another
  Power power = Power::kAsItIs;    // as an option of the provider where it has one, which `options` may say otherwise; else a note
  std::vector<ProviderOption> options;
};

struct NodePlace {
  std::string provider, device;
  std::string op, domain, name;
};

struct Placed {
  std::vector<NodePlace> nodes;    // as optimized by the runtime, in its order
  std::vector<std::string> notes;  // why something does not run where it was asked to
};

// Where the runtime would run each node of an ONNX file. Errors: kLimit (Choice::rest, the nodes named), what the runtime says.
Result<Placed> PlaceNodes(const std::shared_ptr<Runtime>& runtime, const std::string& path, const Choice& choice);

// The provider that the choice takes first. Errors: kUnavailable, naming what was looked for.
Result<Provider> FirstProvider(const Runtime& runtime, const Choice& choice);

// Has that provider compile the ONNX file at `path` ahead of time: `out` becomes an ONNX file whose EPContext nodes name binaries beside
// it. Errors: kUnavailable, kUnsupported (nothing was compiled), what the runtime says.
Status CompileContext(const Runtime& runtime, const std::string& path, const Choice& choice, const std::string& out);

enum class ContextFit : uint8_t { kFits, kBetterAnew, kNot, kNotSaid };
// What the provider says of a compiled file's "ep_compatibility_info" on the device that is here now.
Result<ContextFit> FitOfContext(const Runtime& runtime, const Choice& choice, const std::string& compatibility_info);

// A decoder with a KV cache as inputs past and outputs present of [1, Hkv, S, D]; names of layers with one %d.
struct Decoder {
  std::string path;  // of the ONNX file
  int context = 0;   // tokens it was made for
  int n_layers = 0, vocab_size = 0;
  int n_kv_heads = 0, head_dim = 0;  // of the cache, where the graph leaves them open; 0: not stated
  std::string input_ids = "input_ids", attention_mask = "attention_mask", position_ids = "position_ids";
  std::string past_key = "past_key_values.%d.key", past_value = "past_key_values.%d.value";
  std::string logits = "logits", present_key = "present.%d.key", present_value = "present.%d.value";
  // Which values of a cached key the graph turns together; unknown: the cache is not handed to other back ends.
  enum class Pairs : uint8_t { kUnknown, kHalves, kNeighbours } key_pairs = Pairs::kUnknown;
  int rotary_dim = 0;                                                 // values of a head that it turns; 0: all
  int64_t weights_bytes = 0, bytes_per_token = 0, ops_per_token = 0;  // as in Capabilities
};

struct OrtOptions {
  int context = 2048;  // S: KV slots, at most Decoder::context
  int chunk = 512;     // tokens of one Forward at most; lowered to `context`
  LogitsOf logits = LogitsOf::kLastToken;
  int64_t memory_budget_bytes = 0;  // 0: none
  Choice choice;
};

struct OrtBackend {
  std::unique_ptr<Backend> backend;
  std::string kv_type;             // "f32", "f16", …: the file's choice
  std::vector<std::string> notes;  // as in Placed
};

// Opens a session, takes all memory (cache, inputs, logits) and runs once to warm up. kAllTokens on a decoder whose logits are the last
// token's evaluates token by token. Errors: kUnsupported (inputs, outputs or types that this room does not know), kLimit (memory,
// Choice::rest), what the runtime says. Thread-safe; back ends of one runtime share its threads.
Result<OrtBackend> CreateOrtBackend(const std::shared_ptr<Runtime>& runtime, const Decoder& decoder, const OrtOptions& options);

}  // namespace slm::backend::ort
