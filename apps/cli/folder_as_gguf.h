// A Hugging Face folder opened as the GGUF model that converters would make of it, for verbs that write GGUF files.
#pragma once
#include <memory>
#include <string>

#include "base/result.h"
#include "model/model.h"
#include "verb.h"

namespace slm::cli {

// `folder`: loaded whole, format "hf", with its tokenizer material. What differs from the folder (keys, vocabulary, vectors, rows of q and
// k) is written to a file beside `out`, which is mapped and removed again. Errors: kUnsupported (a tokenizer or setting that no GGUF file
// can say), kIo, and what the rooms say.
Result<std::shared_ptr<model::Model>> FolderAsGguf(std::shared_ptr<model::Model> folder, const std::string& out, const Io& io);

}  // namespace slm::cli
