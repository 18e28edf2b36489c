// Two back ends as one: prompts on the first, the tokens after them on the second, the KV cache handed over between them. A door.
//
// Each keeps a cache of its own; before one goes on where the other was, the slots that it lacks are copied through the canonical layout
// (KvPort). So a prompt's chunks are handed over once, when the first token is decoded, and what was decoded once, when the next prompt
// comes.
#pragma once
#include <cstdint>
#include <memory>

#include "backend/backend.h"

namespace slm::backend {

// All hand-overs so far, both ways.
struct HandOver {
  int64_t count = 0, tokens = 0;
  int64_t bytes = 0;  // in the canonical layout
  int64_t ns = 0;
};

struct HybridBackend {
  std::unique_ptr<Backend> backend;
  const HandOver* hand_over = nullptr;  // the back end's own; read between calls
};

// Errors: kUnsupported when a cache cannot be handed over or the two have other vocabularies or cache shapes (both named).
Result<HybridBackend> CreateHybridBackend(std::unique_ptr<Backend> prefill, std::unique_ptr<Backend> decode);

}  // namespace slm::backend
