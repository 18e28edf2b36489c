// Energy readings while an answer is streamed, so that a power sensor is integrated over the run and not guessed from its ends.
#pragma once
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "decode/decode.h"
#include "telemetry/telemetry.h"

namespace slm::cli {

// Hands every piece of text on and then has the meter take a sample, unless the last one is younger than 100 ms. Allocates
// nothing. Thread rule: that of the sink it wraps.
class EnergySink final : public decode::TokenSink {
 public:
  // `meter` has been started. `inner` and `meter` outlive this object.
  EnergySink(decode::TokenSink& inner, telemetry::EnergyMeter& meter, telemetry::EnergyMeter::Clock clock = NowNs)
      : inner_(inner), meter_(meter), clock_(clock), last_ns_(clock()) {}
  void OnText(std::string_view utf8) override;

 private:
  decode::TokenSink& inner_;
  telemetry::EnergyMeter& meter_;
  telemetry::EnergyMeter::Clock clock_;
  int64_t last_ns_;
};

// Nothing for power that was sampled at fewer than three moments: the ends of a run say little about its middle.
std::optional<telemetry::EnergyReading> Credible(std::optional<telemetry::EnergyReading> reading);

}  // namespace slm::cli
