// A float model turned by Hadamard matrices before it is quantized (quant/rotation/rotation.h), from a file that is gone when it is closed.
#pragma once
#include <memory>
#include <string>

#include "base/cpu_features.h"
#include "base/result.h"
#include "model/model.h"
#include "verb.h"

namespace slm::cli {

// `m` was read as a GGUF file; `path`: where the file lies while it is written. Errors: quant::WriteRotated's, kIo, kCancelled.
Result<std::shared_ptr<model::Model>> RotatedGguf(const model::Model& m, const std::string& path, Isa isa, int n_threads, const Io& io);

}  // namespace slm::cli
