// The options of generation as flags, and the numbers of a finished run as JSON and as text: shared by run and chat.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "decode/decode.h"
#include "open_model.h"
#include "telemetry/telemetry.h"

namespace slm::cli {

// Flags that need a second step after parsing, next to the options they end in.
struct GenerateFlags {
  decode::GenerateOptions options;
  std::vector<std::string> logit_bias;  // "ID=VALUE"
};

// Declares --max-tokens, the sampling options, --stop, --logit-bias, --ignore-eos and --show-special.
void AddGenerateFlags(CLI::App& app, GenerateFlags& flags);

// Options ready for a model: parses the biases and adds the model's end tokens. Errors: kInvalidArgument naming the flag.
Result<decode::GenerateOptions> FinishFlags(const GenerateFlags& flags, const OpenedModel& opened);

// What is known about one answer.
struct Measured {
  decode::GenerateStats stats;
  std::optional<telemetry::EnergyReading> energy;
  std::optional<telemetry::TemperatureReading> temperature;
  std::optional<uint64_t> peak_rss_bytes;
};

// Runs one Generate with energy measured around it (power sensors sampled during it) and temperature and memory read after it.
Result<Measured> GenerateMeasured(decode::Session& session, std::span<const int32_t> prompt, const decode::GenerateOptions& options,
                                  decode::TokenSink& sink, const decode::CancelFlag& cancel);

// The fields of `slm run --json` except the text.
nlohmann::ordered_json MeasuredJson(const Measured& m, const OpenedModel& opened);

// The same for a reader: one line a fact, ended with a line break.
std::string MeasuredText(const Measured& m, const OpenedModel& opened);

// One line an operator group: "MatMulNBits x210  cpu  matmul_q4_avx512vnni  reason".
std::string PlacementText(const backend::Backend& backend);

}  // namespace slm::cli
