// A model whose residual stream and value heads are turned by orthogonal matrices that cancel out: the same function, with weights in which
// single large channels are spread over all. Done before anything is rounded, and nothing of it is left to compute when the model runs.
//
// Sources: QuaRot (arXiv 2404.00456) and SpinQuant (arXiv 2405.16406), their offline part: R1 on the residual stream, R2 in each value
// head, random Hadamard matrices. Norm weights go into the matrices behind the norm first, for x / |x| alone commutes with a rotation.
#pragma once
#include <cstdint>

#include "base/cpu_features.h"
#include "base/result.h"
#include "base/threads.h"
#include "model/gguf/writer.h"
#include "model/model.h"

namespace slm::quant {

// Writes `m`, which was read as a GGUF file, turned, as a GGUF file of F32. The head is stored by itself when the model ties it to the
// embedding. One matrix is in memory at a time, twice. The same bytes for any number of threads on one tier. Errors: kUnsupported (named:
// norms behind attention or MLP, a width without a Hadamard matrix, no GGUF file), kCorrupt (NaN or infinity), and the sink's.
Status WriteRotated(const model::Model& m, uint64_t seed, Isa isa, ThreadTeam& team, const model::gguf::ByteSink& sink);

}  // namespace slm::quant
