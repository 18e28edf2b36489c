// The report of a quantization as one HTML page that needs nothing beside it: what was made of what, how far it is from the source, what
// each tensor lost, and the sizes and divergences of the runs that this page saw before, as a chart.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace slm::cli {

// One quantized file on the chart of size against divergence.
struct SizePoint {
  std::string label;  // "fast q4_k"
  uint64_t bytes = 0;
  double kld = 0, sigma = 0;  // nats
  friend bool operator==(const SizePoint&, const SizePoint&) = default;
};

// What makes the points of two runs comparable: sums of the source and of the text they were judged on.
struct PointsKey {
  std::string source_sha256, text_sha256;
};

// The page for a run. `run`: what slm quantize prints with --json, and {source: {path, bytes, sha256}, machine: {cpu, isa, threads}, file:
// {path, sha256}} besides; any field may be missing. `points`: the last is this run's. Every string is escaped.
std::string ReportPage(const nlohmann::ordered_json& run, const PointsKey& key, const std::vector<SizePoint>& points);

// The points that a page of the same key holds; none of any other text.
std::vector<SizePoint> PointsOfPage(std::string_view page, const PointsKey& key);

}  // namespace slm::cli
