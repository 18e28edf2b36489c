// What follows once the tensors of a quantized file are written: it is judged, marked, put in its place and reported.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gate/gate.h"
#include "work/work_file.h"

namespace slm::cli {

// Judges what `task` names. nullopt: nothing was measured, and `notes` says why; with a budget that is an error. Errors: kCancelled, and
// with a budget those of Judge.
Result<std::optional<Verdict>> JudgeOutput(Io& io, const JudgeTask& task, const GateOptions& options, const HeldOut& text,
                                           std::vector<std::string>* notes);
// The same of `work`, which is marked when there is a budget.
Result<std::optional<Verdict>> JudgeWork(Io& io, WorkFile& work, const JudgeTask& task, const GateOptions& options, const HeldOut& text,
                                         std::vector<std::string>* notes);

struct ReportTask {
  std::string path;          // of the page
  std::string file, source;  // of the quantized model and the float one
  std::string label;         // of this run's point on the chart
  int n_threads = 0;
};
// Writes the page about `run`, what slm quantize prints with --json, with the points of the page that was there. Errors: kIo.
Status WriteReport(Io& io, const ReportTask& task, const nlohmann::ordered_json& run);

}  // namespace slm::cli
