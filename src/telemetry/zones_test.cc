// Zones, compiled in for this file whatever the build says.
#undef SLM_ZONES
#define SLM_ZONES 1
#include "telemetry/telemetry.h"

#include <gtest/gtest.h>

#include <thread>

namespace slm::telemetry {
namespace {

void Work() {
  SLM_ZONE("zones_test/work");
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

ZoneTotal Find(const std::string& name) {
  for (const ZoneTotal& total : ReportZones())
    if (total.name == name) return total;
  return {};
}

TEST(Zones, CountFromManyThreads) {
  ResetZones();
  constexpr int kThreads = 4, kCalls = 5;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < kCalls; ++i) Work();
    });
  for (auto& thread : threads) thread.join();
  const ZoneTotal total = Find("zones_test/work");
  EXPECT_EQ(total.calls, static_cast<uint64_t>(kThreads * kCalls));
  EXPECT_GE(total.total_ns, kThreads * kCalls * 1'000'000u);
  EXPECT_GE(total.max_ns, 1'000'000u);
  EXPECT_LE(total.max_ns, total.total_ns);
  ResetZones();
  EXPECT_EQ(Find("zones_test/work").calls, 0u);
}

TEST(Zones, PlacesOfOneNameAreAddedUp) {
  ResetZones();
  { SLM_ZONE("zones_test/twice"); }
  { SLM_ZONE("zones_test/twice"); }
  EXPECT_EQ(Find("zones_test/twice").calls, 2u);
}

}  // namespace
}  // namespace slm::telemetry
