// A Hugging Face model folder as a Model: config.json, safetensors in one file or in shards, tokenizer files, templates.
#pragma once
#include <memory>
#include <string>

#include "base/result.h"
#include "model/hf/folder.h"
#include "model/model.h"

namespace slm::model::hf {

// `path`: a folder. Errors as LoadModel.
Result<std::shared_ptr<Model>> Load(const std::string& path, LoadWhat what);

// The same from a folder's small files and a list of tensors that is already in `m` (when it is empty, the folder's weights are
// read). Errors as Load, without the path.
Status FillModel(const Folder& folder, LoadWhat what, Model* m);

// For a safetensors file named alone: joins the packed matrices of m->tensors as the config in its folder says, if one is there.
// Errors: kCorrupt, kUnsupported.
Status JoinBesideConfig(const std::string& folder_path, Model* m);

}  // namespace slm::model::hf
