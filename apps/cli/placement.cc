// See placement.h. Apart from the loading of models, so that a test can ask about devices that this build does not have.
#include "placement.h"

namespace slm::cli {

Status CheckPlacement(std::span<const backend::PlacementRow> rows, const std::string& device) {
  for (const backend::PlacementRow& row : rows)
    if (row.device != device)
      return Error(Code::kLimit,
                   "--no-fallback: " + row.op + " (" + std::to_string(row.count) + " nodes) runs on " + row.device + ", not on " + device +
                       (row.reason.empty() ? "" : " (" + row.reason + ")"),
                   "leave out --no-fallback, or choose a model whose operators the device has");
  return Ok();
}

}  // namespace slm::cli
