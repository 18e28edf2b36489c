// See quantize_folder.h. The config is written last: a folder that was not finished is no model.
#include "quantize_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/clock.h"
#include "open_model.h"
#include "output_file.h"
#include "progress.h"
#include "telemetry/telemetry.h"

namespace slm::cli {
namespace {
namespace fs = std::filesystem;
using model::hf::PackedFormat;
using nlohmann::ordered_json;

PackedFormat FormatOf(const std::string& to) {
  if (to == "awq") return PackedFormat::kAwq;
  if (to == "gptq") return PackedFormat::kGptq;
  return to == "gptq-v2" ? PackedFormat::kGptqV2 : PackedFormat::kCompressed;
}

Status MakeFolder(const std::string& path) {
  std::error_code failed;
  if (fs::exists(path, failed) && (!fs::is_directory(path, failed) || !fs::is_empty(path, failed)))
    return Error(Code::kInvalidArgument, path + ": is there already", "name a new folder, or an empty one");
  fs::create_directories(path, failed);
  if (failed) return Error(Code::kIo, path + ": " + failed.message(), "check the path, its permissions and the free space");
  return Ok();
}

Status WriteText(const std::string& path, const std::string& text, const Io& io) {
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  SLM_RETURN_IF_ERROR(WriteUnlessCancelled(file, std::as_bytes(std::span(text)), path, io));
  return file.Commit();
}

Result<quant::FolderReport> WriteWeights(const model::Model& m, const quant::FolderPlan& plan, const FolderRequest& q, Io& io) {
  const std::string path = (fs::path(q.out) / "model.safetensors").string();
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  const auto sink = [&](std::span<const std::byte> bytes) { return WriteUnlessCancelled(file, bytes, path, io); };
  Progress progress(io, q.out, plan.data_bytes());
  quant::WriteOptions options;
  options.n_threads = ThreadsOr(q.n_threads);
  options.progress = [&](uint64_t bytes) { progress.Update(bytes); };
  SLM_ASSIGN_OR_RETURN(quant::FolderReport report, quant::WriteFolder(m, plan, options, sink));
  SLM_RETURN_IF_ERROR(file.Commit());
  progress.Finish();
  return report;
}

Status CheckMemory(const FolderRequest& q, const quant::FolderPlan& plan) {
  if (q.memory.empty()) return Ok();
  SLM_ASSIGN_OR_RETURN(const int64_t limit, ParseBytes(q.memory));
  const auto memory = telemetry::ReadProcessMemory();
  const uint64_t need = (memory.ok() ? memory.value().rss_bytes : 0) + quant::FolderNeedBytes(plan);
  if (need <= static_cast<uint64_t>(limit)) return Ok();
  return Error(Code::kLimit, fmt::format("--mem {}: {} bytes are needed: one matrix is in memory", q.memory, need), "raise --mem");
}

void Print(const quant::FolderPlan& plan, const quant::FolderReport& r, const FolderRequest& q, double seconds, Io& io) {
  const auto memory = telemetry::ReadProcessMemory();
  if (io.json) {
    ordered_json j = {{"recipe", "fast"},
                      {"to", q.to},
                      {"bits", plan.spec.bits},
                      {"group", plan.spec.group},
                      {"symmetric", plan.spec.symmetric},
                      {"lossless", plan.lossless},
                      {"bpw", plan.bpw()},
                      {"body_bpw", plan.body_bpw()},
                      {"bytes", r.bytes},
                      {"seconds", seconds},
                      {"peak_rss_bytes", memory.ok() ? ordered_json(memory.value().peak_rss_bytes) : ordered_json(nullptr)},
                      {"gate", nullptr},
                      {"notes", plan.notes}};
    j["tensors"] = ordered_json::array();
    for (const quant::FolderTensorReport& t : r.tensors)
      j["tensors"].push_back({{"name", t.name}, {"scheme", t.scheme}, {"from", t.from}, {"error", t.error}});
    return io.PrintJson(j);
  }
  io.Note(fmt::format("{}: {}, {:.3f} bits per weight ({:.3f} in the layers), {:.1f} s{}", q.out, FormatBytes(r.bytes), plan.bpw(),
                      plan.body_bpw(), seconds, plan.lossless ? "; every value kept exactly" : ""));
  for (const std::string& note : plan.notes) io.Note(note);
  const auto worst = std::max_element(r.tensors.begin(), r.tensors.end(), [](const auto& a, const auto& b) { return a.error < b.error; });
  if (!plan.lossless && worst != r.tensors.end())
    io.Note(
        fmt::format("largest relative error of a tensor: {:.4f} ({}); not judged on text: slm eval does that", worst->error, worst->name));
}

}  // namespace

const std::vector<std::string>& FolderFormats() {
  static const std::vector<std::string> names = {"awq", "gptq", "gptq-v2", "compressed-tensors"};
  return names;
}
bool IsFolderFormat(const std::string& to) {
  return std::find(FolderFormats().begin(), FolderFormats().end(), to) != FolderFormats().end();
}

Result<int> QuantizeToFolder(const model::Model& m, const FolderRequest& q, int64_t start_ns, Io& io) {
  quant::FolderRecipe recipe;
  recipe.format = FormatOf(q.to);
  recipe.bits = q.bits;
  recipe.group = q.group < 0 ? 0 : q.group == 0 ? 32 : q.group;
  recipe.symmetric = q.symmetric;
  recipe.search = q.refit ? quant::Search::kRefit : quant::Search::kNearest;
  const auto source = q.requantize ? quant::SourceTypes::kAny : quant::SourceTypes::kFloatOnly;
  SLM_ASSIGN_OR_RETURN(const quant::FolderPlan plan, quant::PlanFolder(m, recipe, source));
  SLM_RETURN_IF_ERROR(CheckMemory(q, plan));
  SLM_ASSIGN_OR_RETURN(const auto files, model::hf::SmallFiles(m.path));
  SLM_RETURN_IF_ERROR(MakeFolder(q.out));
  SLM_ASSIGN_OR_RETURN(const quant::FolderReport report, WriteWeights(m, plan, q, io));
  std::string config;
  for (const auto& [name, text] : files) {
    if (name == "config.json") config = text;
    else SLM_RETURN_IF_ERROR(WriteText((fs::path(q.out) / name).string(), text, io));
  }
  SLM_ASSIGN_OR_RETURN(config, model::hf::PackedConfig(config, plan.spec));
  SLM_RETURN_IF_ERROR(WriteText((fs::path(q.out) / "config.json").string(), config, io));
  Print(plan, report, q, static_cast<double>(NowNs() - start_ns) * 1e-9, io);
  return int{kExitOk};
}

}  // namespace slm::cli
