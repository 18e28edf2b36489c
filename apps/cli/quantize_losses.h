// `slm quantize SRC --losses LIST`: a table of what rounding loses, matrix by matrix.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "quant/quant.h"
#include "verb.h"

namespace slm::cli {

struct LossesRequest {
  std::string source;  // a model, or a file of tensors that is none
  std::vector<std::string> schemes;
  quant::Search search = quant::Search::kRefit;
  int n_threads = 1;
};
// Errors: kInvalidArgument (no such scheme), kNotFound (no matrices of floats), those of the reader and of quant::MeasureRounding.
Result<int> ReportLosses(const LossesRequest& request, Io& io);

}  // namespace slm::cli
