// See quantize_folder.h. All of it is written beside its place: what has the folder's name is whole and judged.
#include "quantize_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "gate/outcome.h"
#include "open_model.h"
#include "output_file.h"
#include "progress.h"
#include "quant/folder/folder.h"
#include "quant/static/static.h"
#include "quantize_json.h"
#include "telemetry/telemetry.h"
#include "work/part_folder.h"

namespace slm::cli {
namespace {
using model::hf::PackedFormat;
using nlohmann::ordered_json;

constexpr const char* kOwnKey = "slmkit";  // of config.json

PackedFormat FormatOf(const std::string& to) {
  if (to == "awq") return PackedFormat::kAwq;
  if (to == "gptq") return PackedFormat::kGptq;
  return to == "gptq-v2" ? PackedFormat::kGptqV2 : PackedFormat::kCompressed;
}

constexpr std::pair<const char*, quant::RangeRule> kRanges[] = {{"percentile", quant::RangeRule::kPercentile},
                                                                {"mse", quant::RangeRule::kMse},
                                                                {"entropy", quant::RangeRule::kEntropy},
                                                                {"minmax", quant::RangeRule::kMinMax}};

// Rounded activations go with 8 bits and a scale a row, unless more is said.
quant::FolderRecipe RecipeOf(const FolderRequest& q) {
  quant::FolderRecipe r;
  r.format = FormatOf(q.to);
  r.symmetric = q.symmetric;
  r.how = q.recipe;
  if (q.activations == "dynamic") r.inputs = model::hf::PackedInputs::kDynamic;
  if (q.activations == "static") r.inputs = model::hf::PackedInputs::kStatic;
  const bool rounds = r.inputs != model::hf::PackedInputs::kFloat;
  r.bits = q.bits == 0 && rounds ? 8 : q.bits;
  r.group = q.group < 0 || (q.group == 0 && rounds && r.bits == 8) ? 0 : q.group == 0 ? 32 : q.group;
  for (const auto& [name, rule] : kRanges)  // "measured" is none of them
    if (q.ranges == name || (q.ranges.empty() && rule == quant::RangeRule::kMinMax)) r.range = rule;
  if (!q.scheme.empty()) (void)quant::SetScheme(q.scheme, &r);  // CheckFolderRequest has seen it
  if (q.recipe.grids == quant::WeightGrids::kNpu) {
    const quant::StaticRecipe npu = quant::NpuRecipe();
    if (q.scheme.empty()) (void)quant::SetScheme(quant::SchemeName(npu.body), &r);
    if (const bool same = r.bits == npu.down.bits && r.group == 0 && r.storage == quant::Storage::kGrid; !same) r.down_bits = npu.down.bits;
  }
  r.symmetric = r.symmetric || rounds;
  return r;
}

// What is kept exactly has its own bits and groups.
Status CheckKept(const FolderRequest& q, const quant::FolderPlan& plan) {
  const quant::FolderRecipe asked = RecipeOf(q);
  const auto& has = plan.spec;
  const bool named = !q.scheme.empty();
  std::string wrong;
  if ((named || q.bits != 0) && asked.bits != has.bits)
    wrong = fmt::format("{} bits are asked for, the weights have {}", asked.bits, has.bits);
  if ((named || q.group != 0) && asked.group != has.group)
    wrong = fmt::format("groups of {} are asked for, the weights have {}", asked.group, has.group);
  if ((named || q.symmetric) && asked.symmetric != has.symmetric) wrong = "values with zero points, or without, are asked for";
  if (wrong.empty()) return Ok();
  return Error(Code::kUnsupported, fmt::format("{}: is packed already, and kept exactly: {}", q.source, wrong),
               "leave the option out, start from the float model, or accept the loss with --requantize");
}

// One run of the verb: what is known before the folder is written, and what was found out.
struct Run {
  const FolderRequest& q;
  const model::Model& m;
  const quant::FolderPlan& plan;
  const quant::WriteOptions& options;
  int64_t start_ns = 0;
  quant::FolderReport report = {};
  std::optional<Verdict> verdict = {};
  std::vector<std::string> notes = {};
  bool calibrated() const { return plan.recipe.how.calibrated(); }
};

Status WriteWeights(Run& run, const PartFolder& part, Io& io) {
  const std::string path = part.File("model.safetensors");
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  const auto sink = [&](std::span<const std::byte> bytes) { return WriteUnlessCancelled(file, bytes, run.q.out, io); };
  Progress progress(io, run.q.out, run.calibrated() ? static_cast<uint64_t>(run.m.config.n_layers) : run.plan.data_bytes(),
                    run.calibrated() ? Progress::Unit::kSteps : Progress::Unit::kBytes);
  quant::WriteOptions options = run.options;
  if (run.calibrated()) options.layer_done = [&](int layers) { progress.Update(static_cast<uint64_t>(layers)); };
  else options.progress = [&](uint64_t bytes) { progress.Update(bytes); };
  SLM_ASSIGN_OR_RETURN(run.report, quant::WriteFolder(run.m, run.plan, options, sink));
  SLM_RETURN_IF_ERROR(file.Commit());
  progress.Finish();
  return Ok();
}

// config.json with how the weights are packed, and under a key of our own how they were made and what the gate found.
Result<std::string> ConfigOf(const Run& run, const std::string& source) {
  SLM_ASSIGN_OR_RETURN(const std::string packed, model::hf::PackedConfig(source, run.plan.spec));
  ordered_json json = ordered_json::parse(packed);
  ordered_json own = ordered_json::object();
  if (run.plan.lossless && json.contains(kOwnKey) && json[kOwnKey].is_object()) own = json[kOwnKey];  // how its values were made
  own.erase("gate");
  if (!run.plan.lossless) own["recipe"] = run.plan.recipe.how.name;
  if (run.calibrated()) own["calibration"] = TextJson(*run.options.text);
  if (run.verdict && run.q.gate.max_kld) {
    std::string mark = MarkOf(*run.verdict, run.q.text);
    mark.erase(mark.find_last_not_of(' ') + 1);
    own["gate"] = mark;
  }
  json.erase(kOwnKey);
  if (!own.empty()) json[kOwnKey] = own;
  return json.dump(2) + "\n";
}

Status WriteFiles(Run& run, PartFolder& part, Io& io) {
  SLM_ASSIGN_OR_RETURN(const auto files, model::hf::SmallFiles(run.m.path));
  SLM_RETURN_IF_ERROR(WriteWeights(run, part, io));
  std::string source;
  for (const auto& [name, text] : files) {
    if (name == "config.json") source = text;
    else SLM_RETURN_IF_ERROR(WriteTextFile(part.File(name), text, io));
  }
  const auto write_config = [&]() -> Status {
    SLM_ASSIGN_OR_RETURN(const std::string config, ConfigOf(run, source));
    return WriteTextFile(part.File("config.json"), config, io);
  };
  SLM_RETURN_IF_ERROR(write_config());
  if (run.q.gate.off) return Ok();
  const JudgeTask task{part.path(), run.q.source, run.m.config.max_context, run.options.n_threads, run.q.memory};
  SLM_ASSIGN_OR_RETURN(run.verdict, JudgeOutput(io, task, run.q.gate, run.q.text, &run.notes));
  if (run.verdict && run.plan.spec.inputs == model::hf::PackedInputs::kStatic)
    run.notes.push_back(
        "the gate ran with activations as this machine's kernels round them, not with the static ranges; layers have the error with them");
  return run.verdict && run.q.gate.max_kld ? write_config() : Ok();
}

Status CheckMemory(const Run& run) {
  if (run.q.memory.empty()) return Ok();
  SLM_ASSIGN_OR_RETURN(const int64_t limit, ParseBytes(run.q.memory));
  const auto memory = telemetry::ReadProcessMemory();
  const uint64_t resident = memory.ok() ? memory.value().rss_bytes : 0;
  const uint64_t need = resident + quant::FolderNeedBytes(run.m, run.plan, run.options);
  if (need <= static_cast<uint64_t>(limit)) return Ok();
  return Error(
      Code::kLimit, fmt::format("--mem {}: {} bytes are needed ({} of them are resident now)", run.q.memory, need, resident),
      run.calibrated() ? "raise --mem, or calibrate on less: --calib-seqs, --calib-tokens" : "raise --mem: one matrix is in memory");
}

ordered_json ResultJson(const Run& run) {
  const auto memory = telemetry::ReadProcessMemory();
  ordered_json j = FolderRecipeJson(run.q);
  if (run.plan.lossless) j["scheme"] = nullptr;
  j["bits"] = run.plan.spec.bits;
  j["group"] = run.plan.spec.group;
  j["symmetric"] = run.plan.spec.symmetric;
  j["lossless"] = run.plan.lossless;
  if (run.calibrated()) {
    j["calibration"]["text"] = TextJson(*run.options.text);
    j["layers"] = LayersJson(run.report.layers);
  }
  j["bpw"] = run.plan.bpw();
  j["body_bpw"] = run.plan.body_bpw();
  j["bytes"] = run.report.bytes;
  j["seconds"] = static_cast<double>(NowNs() - run.start_ns) * 1e-9;
  j["peak_rss_bytes"] = memory.ok() ? ordered_json(memory.value().peak_rss_bytes) : ordered_json(nullptr);
  j["gate"] = run.verdict ? VerdictJson(*run.verdict, run.q.text) : ordered_json(nullptr);
  j["notes"] = run.plan.notes;
  for (const std::string& note : run.notes) j["notes"].push_back(note);
  j["tensors"] = ordered_json::array();
  for (const quant::FolderTensorReport& t : run.report.tensors)
    j["tensors"].push_back({{"name", t.name}, {"scheme", t.scheme}, {"from", t.from}, {"bytes", t.bytes}, {"error", t.error}});
  return j;
}

void PrintText(const Run& run, const ordered_json& j, Io& io) {
  const quant::FolderReport& r = run.report;
  io.Note(fmt::format("{}: {}, {:.3f} bits per weight ({:.3f} in the layers), {:.1f} s{}", run.q.out, FormatBytes(r.bytes), run.plan.bpw(),
                      run.plan.body_bpw(), j["seconds"].get<double>(), run.plan.lossless ? "; every value kept exactly" : ""));
  for (const auto& note : j["notes"]) io.Note(note.get<std::string>());
  const auto worst = std::max_element(r.tensors.begin(), r.tensors.end(), [](const auto& a, const auto& b) { return a.error < b.error; });
  if (!run.plan.lossless && worst != r.tensors.end())
    io.Note(fmt::format("largest relative error of a tensor: {:.4f} ({})", worst->error, worst->name));
  if (run.verdict) io.Note(VerdictText(*run.verdict, run.q.text));
}

}  // namespace

namespace {
// `named`: what --scheme says.
Status CheckNpu(const FolderRequest& q, const quant::FolderRecipe& named) {
  if (q.to != "compressed-tensors")
    return Error(Code::kInvalidArgument, "--recipe npu: the format " + q.to + " has one grid for all matrices",
                 "choose --to compressed-tensors, or slm export --to qdq for whole graphs");
  const bool fp4 = named.storage == quant::Storage::kMxFp4 || named.storage == quant::Storage::kNvFp4;
  if (q.bits != 0 || q.group != 0 || (!q.scheme.empty() && (!named.symmetric || fp4)))
    return Error(Code::kInvalidArgument, "--recipe npu has symmetric integers, which --scheme names",
                 "--scheme lpbq-g32 (its own), w4-sym-channel, w8-sym-channel");
  if (!q.activations.empty() && q.activations != "float")
    return Error(Code::kInvalidArgument, "--activations " + q.activations + " is of 8 bits, --recipe npu is for 16",
                 "leave it out; slm export --to qdq has ranges of 16-bit activations");
  if (!q.ranges.empty()) return Error(Code::kInvalidArgument, "--ranges, and activations without static ranges", "leave it out");
  return Ok();
}
}  // namespace

const std::vector<std::string>& FolderFormats() {
  static const std::vector<std::string> names = {"awq", "gptq", "gptq-v2", "compressed-tensors"};
  return names;
}
bool IsFolderFormat(const std::string& to) {
  return std::find(FolderFormats().begin(), FolderFormats().end(), to) != FolderFormats().end();
}

Status CheckFolderRequest(const FolderRequest& q) {
  quant::FolderRecipe r;
  if (!q.scheme.empty()) SLM_RETURN_IF_ERROR(quant::SetScheme(q.scheme, &r));
  if (q.recipe.grids == quant::WeightGrids::kNpu) return CheckNpu(q, r);
  if (!q.scheme.empty() && !r.symmetric && !q.activations.empty() && q.activations != "float")
    return Error(Code::kInvalidArgument, "--scheme " + q.scheme + " has zero points, and rounded activations go with weights without",
                 "name a symmetric one, such as w4-sym-g32 or w8-sym-channel");
  if (!q.ranges.empty() && q.activations != "static")
    return Error(Code::kInvalidArgument, "--ranges, and activations without static ranges", "add --activations static");
  if (q.recipe.smooth && !q.recipe.weighted && !q.recipe.fold && !q.recipe.gptq && q.activations.empty())
    return Error(Code::kInvalidArgument, "--fold smooth, and activations that stay float", "add --activations dynamic or static");
  return Ok();
}

ordered_json FolderRecipeJson(const FolderRequest& q) {
  const quant::FolderRecipe r = RecipeOf(q);
  ordered_json activations = nullptr;
  if (!q.activations.empty() && q.activations != "float") {
    activations = {{"bits", 8}, {"scales", q.activations}};
    if (q.activations == "static") activations["ranges"] = q.ranges.empty() ? "minmax" : q.ranges;
  }
  return {{"recipe", q.recipe.name},
          {"to", q.to},
          {"scheme", quant::SchemeOf(r)},
          {"bits", r.bits == 0 ? 4 : r.bits},
          {"group", r.group},
          {"symmetric", r.symmetric},
          {"down_projections", r.down_bits > 0 ? quant::SchemeName(quant::NpuRecipe().down) : quant::SchemeOf(r)},
          {"activations", activations},
          {"search", q.recipe.search == quant::Search::kRefit ? "refit" : "rtn"},
          {"calibration", CalibrationJson(q.recipe)}};
}

Result<int> QuantizeToFolder(const model::Model& m, const FolderRequest& q, const quant::WriteOptions& options, int64_t start_ns, Io& io) {
  const quant::FolderRecipe recipe = RecipeOf(q);
  const auto source = q.requantize ? quant::SourceTypes::kAny : quant::SourceTypes::kFloatOnly;
  SLM_ASSIGN_OR_RETURN(const quant::FolderPlan plan, quant::PlanFolder(m, recipe, source));
  if (plan.lossless) SLM_RETURN_IF_ERROR(CheckKept(q, plan));
  Run run{.q = q, .m = m, .plan = plan, .options = options, .start_ns = start_ns};
  SLM_RETURN_IF_ERROR(CheckMemory(run));
  {
    SLM_ASSIGN_OR_RETURN(PartFolder part, PartFolder::Create(q.out));
    SLM_RETURN_IF_ERROR(WriteFiles(run, part, io));
    SLM_RETURN_IF_ERROR(part.Commit());
  }
  const ordered_json result = ResultJson(run);
  if (!q.report.empty())
    SLM_RETURN_IF_ERROR(WriteReport(
        io, {q.report, q.out, q.source, fmt::format("{} {} {}", q.recipe.name, q.to, plan.spec.bits), options.n_threads}, result));
  if (io.json) io.PrintJson(result);
  else PrintText(run, result, io);
  return int{run.verdict && !run.verdict->passed() ? kExitGate : kExitOk};
}

}  // namespace slm::cli
