// The tokenizer files and chat templates of a model folder. Internal to hf/.
#pragma once
#include "base/result.h"
#include "model/hf/folder.h"
#include "model/model.h"

namespace slm::model::hf {

// Reads what is there; kind stays empty when there is no vocabulary. Errors: kCorrupt, kIo.
Result<TokenizerSource> ReadTokenizer(const Folder& folder);

}  // namespace slm::model::hf
