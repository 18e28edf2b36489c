// Golden answers of a package recorded: a reference answers the prompts, and every model of the package is measured against it.
#pragma once
#include "base/result.h"
#include "verify/package.h"

namespace slm::cli {

// Writes the file of golden answers and says what was measured. Errors: kNotFound (no model), kInvalidArgument (the file would replace one
// that is read), kLimit (--max-kld missed: nothing is written), kCancelled, and the models'.
Result<int> RecordPackage(Io& io, const VerifyOptions& options, const Package& package);

}  // namespace slm::cli
