// Every model of a package judged against its golden answers: its bytes, its divergence, its times.
#pragma once
#include "base/result.h"
#include "verify/package.h"

namespace slm::cli {

// Says the verdict on each model; the exit code of a gate. Errors: kNotFound (no golden answers), kCorrupt, kCancelled. A model that cannot
// be run is a verdict.
Result<int> JudgePackage(Io& io, const VerifyOptions& options, const Package& package);

}  // namespace slm::cli
