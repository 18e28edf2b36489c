// What --no-fallback promises, as a question about placement rows.
#pragma once
#include <span>
#include <string>

#include "backend/backend.h"
#include "base/result.h"

namespace slm::cli {

// Does every operator run on `device` ("cpu")? Error: kLimit naming the first that does not, where it runs and why.
Status CheckPlacement(std::span<const backend::PlacementRow> rows, const std::string& device);

}  // namespace slm::cli
