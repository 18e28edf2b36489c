// Any bytes as an earlier report: no points, or points that a new page holds as they are.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gate/report_page.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const slm::cli::PointsKey key{"a", "b"};
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  auto points = slm::cli::PointsOfPage(bytes, key);
  for (const std::string& page : {bytes, "<script type=\"application/json\" id=\"slm-report\">" + bytes}) {
    points = slm::cli::PointsOfPage(page, key);
    const std::string again = slm::cli::ReportPage(nlohmann::ordered_json::parse(bytes, nullptr, false), key, points);
    if (slm::cli::PointsOfPage(again, key).size() != points.size()) std::abort();
  }
  return 0;
}
