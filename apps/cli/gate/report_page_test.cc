// The report's page: nothing of a model's names reaches the page unescaped, points come back, damaged pages have none.
#include "gate/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gate/markup.h"

namespace slm::cli {
namespace {
using ::testing::HasSubstr;
using ::testing::Not;

const PointsKey kKey{"s0", "t0"};
const std::string kEvil = "</script><script>alert('1')</script>\"&\x01\xff";

nlohmann::ordered_json Document() {
  return {{"recipe", "fast"},
          {"type", kEvil},
          {"bytes", 12345},
          {"bpw", 4.5},
          {"notes", {kEvil}},
          {"file", {{"path", kEvil}, {"sha256", "abc"}}},
          {"source", {{"path", "m.gguf"}, {"sha256", "s0"}}},
          {"gate", {{"kld", {{"mean", 0.0123}, {"sigma", 0.001}}}, {"max_kld", 0.01}, {"passed", false}, {"text", kEvil}}},
          {"tensors", {{{"name", kEvil}, {"from", "F32"}, {"scheme", "Q4_K"}, {"bytes", 288}, {"error", 0.0625}}}}};
}

TEST(ReportPage, EscapesEveryString) {
  const std::string page = ReportPage(Document(), kKey, {{kEvil, 5, 0.1, 0.01}});
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("\xff")));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;"));
  EXPECT_THAT(page, HasSubstr("0.062500"));
  EXPECT_THAT(page, HasSubstr("0.012300 ± 0.001000"));
  EXPECT_THAT(page, HasSubstr("class=\"missed\""));
  EXPECT_THAT(page, HasSubstr("<svg"));
}

TEST(ReportPage, KeepsThePointsOfItsKey) {
  const std::vector<SizePoint> points = {{"fast q4_0", 900, 0.3, 0.01}, {"</script>", 1000, 0, 0}};
  const std::string page = ReportPage(Document(), kKey, points);
  EXPECT_EQ(PointsOfPage(page, kKey), points);
  EXPECT_TRUE(PointsOfPage(page, {"s1", "t0"}).empty());
  EXPECT_TRUE(PointsOfPage(page, {"s0", "t1"}).empty());
  EXPECT_TRUE(PointsOfPage("<html></html>", kKey).empty());
  for (size_t n = page.rfind("<script"); n < page.rfind("</script>"); ++n) EXPECT_TRUE(PointsOfPage(page.substr(0, n), kKey).empty());
}

TEST(ReportPage, OfARunThatSaysNothing) {
  for (const auto& run :
       {nlohmann::ordered_json(), nlohmann::ordered_json::array({1}), nlohmann::ordered_json({{"tensors", 3}, {"gate", 1}})})
    EXPECT_THAT(ReportPage(run, kKey, {}), HasSubstr("</html>"));
}

TEST(SizeCharts, LabelsOfLikePointsDoNotCoverEachOther) {
  std::vector<SizePoint> points;
  for (const char* label : {"one", "two", "three", "four"}) points.push_back({label, 5000000, 0.1, 0.001});
  const std::string svg = SizeChart(points);
  std::vector<double> heights;
  for (const SizePoint& p : points) {
    const size_t text = svg.rfind(" y=\"", svg.find(">" + p.label + "<"));
    heights.push_back(std::stod(svg.substr(text + 4)));
  }
  std::sort(heights.begin(), heights.end());
  for (size_t i = 1; i < heights.size(); ++i) EXPECT_GE(heights[i] - heights[i - 1], 12) << svg;
}

TEST(SizeCharts, HaveAPlaceForEveryPoint) {
  const std::string svg = SizeChart({{"a", 0, 0, 0}, {"b", UINT64_MAX, 1e9, 0}, {"c", 5, 0.1, 0.2}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  size_t circles = 0;
  for (size_t at = svg.find("<circle"); at != svg.npos; at = svg.find("<circle", at + 1)) ++circles;
  EXPECT_EQ(circles, 3u);
}

}  // namespace
}  // namespace slm::cli
