// A float model turned by Hadamard matrices before it is quantized (quant/rotation/rotation.h), from a file that is gone when it is closed.
#pragma once
#include <memory>
#include <string>

#include "base/cpu_features.h"
#include "base/result.h"
#include "model/model.h"
#include "verb.h"

namespace slm::cli {

// `m` was read as a GGUF file; `out`: the file that is made of it, beside which it lies while it is read. Errors: quant::WriteRotated's,
// kIo, kCancelled.
Result<std::shared_ptr<model::Model>> RotatedGguf(const model::Model& m, const std::string& out, Isa isa, int n_threads, const Io& io);

}  // namespace slm::cli
