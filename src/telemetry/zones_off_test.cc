// Zones switched off leave nothing: a constant expression may hold no static and no call of the clock.
#undef SLM_ZONES
#include "telemetry/telemetry.h"

#include <gtest/gtest.h>

namespace slm::telemetry {
namespace {

constexpr int Twice(int x) {
  SLM_ZONE("zones_off_test/never");
  return 2 * x;
}
static_assert(Twice(21) == 42);

TEST(ZonesOff, NeverReported) {
  volatile int x = 3;
  EXPECT_EQ(Twice(x), 6);
  for (const ZoneTotal& total : ReportZones()) EXPECT_NE(total.name, "zones_off_test/never");
}

}  // namespace
}  // namespace slm::telemetry
