// One decoder layer in float, and what each of its matrices reads: the forward pass of calibration, where a model is walked layer by
// layer so that only one is in memory in f32.
//
// The layer is cut out of the graph that users run (graph::CutLayer) and lowered like any other in ComputeMode::kF32, so that every
// architecture of the builder is covered. One sequence a call, from position 0.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/result.h"
#include "base/threads.h"
#include "graph/graph.h"

namespace slm::backend {

// f32 values that stand in for a tensor of the model, in its shape; owned by the caller until the runner is gone.
struct Replacement {
  const model::Tensor* tensor = nullptr;
  std::span<const float> values;
};

// Whether a run keeps what every node of the layer computes, beside what its matrices read.
enum class KeepOutputs : uint8_t { kNo, kYes };

// Activations as symmetric integers, which a product then reads: with a scale from each row, or one for all.
enum class InputRounding : uint8_t { kNone, kPerToken, kStatic };
struct InputGrid {
  InputRounding rounding = InputRounding::kNone;
  float most = 0;  // of kStatic: the value of the largest code
  int bits = 8;    // 2 to 8
};
// Each value of a row to the nearest of `most` * i / L for i from -L to L, L = 2^(bits - 1) - 1. Pure.
void RoundInput(const InputGrid& grid, std::span<float> row);

struct BlockOptions {
  int layer = 0;
  int max_tokens = 512;  // of one sequence; the graph's rotary tables must have as many rows
  Isa isa = Isa::kScalar;
  std::vector<Replacement> replaced;
  KeepOutputs outputs = KeepOutputs::kNo;
  std::vector<InputGrid> input_grids = {};  // of BlockRunner::inputs() in order; empty: none is rounded
};

// Rows of f32, contiguous; valid until the next call.
struct LayerInput {
  std::vector<const model::Tensor*> matrices;  // that read it, in the graph's order: q, k, v; a fused tensor once
  int64_t width = 0;                           // K
  const float* rows = nullptr;                 // [T][K] of the last call, before any rounding
};

// What a node of the plain graph computed, by its name: rows as LayerInput's. Reshapes, which compute nothing, are not among them.
struct LayerOutput {
  std::string name;
  int64_t width = 0;
  const float* rows = nullptr;  // [T][width] of the last call
};

// Not thread-safe: one call at a time. The same bits for any number of threads.
class BlockRunner {
 public:
  // `decoder`: the plain graph of BuildDecoder, no passes; `team` works for this runner and outlives it. Takes memory for the layer in
  // f32 and the activations of one sequence (NeedBytes). Errors: kUnsupported, kLimit, as CreateCpuBackend.
  static Result<std::unique_ptr<BlockRunner>> Create(const graph::Graph& decoder, const BlockOptions& options, ThreadTeam& team);
  virtual ~BlockRunner() = default;
  // x [n_tokens, E] -> out [n_tokens, E]; they may be the same memory. 1 <= n_tokens <= max_tokens.
  virtual void Run(const float* x, int n_tokens, float* out) = 0;
  // What the matrices read, in the order in which the layer computes: attention input, o input, MLP input, down input.
  virtual std::span<const LayerInput> inputs() const = 0;
  // Of KeepOutputs::kYes, in the order in which the layer computes; else empty.
  virtual std::span<const LayerOutput> outputs() const = 0;
  virtual int64_t bytes() const = 0;  // memory that it holds
};

}  // namespace slm::backend
