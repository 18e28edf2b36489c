// The tokenizer files of an exported folder: the source folder's own, or made from the vocabulary of a GGUF file.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace slm::cli {

struct TokenizerFiles {
  std::vector<std::pair<std::string, std::string>> files;  // name, text
  std::string note;                                        // not empty: the model has no tokenizer
};
// Errors: kUnsupported for a vocabulary that has no tokenizer.json, and what the tokenizer says.
Result<TokenizerFiles> TokenizerFilesOf(const model::Model& m);

}  // namespace slm::cli
