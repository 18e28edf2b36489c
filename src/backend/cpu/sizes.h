// How much memory a lowered graph takes besides its weights: the KV cache, attention's scratch, the activation arena, the logits.
#pragma once
#include "backend/cpu/analysis.h"
#include "backend/cpu/lower.h"

namespace slm::backend {

// Fills out.kv and attention's scratch sizes. Errors: kUnsupported (a head width that no kernel takes), and kv::Layout's.
Status SizeCache(const graph::Graph& g, const CpuOptions& o, LoweredPlan& out);

// Places every stored value for calls of out.chunk tokens; fills the arena's, a row's and the logits' sizes. Errors: PlanMemory's.
Result<graph::MemoryPlan> SizeArena(const graph::Graph& g, const Analysis& a, LoweredPlan& out);

}  // namespace slm::backend
