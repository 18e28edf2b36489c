// A Hugging Face folder seen as the GGUF file that converters make of it, without copying its weights.
//
// What differs from the folder is written to a patch, a GGUF file of keys, vocabulary, vectors and the matrices whose rows change places;
// the view has it beside the folder's maps. Everything that takes a GGUF model takes the view.
#pragma once
#include <memory>

#include "base/mmap.h"
#include "base/result.h"
#include "model/gguf/writer.h"
#include "model/model.h"

namespace slm::model::gguf {

// `folder`: loaded whole, format "hf". `vocabulary`: its tokenizer as lists, kind "gguf". Matrices in groups (AWQ, GPTQ,
// compressed-tensors) become the block type with the same values. Errors: kUnsupported (a setting no key can say; a grouped matrix
// that no block type equals; a tensor type; named), kCorrupt (a vocabulary of another size), the sink's.
Status WriteFolderPatch(const Model& folder, const TokenizerSource& vocabulary, const ByteSink& sink);

// Takes the folder's maps. `patch`: of WriteFolderPatch for the same folder; its file may be removed once it is mapped.
// Errors: as LoadModel.
Result<std::shared_ptr<Model>> ViewFolder(std::shared_ptr<Model> folder, MappedFile patch);

// Writes a view whole, as one file, every tensor as it is. Errors: kUnsupported, the sink's.
Status WriteView(const Model& view, const ByteSink& sink);

}  // namespace slm::model::gguf
