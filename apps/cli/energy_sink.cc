// See energy_sink.h.
#include "energy_sink.h"

namespace slm::cli {

void EnergySink::OnText(std::string_view utf8) {
  inner_.OnText(utf8);
  constexpr int64_t kPeriodNs = 100'000'000;  // sensors of hwmon and batteries renew their figure no more often
  const int64_t now_ns = clock_();
  if (now_ns - last_ns_ < kPeriodNs) return;
  meter_.Sample();
  last_ns_ = now_ns;
}

std::optional<telemetry::EnergyReading> Credible(std::optional<telemetry::EnergyReading> reading) {
  constexpr int kFewest = 3;
  if (reading && reading->method == telemetry::EnergyMethod::kSampledPower && reading->n_samples < kFewest) return std::nullopt;
  return reading;
}

}  // namespace slm::cli
