// A token that no prompt has, for runtimes that know a prompt's length by it.
#pragma once
#include "model/model.h"
#include "tokenizer_files.h"

namespace slm::cli {

// ONNX Runtime GenAI fills the last chunk of a prompt with one token and takes the first such token for the prompt's end. So it is a
// special token that neither begins nor ends a text nor stands in a chat template: the model's own pad token if it is one, else the one of
// the highest id. Without any, the token of a byte that no text has; in a vocabulary without bytes, the highest id.
int PadToken(const model::Model& m, const TokenizerFiles& tokenizer);

}  // namespace slm::cli
