// What verbs about targets share: --target and --dim as values.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "targets/targets.h"
#include "verb.h"

namespace slm::cli {

// NAME=N words. Errors: kInvalidArgument.
Result<std::map<std::string, int64_t>> ReadDims(const std::vector<std::string>& words);

// A target by name, or a description from a .json file. Errors: those of targets.h, and of reading.
Result<targets::Target> ReadTarget(const std::string& name, const Io& io);

}  // namespace slm::cli
