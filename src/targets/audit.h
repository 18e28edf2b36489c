// What a graph costs beside its operators: computations that are not one kernel, copies, memory.
#pragma once
#include <vector>

#include "targets/flat.h"
#include "targets/match.h"

namespace slm::targets {

// `verdicts`: of the nodes of `flat`; those of a form that the target takes whole become native. Patterns are found by what nodes compute,
// not by their names.
std::vector<Fusion> FindFusions(const Flat& flat, std::vector<NodeVerdict>& verdicts, const Description& target);
std::vector<Copy> FindCopies(const Flat& flat);

// Sets weights_bytes, kv_bytes, bounds, and how weights are stored.
void Measure(const Flat& flat, const Description& target, int64_t context, Report& report);

}  // namespace slm::targets
