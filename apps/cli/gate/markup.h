// Pieces of the report's page: escaped text and the chart.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "gate/report_page.h"

namespace slm::cli {

// For HTML text and attributes in double quotes; control codes and bytes that are not UTF-8 become U+FFFD or spaces.
std::string Escaped(std::string_view text);

// Size (MB, linear) against mean KLD (nats, logarithmic) with bars of one standard error, as SVG; the last point stands out.
std::string SizeChart(const std::vector<SizePoint>& points);

}  // namespace slm::cli
