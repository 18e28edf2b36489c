// Graph -> flat plan: chooses kernels, decides what is fused into which step, lays out memory, declares what each step touches.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/packed_matrix.h"
#include "backend/cpu/plan.h"
#include "graph/graph.h"
#include "kv/kv.h"

namespace slm::backend {

// Everything a plan owns but memory: sizes to allocate, matrices still without data, steps in order.
struct LoweredPlan {
  std::vector<Step> steps;
  std::deque<PackedMatrix> matrices;                              // addresses are stable: steps point here
  std::deque<std::vector<float>> vectors;                         // norm weights
  std::vector<std::shared_ptr<const graph::Constant>> constants;  // rotary tables
  kv::Layout kv;
  // Calls of many tokens give quantized matrices bf16 tiles (kernels/packed/tiles.h): every kind in use has a wide kernel here. One
  // answer for the model, because a step that makes activations serves several matrices.
  bool wide = false;
  int chunk = 0;
  int vocab_size = 0;
  int64_t arena_bytes = 0;
  int64_t activation_k = 0;  // widest padded K of a quantized matrix
  int64_t padded_k = 0;      // widest padded K of a float matrix that needs the padded copy, 0: none
  int64_t unpack_bytes = 0;  // matmul scratch of one thread
  int64_t piece_bytes = 0;   // of one thread, for matrices that stay in the file
  int64_t partial_floats = 0, attention_floats = 0, row_floats = 0;
  int64_t logits_stride = 0;
  int64_t weights_bytes = 0, bytes_per_token = 0, ops_per_token = 0;
  std::vector<PlacementRow> placement;
};

// Errors as CreateCpuBackend, but for memory and threads, which are not taken here. Pure.
Result<std::unique_ptr<LoweredPlan>> Lower(const graph::Graph& g, const CpuOptions& options);

}  // namespace slm::backend
