// What slm verify is asked for, and where a package's models and golden answers lie.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

struct VerifyOptions {
  std::string package, golden, base, prompts, memory;
  bool record = false, no_latency = false, no_skip = false;
  int n_steps = 16, n_top = 16, n_threads = 0;
  std::optional<double> max_kld;
  double slack = 0.25;
};

struct Package {
  std::string file, folder;         // golden answers, and what its paths are relative to
  bool one_model = false;           // named by itself
  std::vector<std::string> models;  // relative, sorted
};

// The golden answers lie in a folder of models, else beside the model. Errors: ResolveModel's, kIo.
Result<Package> FindPackage(const VerifyOptions& options, const Io& io);

}  // namespace slm::cli
