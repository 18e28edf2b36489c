// See quantize_run.h.
#include "quantize_run.h"

#include <fmt/format.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "gate/outcome.h"
#include "output_file.h"
#include "progress.h"
#include "quantize_json.h"
#include "telemetry/telemetry.h"
#include "work/work_file.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

// To a pipe or a device, which cannot be read again: nothing is taken over and nothing judged.
Status WriteDirect(QuantizeRun& run, Io& io) {
  const std::string& out = run.out;
  if (run.gate.max_kld)
    return Error(Code::kInvalidArgument, out + ": cannot be read again to judge it", "write to a file, or leave out --max-kld");
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(out, io));
  const auto sink = [&](std::span<const std::byte> bytes) { return WriteUnlessCancelled(file, bytes, out, io); };
  SLM_ASSIGN_OR_RETURN(run.report, quant::WriteGguf(run.m, run.plan, run.options, sink));
  return file.Commit();
}

Status WriteTensors(QuantizeRun& run, WorkFile& work, Io& io) {
  const bool calibrated = run.plan.recipe.calibrated();
  Progress progress(io, run.out, calibrated ? static_cast<uint64_t>(run.m.config.n_layers) : run.plan.data_bytes(),
                    calibrated ? Progress::Unit::kSteps : Progress::Unit::kBytes);
  quant::WriteOptions w = run.options;
  if (calibrated) w.layer_done = [&](int layers) { progress.Update(static_cast<uint64_t>(layers)); };
  else w.progress = [&](uint64_t bytes) { progress.Update(bytes); };
  w.work = &work;
  if (run.gate.max_kld) w.texts.emplace_back(kGateKey, PendingMark());
  run.taken_over = work.finished();
  SLM_ASSIGN_OR_RETURN(run.report, quant::WriteGguf(run.m, run.plan, w, [&](std::span<const std::byte> b) { return work.Write(b); }));
  progress.Finish();
  return Ok();
}

// Another try may follow: the budget is missed, and something loses less.
bool TriesAgain(const QuantizeRun& run) { return run.plan.recipe.most_kld && !run.verdict->passed() && !run.tries.back().last; }

Status JudgeAndCommit(QuantizeRun& run, WorkFile& work, Io& io) {
  if (!run.gate.off) {
    const JudgeTask task{work.part(), run.source, run.m.config.max_context, run.options.n_threads, run.memory};
    SLM_ASSIGN_OR_RETURN(run.verdict, JudgeWork(io, work, task, run.gate, run.text, &run.notes));
  }
  if (!run.tries.empty() && run.verdict) run.tries.back().kld = run.verdict->run.divergence.kld.mean;
  if (!TriesAgain(run)) return work.Commit();
  work.Discard();
  return Ok();
}

// All that decides the bytes besides the source, the types and the program.
std::string RecipeText(const QuantizeRun& run) {
  std::string text = RecipeJson(run.plan.recipe).dump() + (run.gate.max_kld ? " marked" : "");
  if (run.calibration) text += TextJson(*run.calibration).dump() + IsaName(run.options.isa);
  return text;
}

// What a run that ends early leaves behind: work that another one goes on with, or nothing when no other could.
Status WriteFile(QuantizeRun& run, Io& io) {
  if (IsDirect(run.out)) return WriteDirect(run, io);
  SLM_ASSIGN_OR_RETURN(const std::string identity, WorkIdentity(run.m, run.plan, RecipeText(run)));
  SLM_ASSIGN_OR_RETURN(const auto work, WorkFile::Open(run.out, identity, io));
  Status written = WriteTensors(run, *work, io);
  const bool judging = written.ok();
  if (judging) written = JudgeAndCommit(run, *work, io);
  if (written.ok()) return written;
  const Code why = written.error().code();
  const bool goes_on = judging || why == Code::kCancelled || why == Code::kIo;
  if (!goes_on || work->finished() == 0) work->Discard();
  return written;
}

// Types by sensitivity, measured once.
Status Measure(QuantizeRun& run, Io& io) {
  Progress progress(io, run.out + ": sensitivities", static_cast<uint64_t>(run.m.config.n_layers), Progress::Unit::kSteps);
  quant::WriteOptions w = run.options;
  w.layer_done = [&](int layers) { progress.Update(static_cast<uint64_t>(layers)); };
  SLM_ASSIGN_OR_RETURN(run.sensitivities, quant::MeasureSensitivities(run.m, run.plan, w));
  progress.Finish();
  for (std::string& note : GridNotes(*run.sensitivities)) run.notes.push_back(std::move(note));
  return Ok();
}

}  // namespace

Status WriteQuantized(QuantizeRun& run, Io& io) {
  if (!run.plan.recipe.allocates()) return WriteFile(run, io);
  if (run.plan.recipe.most_kld && IsDirect(run.out)) return WriteFile(run, io);  // refused before anything is measured
#ifdef __GLIBC__
  // Matrices come from the system and go back to it. In the heap, whose own threshold grows with what is freed, they would leave holes
  // between the text that is followed: measuring SmolLM2 then took 478 MB, not 246.
  mallopt(M_MMAP_THRESHOLD, 1 << 18);
#endif
  SLM_RETURN_IF_ERROR(Measure(run, io));
  for (;;) {
    SLM_ASSIGN_OR_RETURN(const Try next, ChooseTypes(*run.sensitivities, run.tries, &run.plan));
    run.tries.push_back(next);
    SLM_RETURN_IF_ERROR(WriteFile(run, io));
    const std::optional<double> most = run.plan.recipe.most_kld;
    if (!most) break;
    run.notes.push_back(TryText(run.tries.size(), run.tries.back(), *most));
    if (!TriesAgain(run)) break;
    io.Note(run.notes.back());
  }
  run.notes.push_back(TypesText(run.plan, run.tries.back()));
  return Ok();
}

ordered_json ResultJson(const QuantizeRun& run) {
  const auto memory = telemetry::ReadProcessMemory();
  ordered_json j = RecipeJson(run.plan.recipe);
  if (run.calibration) {
    j["calibration"]["text"] = TextJson(*run.calibration);
    j["layers"] = LayersJson(run.report.layers);
  }
  if (run.sensitivities) j["allocation"].update(AllocationJson(*run.sensitivities, run.plan, run.tries));
  j["bpw"] = run.plan.bpw();
  j["body_bpw"] = run.plan.body_bpw();
  j["bytes"] = run.report.bytes;
  j["seconds"] = static_cast<double>(NowNs() - run.start_ns) * 1e-9;
  j["peak_rss_bytes"] = memory.ok() ? ordered_json(memory.value().peak_rss_bytes) : ordered_json(nullptr);
  j["taken_over"] = run.taken_over;
  j["gate"] = run.verdict ? VerdictJson(*run.verdict, run.text) : ordered_json(nullptr);
  j["notes"] = run.plan.notes;
  for (const std::string& note : run.notes) j["notes"].push_back(note);
  j["tensors"] = ordered_json::array();
  for (size_t i = 0; i < run.report.tensors.size(); ++i) {
    const quant::TensorReport& t = run.report.tensors[i];
    const uint64_t bytes = RowBytes(t.to, static_cast<uint64_t>(run.plan.choices[i].tensor->n_values()));
    j["tensors"].push_back(
        {{"name", t.name}, {"scheme", Info(t.to).name}, {"from", Info(t.from).name}, {"bytes", bytes}, {"error", t.error}});
    if (run.sensitivities) j["tensors"].back()["sensitivity"] = SensitivityJson(*run.sensitivities, run.plan.choices[i]);
  }
  return j;
}

void PrintResult(const QuantizeRun& run, const ordered_json& j, Io& io) {
  const quant::Report& r = run.report;
  io.Note(fmt::format("{}: {}, {:.3f} bits per weight ({:.3f} in the layers), {:.1f} s{}", run.out, FormatBytes(r.bytes), run.plan.bpw(),
                      run.plan.body_bpw(), j["seconds"].get<double>(),
                      j["peak_rss_bytes"].is_null() ? "" : "; peak resident " + FormatBytes(j["peak_rss_bytes"].get<uint64_t>())));
  for (const auto& note : j["notes"]) io.Note(note.get<std::string>());
  const auto worst = std::max_element(r.tensors.begin(), r.tensors.end(), [](const auto& a, const auto& b) { return a.error < b.error; });
  if (worst != r.tensors.end())
    io.Note(fmt::format("largest relative error of a tensor: {:.4f} ({}, {})", worst->error, worst->name, Info(worst->to).name));
  if (run.verdict) io.Note(VerdictText(*run.verdict, run.text));
}

}  // namespace slm::cli
