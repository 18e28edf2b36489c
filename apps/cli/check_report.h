// What `slm check` found, as JSON and as text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "targets/targets.h"

namespace slm::cli {

// Of each graph of a model: its file, or what it would be written as.
struct CheckedGraph {
  std::string name;
  targets::Report report;
};

// {target, supported, fallback, blocked, folded, ops: […], fusions, copies, bounds, memory, shapes, sources}; of several graphs the sums,
// and each finding says its graph.
nlohmann::ordered_json CheckJson(const std::string& model, const std::vector<CheckedGraph>& graphs);
std::string CheckText(const std::string& model, const std::vector<CheckedGraph>& graphs);

}  // namespace slm::cli
