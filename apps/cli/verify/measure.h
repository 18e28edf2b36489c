// A model run over golden answers: what both recording and judging ask.
#pragma once
#include <string>

#include "base/result.h"
#include "eval/golden.h"
#include "open_model.h"
#include "verb.h"
#include "verify/golden_file.h"
#include "verify/package.h"

namespace slm::cli {

struct GoldenRun {
  eval::GoldenMatch match;
  double p95_ms = 0;  // one step of decoding
  std::string device, backend, isa;
  int n_threads = 0;
  double same_top() const { return match.steps > 0 ? static_cast<double>(match.same_top) / static_cast<double>(match.steps) : 0; }
};

// How a model is opened for `context` tokens of prompts and answers.
OpenOptions OpenOptionsFor(const VerifyOptions& options, const std::string& model, size_t context);

// Runs the answers of `file` until a pass is at most `enough_ms` slow at its 95th percentile, a few times at most; keeps the fastest.
// Errors: OpenModel's and CompareGolden's, kInvalidArgument (another vocabulary), kCancelled.
Result<GoldenRun> MeasureArtefact(Io& io, const VerifyOptions& options, const std::string& model, const GoldenFile& file, double enough_ms);

}  // namespace slm::cli
