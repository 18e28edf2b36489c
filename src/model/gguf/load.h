// A GGUF file, or a set of shards, as a Model.
#pragma once
#include <memory>
#include <string>

#include "base/result.h"
#include "model/gguf/reader.h"
#include "model/model.h"

namespace slm::model::gguf {

// `path`: a file. When its keys say that it is one of several shards, the others are found beside it by their names
// ("-00001-of-00003.gguf"), whichever of them `path` is. Errors as LoadModel.
Result<std::shared_ptr<Model>> Load(const std::string& path, LoadWhat what);

// The same from a parsed file: vocabulary, config, roles, as far as `what` asks. `path` is only recorded and named in errors.
// The bytes that `file` looks into must outlive the model.
Result<std::shared_ptr<Model>> MakeModel(File file, const std::string& path, LoadWhat what);

}  // namespace slm::model::gguf
