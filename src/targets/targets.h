// The door of `targets`: what a device and its runtime can compute, as data, and a graph held against it.
//
// Descriptions are JSON files (targets/*.json, compiled in; docs/targets.md has the schema): operators with element types, ranks and
// attributes, each with its source. A check decides nothing that is not in such a file. No file, no judgement: what is not listed is said
// to be not listed.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "onnx/onnx.h"

namespace slm::targets {

struct Description;  // target.h

class Target {
 public:
  explicit Target(std::shared_ptr<const Description> d) : d_(std::move(d)) {}
  const Description& description() const { return *d_; }
  const std::string& name() const;
  const std::string& title() const;

 private:
  std::shared_ptr<const Description> d_;
};

// Names of the descriptions in the executable, sorted.
std::vector<std::string> TargetNames();

// One of them by name. Errors: kNotFound, listing the names.
Result<Target> FindTarget(std::string_view name);

// A description from text; `place` names it in errors. It may extend and fall back to those in the executable. Errors: kCorrupt with the
// place inside the file ("operators[3] (MatMul): in[1]: no element type \"flaot\""), kUnsupported (a newer schema).
Result<Target> ParseTarget(std::string_view text, const std::string& place);

enum class Verdict : uint8_t {
  kNative,    // a kernel of the target takes it
  kFallback,  // another device computes it (a copy there and back)
  kBlocked,   // nothing that the description names can compute it
  kFolded,    // its inputs are fixed: a runtime computes it once, while it loads
};
const char* VerdictName(Verdict v);

// Operators that share their verdict and its reason.
struct OpFinding {
  std::string op, domain;
  int64_t count = 0;
  Verdict verdict = Verdict::kNative;
  std::string reason, replacement;
  std::string applied_by;          // the verb of slm that makes the replacement; "": none does
  std::string kernel;              // what it becomes; may be empty
  std::string warning;             // of native ones: what to know
  std::string source;              // key of Report::sources
  std::vector<std::string> nodes;  // names of all
};

// A computation that a good compiler runs as one kernel.
struct Fusion {
  std::string what;  // "RMSNorm", "softmax", "RoPE", "attention"
  enum class Form : uint8_t { kOperator, kInside, kDecomposed } form = Form::kOperator;
  bool one_kernel = false;
  std::string kernel;              // the operator's name, or the target's kernel that takes the decomposed form
  std::string note, source;        // why not, or who says so
  std::vector<std::string> nodes;  // all of them
};

// Nodes that only move or convert values.
struct Copy {
  std::string what;  // "transpose", "cast", "KV concatenation", "quantize at the border", "dequantize at the border", "requantize"
  int64_t count = 0;
  int64_t bytes = 0;      // written by those whose shapes are known
  int64_t n_unknown = 0;  // whose shapes are not
  std::vector<std::string> nodes;
};

// A bound of the target and what the model has.
struct Bound {
  std::string what, note, source;
  int64_t most = 0, is = -1;  // -1: not known
  bool kept() const { return is <= most; }
};

// How weights (or activations) are stored: in the model with how many tensors, of the target with a note.
struct StoredAs {
  std::string scheme, note, source;
  int64_t count = 0;
};

struct Report {
  std::string target, title, runtime;
  int64_t n_native = 0, n_fallback = 0, n_blocked = 0, n_folded = 0;
  std::vector<OpFinding> ops;  // not native ones first
  std::vector<Fusion> fusions;
  std::vector<Copy> copies;
  std::vector<Bound> bounds;
  std::vector<StoredAs> weights;                             // of the model's products and tables
  std::vector<StoredAs> target_weights, target_activations;  // what the description names
  int64_t weights_bytes = 0, kv_bytes = -1;                  // -1: no cache, or its length is not known
  bool static_only = false;                                  // the target takes no open dimensions
  std::vector<std::string> open_dims;                        // names of those left, each once
  std::vector<std::string> unknown_dims;                     // of the options, that this graph has not
  int64_t n_unknown_shapes = 0;                              // values whose shape could not be derived
  std::map<std::string, std::string> sources;
  std::vector<std::string> notes;
  bool blocked() const;  // an operator, or a bound
};

struct CheckOptions {
  std::map<std::string, int64_t> dims;  // open dimensions by name, made fixed
  int64_t context = 0;                  // tokens of the cache; 0: not known
};

// The nodes of the main graph, of functions it calls and of bodies, each once. Errors: kLimit (functions that call functions
// without end).
Result<Report> Check(const onnx::Model& model, const Target& target, const CheckOptions& options);

}  // namespace slm::targets
