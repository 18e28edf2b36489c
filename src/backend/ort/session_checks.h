// What every back end of this room asks of a call and says of a session. Internal to ort/.
#pragma once
#include <span>
#include <vector>

#include "backend/ort/ort.h"
#include "backend/ort/session.h"

namespace slm::backend::ort {

// Errors: kInvalidArgument (no tokens or too many, one outside the vocabulary, logits that were not asked for at load).
Status CheckCall(const Capabilities& c, LogitsOf at_load, std::span<const int32_t> tokens, LogitsOf which);
// Error: kCorrupt for NaN or infinity.
Status CheckLogits(std::span<const float> logits);
// Of what is known of `c`: memory of the runtime is 0 until it has run. Error: kLimit.
Status CheckBudget(const Capabilities& c, int64_t budget);

// Adds the session's nodes, one row an operator and provider.
void AddPlacement(const OpenSession& session, std::vector<PlacementRow>& rows);
// "cpu", or what a provider that took a node computes on.
std::string DeviceOf(const OpenSession& session);
// Bytes that the session's arena holds; 0 when the runtime keeps no count.
int64_t ArenaBytes(const OpenSession& session);

}  // namespace slm::backend::ort
