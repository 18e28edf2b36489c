// Energy between two moments. Counters are subtracted, with their wrap-around; powers are integrated by trapezoids.
#include "telemetry/probe.h"

namespace slm::telemetry {
namespace {

struct Channel {
  Probe probe;
  int64_t last = 0;   // uJ or uW at the last sample
  double joules = 0;  // so far
};

// Joules from counter value `a` to `b` within `seconds`. False when a second wrap cannot be ruled out or the range is unknown.
bool CounterStep(const Probe& probe, int64_t a, int64_t b, double seconds, double& joules) {
  if (probe.range_uj > 0) {
    // The counter passes its whole range in no less time than this; a longer gap may hide a full turn.
    const double shortest_turn_s = static_cast<double>(probe.range_uj) * 1e-6 / probe.max_watts;
    if (probe.max_watts > 0 && seconds > shortest_turn_s) return false;
  }
  if (b >= a) {
    joules = static_cast<double>(b - a) * 1e-6;
    return true;
  }
  if (probe.range_uj == 0) return false;
  joules = static_cast<double>(probe.range_uj - a + b) * 1e-6;  // both are within the range: ReadProbe checked
  return true;
}

}  // namespace

struct EnergyMeter::State {
  std::string sys;
  Clock clock;
  std::vector<Channel> channels;
  int64_t start_ns = 0, last_ns = 0;
  int n_samples = 0;
  bool failed = true;  // nothing to report: not started, no sensor, or a reading went wrong
};

EnergyMeter::EnergyMeter(const std::string& sys, Clock clock) : state_(std::make_unique<State>()) {
  state_->sys = sys;
  state_->clock = clock;
}
EnergyMeter::~EnergyMeter() = default;
EnergyMeter::EnergyMeter(EnergyMeter&&) noexcept = default;
EnergyMeter& EnergyMeter::operator=(EnergyMeter&&) noexcept = default;

void EnergyMeter::Start() {
  State& s = *state_;
  s.channels.clear();
  std::vector<Probe> probes = FindProbes(s.sys);
  for (const size_t i : ChooseProbes(probes, Quantity::kEnergy)) s.channels.push_back({std::move(probes[i]), 0, 0});
  s.failed = s.channels.empty();
  for (Channel& channel : s.channels) s.failed = s.failed || !ReadProbe(channel.probe, channel.last);
  s.start_ns = s.last_ns = s.clock();
  s.n_samples = 1;
}

void EnergyMeter::Sample() {
  State& s = *state_;
  if (s.failed) return;
  const int64_t now = s.clock();
  const double seconds = static_cast<double>(now - s.last_ns) * 1e-9;
  for (Channel& channel : s.channels) {
    int64_t value = 0;
    double joules = 0;
    if (!ReadProbe(channel.probe, value)) {
      s.failed = true;
      return;
    }
    if (channel.probe.kind == SensorKind::kPower) {
      joules = (static_cast<double>(channel.last) + static_cast<double>(value)) * 0.5e-6 * seconds;
    } else if (!CounterStep(channel.probe, channel.last, value, seconds, joules)) {
      s.failed = true;
      return;
    }
    channel.joules += joules;
    channel.last = value;
  }
  s.last_ns = now;
  ++s.n_samples;
}

std::optional<EnergyReading> EnergyMeter::Stop() {
  State& s = *state_;
  Sample();
  const bool usable = !s.failed && s.last_ns > s.start_ns;
  s.failed = true;  // a second Stop without a Start has nothing to say
  if (!usable) return std::nullopt;
  EnergyReading reading;
  for (const Channel& channel : s.channels) {
    reading.joules += channel.joules;
    reading.source += (reading.source.empty() ? "" : " + ") + channel.probe.name;
  }
  const bool counter = s.channels[0].probe.kind == SensorKind::kEnergy;
  reading.method = counter ? EnergyMethod::kCounter : EnergyMethod::kSampledPower;
  reading.seconds = static_cast<double>(s.last_ns - s.start_ns) * 1e-9;
  reading.watts = reading.joules / reading.seconds;
  reading.n_samples = s.n_samples;
  return reading;
}

const char* EnergyMethodName(EnergyMethod method) { return method == EnergyMethod::kCounter ? "counter" : "sampled_power"; }

}  // namespace slm::telemetry
