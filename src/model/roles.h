// Which tensor of a file is for what: names in both formats and the shapes that the config implies, as one table (roles.inc).
#pragma once
#include "base/result.h"
#include "model/model.h"

namespace slm::model {

enum class Naming : uint8_t { kGguf, kHf };

// What the tensor of a role is called in a GGUF file of a model of this configuration ("blk.3.attn_q.weight"); empty: nothing there.
std::string GgufName(Role role, int layer, const ModelConfig& c);

// Fills m->role_index from m->tensors and m->config, and checks that every tensor the config implies is there with its shape
// and a type that can be read. `prefix`: what stands before "layers.N." in an HF file ("model."), empty for GGUF.
// Errors: kCorrupt (missing tensor, wrong shape; the tensor is named), kUnsupported (storage type; a tensor inside a layer
// that this build would not use: ignoring it would change the result).
Status BindRoles(Naming naming, const std::string& prefix, Model* m);

}  // namespace slm::model
