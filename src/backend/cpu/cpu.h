// The CPU back end: own kernels, a flat plan of steps, everything allocated at load.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "graph/graph.h"
#include "kernels/kv_pack/contract.h"

namespace slm::backend {

// kNative: quantized weights times int8 activations. kF32: every weight dequantised to f32, f32 activations: slow and exact,
// the setting for comparisons with other engines' f32 results.
enum class ComputeMode : uint8_t { kNative, kF32 };

// Where float matrices are between two calls: packed in memory, or in the mapped file, whose rows each call packs again a few panels at a
// time. The same bits; for models that are read in long chunks, where packing costs little beside the products.
enum class FloatWeights : uint8_t { kPacked, kFile };

struct CpuOptions {
  int n_threads = 1;
  int context = 2048;  // S: KV slots
  int chunk = 256;     // tokens of one Forward at most; lowered to `context` when that is smaller
  kernels::KvType kv_type = kernels::KvType::kF16;
  ComputeMode compute = ComputeMode::kNative;
  FloatWeights float_weights = FloatWeights::kPacked;
  Isa isa = Isa::kScalar;                  // from ChooseIsa
  LogitsOf logits = LogitsOf::kLastToken;  // kAllTokens: room for `chunk` rows of logits is taken at load (perplexity)
  int64_t memory_budget_bytes = 0;         // 0: none. Error kLimit with the need and the budget when exceeded
};

// Lowers the graph (verified, passes run or not) to a plan and packs the weights. `g` and its model may go afterwards, except
// that the model's maps stay alive through g.model. Errors: kUnsupported (an operator or shape), kInvalidArgument (options),
// kLimit (memory, threads). Thread-safe: calls share nothing; each back end has threads of its own.
Result<std::unique_ptr<Backend>> CreateCpuBackend(const graph::Graph& g, const CpuOptions& options);

}  // namespace slm::backend
