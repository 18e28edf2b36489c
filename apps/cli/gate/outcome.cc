// See outcome.h.
#include "gate/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/mmap.h"
#include "fetch/digest.h"
#include "gate/report_page.h"
#include "open_model.h"
#include "output_file.h"
#include "version.h"

namespace slm::cli {
namespace fs = std::filesystem;
namespace {
using nlohmann::ordered_json;

Status Mark(WorkFile& work, const Verdict& verdict, const HeldOut& text) {
  model::gguf::TextPlace place;
  {
    SLM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(work.part()));
    SLM_ASSIGN_OR_RETURN(place, model::gguf::FindText(file.bytes(), kGateKey));
  }
  const std::string mark = MarkOf(verdict, text);
  if (place.bytes != mark.size())
    return Error(Code::kInternal, fmt::format("{}: {} bytes are kept for the gate", work.part(), place.bytes));
  return work.Overwrite(place.offset, mark);
}

// Of a file, or of a folder's files one after the other by name.
Result<std::string> SumOf(const std::string& path) {
  std::vector<std::string> files;
  std::error_code failed;
  if (fs::is_directory(path, failed)) {
    for (const fs::directory_entry& e : fs::directory_iterator(path, failed))
      if (std::error_code unknown; e.is_regular_file(unknown)) files.push_back(e.path().string());
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  Digest digest(DigestKind::kSha256);
  for (const std::string& file : files) SLM_RETURN_IF_ERROR(AddFile(file, digest));
  return digest.Hex();
}

ordered_json Machine(int n_threads) {
  const CpuFeatures cpu = DetectCpu();
  const auto isa = IsaOfEnvironment(cpu);
  return {{"cpu", cpu.brand},
          {"isa", isa.ok() ? ordered_json(IsaName(isa.value())) : ordered_json(nullptr)},
          {"threads", n_threads},
          {"program", std::string("slm ") + SLM_VERSION}};
}

// The points of the page that is at `path`, if it is one.
std::vector<SizePoint> EarlierPoints(const std::string& path, const PointsKey& key) {
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return {};
  const auto bytes = file.value().bytes();
  return PointsOfPage({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, key);
}

}  // namespace

Result<std::optional<Verdict>> JudgeOutput(Io& io, const JudgeTask& task, const GateOptions& options, const HeldOut& text,
                                           std::vector<std::string>* notes) {
  auto judged = Judge(io, task, options, text);
  if (!judged.ok()) {
    if (options.max_kld || judged.error().code() == Code::kCancelled) return judged.error().At("the gate");
    notes->push_back("not compared with the source: " + judged.error().message());
    return std::optional<Verdict>();
  }
  return std::optional<Verdict>(judged.Take());
}

Result<std::optional<Verdict>> JudgeWork(Io& io, WorkFile& work, const JudgeTask& task, const GateOptions& options, const HeldOut& text,
                                         std::vector<std::string>* notes) {
  SLM_ASSIGN_OR_RETURN(auto verdict, JudgeOutput(io, task, options, text, notes));
  if (verdict && options.max_kld) SLM_RETURN_IF_ERROR(Mark(work, *verdict, text));
  return verdict;
}

Status WriteReport(Io& io, const ReportTask& task, const ordered_json& run) {
  ordered_json all = run;
  PointsKey key;
  SLM_ASSIGN_OR_RETURN(key.source_sha256, SumOf(task.source));
  SLM_ASSIGN_OR_RETURN(const std::string sum, SumOf(task.file));
  all["source"] = {{"path", task.source}, {"bytes", BytesOf(task.source)}, {"sha256", key.source_sha256}};
  all["file"] = {{"path", task.file}, {"sha256", sum}};
  all["machine"] = Machine(task.n_threads);
  std::vector<SizePoint> points;
  if (const ordered_json& gate = all["gate"]; gate.is_object()) {
    key.text_sha256 = gate["text_sha256"].get<std::string>();
    points = EarlierPoints(task.path, key);
    const SizePoint point{task.label, all["bytes"].get<uint64_t>(), gate["kld"]["mean"].get<double>(), gate["kld"]["sigma"].get<double>()};
    std::erase(points, point);  // the same run again
    points.push_back(point);
  }
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(task.path, io));
  const std::string page = ReportPage(all, key, points);
  SLM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(page.data(), page.size()))));
  return file.Commit();
}

}  // namespace slm::cli
