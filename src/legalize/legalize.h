// The door of `legalize`: an ONNX graph rewritten until a target computes as much of it as the rewrites allow.
//
// Open dimensions become fixed, what is then known is computed, and each node that the target's own rows refuse is tried with the rewrites
// of its operator (rewrites.inc). A rewrite stays when the target takes all that it makes, or takes it better, nothing else became worse,
// and the reference executor finds both forms equal. Nodes that are native are never touched, except forms in pieces for which the target
// has an operator.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/onnx.h"
#include "targets/targets.h"

namespace slm::legalize {

struct Options {
  std::map<std::string, int64_t> dims;  // open dimensions by name, made fixed
};

// What comparing two forms by the reference executor found.
struct Comparison {
  enum class Outcome : uint8_t {
    kEqual,     // within the tolerance
    kDiffers,   // `why`: where
    kTooLarge,  // more work than is done here: not known
    kNoRun,     // the reference does not run it, `why`
  } outcome = Outcome::kEqual;
  double largest = 0;  // |difference| of finite values
  double allowed = 0;  // at that value's output
  std::string why;
};

struct Rewritten {
  std::string node, op;               // of several nodes the one that was asked for; operators with their domain
  std::vector<std::string> rewrites;  // their names, in order
  std::vector<std::string> made;      // operators, in order
  Comparison comparison;              // kEqual or kTooLarge
};

struct Refused {
  std::string node, op, rewrite, why;
};

// A node that is not native in the end.
struct Left {
  std::string node, op;
  targets::Verdict verdict = targets::Verdict::kFallback;
  std::string reason;
  std::string tried;  // the rewrites of its operator, and why none was made; "": there is none
};

struct Counts {
  int64_t native = 0, fallback = 0, blocked = 0, folded = 0;
};

struct Report {
  std::string target, title;
  Counts before, after;  // before: with the dimensions fixed
  std::vector<Rewritten> rewritten;
  std::vector<Refused> refused;  // rewrites that the target would take and that were not made
  std::vector<Left> left;
  int64_t n_folded = 0;                 // nodes computed here
  int64_t opset = 0, opset_before = 0;  // of ONNX's own domain
  std::vector<std::string> open_dims;   // still open
  Comparison whole;                     // the whole graph, before and after
  std::vector<std::string> notes;       // bounds that were reached
  bool all_native() const { return left.empty(); }
};

struct Legalized {
  onnx::Model model;  // shares the weights of what was given, and keeps it
  Report report;
};

// Errors: kInvalidArgument (a dimension that the graph has not), kLimit (functions without end), kInternal (the whole graph computes
// something else than before: nothing to use).
Result<Legalized> Legalize(std::shared_ptr<const onnx::Model> model, const targets::Target& target, const Options& options);

// For each of `nodes` (labels of targets::Report) that Legalize would rewrite by the target's rows alone, without running anything: the
// rewrites. Errors: kLimit.
Result<std::map<std::string, std::string>> Rewritable(const onnx::Model& model, const targets::Target& target, const Options& options,
                                                      const std::vector<std::string>& nodes);

}  // namespace slm::legalize
