// See blob_cache.h.
#include "npu/blob_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "compiled_folder.h"
#include "compiled_record.h"
#include "environment.h"
#include "fetch/digest.h"
#include "fetch/process.h"
#include "model/quoted.h"
#include "npu/compiler_log.h"

namespace slm::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kProgram = "npu_compile";
constexpr const char* kBlob = "model.blob";
constexpr const char* kLog = "compile.log";
constexpr const char* kMaker = "compiler";
constexpr const char* kInstall =
    "./dev openvino-npu installs it; or name its folder with --compiler PATH or the environment variable SLM_OPENVINO_NPU";
constexpr const char* kAnew = "slm compile makes it anew from the original ONNX file";

std::string CompilerFolder(const std::string& folder) {
  if (!folder.empty()) return folder;
  if (std::string named = Environment("SLM_OPENVINO_NPU"); !named.empty()) return named;
  return CacheFolder("openvino_npu");
}

// The end of a log holds what matters of one that is too long.
std::string LogText(const std::string& path) {
  constexpr std::streamoff kMost = 64 << 20;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
  in.seekg(size > kMost ? size - kMost : 0);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string NodesText(const std::vector<NamedNode>& nodes) {
  std::string out;
  for (const NamedNode& n : nodes)
    out += (out.empty() ? "" : ", ") + model::PrintableUtf8(n.name, 120) + " (" + model::PrintableUtf8(n.op, 40) + ")";
  return out;
}

// What the compiler said when it made nothing, with our names of the nodes.
Error Refusal(const CompilerLog& log, const onnx::Model& m, const std::string& platform, int exit_code) {
  constexpr size_t kMostNodes = 4;
  std::string said;  // the compiler's own words before those of what wraps it
  for (const std::string& c : log.complaints) said += (said.empty() ? "" : "; ") + c;
  if (said.empty()) said = log.error.empty() ? "exit code " + std::to_string(exit_code) : log.error;
  const std::vector<NamedNode> nodes = NodesIn(said, m.graph, kMostNodes);
  const Code code = log.step == "start" || log.step == "version" || log.step == "options" || log.step == "compiler" || log.step.empty()
                        ? Code::kUnavailable
                        : Code::kUnsupported;
  return Error(
      code, m.path + ": " + (nodes.empty() ? "" : "at " + NodesText(nodes) + ": ") + "the compiler for NPU " + platform + " says: " + said,
      code == Code::kUnavailable ? kInstall : "slm check FILE --target openvino-npu-" + platform + " shows which operators it takes");
}

std::optional<double> NumberOf(const json& record, const char* key) {
  return record.contains(key) && record[key].is_number() ? std::optional(record[key].get<double>()) : std::nullopt;
}
std::string TextOf(const json& record, const char* key) {
  return record.contains(key) && record[key].is_string() ? record[key].get<std::string>() : "";
}

Result<Blob> Believe(const std::string& folder, const ordered_json& origin) {
  SLM_ASSIGN_OR_RETURN(const json record, ReadRecord(folder, kMaker, kAnew));
  for (const auto& [key, value] : origin.items())
    if (!record.contains(key) || record[key] != json(value))
      return Error(Code::kCorrupt, folder + ": its record is of another " + key, kAnew);
  Blob b;
  b.folder = folder;
  b.path = folder + "/" + kBlob;
  for (const auto& f : record["files"])
    if (f["name"] == kBlob) b.sha256 = f["sha256"];
  std::error_code failed;
  b.bytes = fs::file_size(b.path, failed);
  if (b.sha256.empty() || failed) return Error(Code::kCorrupt, folder + ": its record has no blob", kAnew);
  b.model_sha256 = TextOf(record, "model_sha256");
  b.compiler = TextOf(record, kMaker);
  b.latency_us = NumberOf(record, "estimated_latency_us");
  b.mhz = NumberOf(record, "estimated_at_mhz");
  b.compile_s = NumberOf(record, "compile_seconds").value_or(0);
  return b;
}

Status Make(const Io& io, const NpuCompiler& compiler, const onnx::Model& m, const std::string& platform, ordered_json record,
            const std::string& folder) {
  SLM_ASSIGN_OR_RETURN(PartFolder part, NewFolder(folder));
  const int64_t start_ns = NowNs();
  std::error_code failed;
  const std::string model = fs::absolute(m.path, failed).string();
  SLM_ASSIGN_OR_RETURN(const int exit_code,
                       RunLogged({compiler.program, model, platform, part.File(kBlob)}, part.File(kLog), compiler.limit_s, io.cancel));
  const CompilerLog log = ReadCompilerLog(LogText(part.File(kLog)));
  if (exit_code != 0 || !log.step.empty()) {
    const std::string kept = folder + ".failed.log";
    fs::rename(part.File(kLog), kept, failed);
    return Refusal(log, m, platform, exit_code).At(failed ? "no log" : kept);
  }
  if (const auto bytes = fs::file_size(part.File(kBlob), failed); failed || bytes == 0)
    return Error(Code::kUnavailable, compiler.program + " wrote no blob of " + m.path, kInstall);
  record[kMaker] = "OpenVINO " + log.openvino + ", NPU compiler " + log.compiler;
  record["estimated_latency_us"] = log.latency_us ? ordered_json(*log.latency_us) : ordered_json(nullptr);
  record["estimated_at_mhz"] = log.mhz ? ordered_json(*log.mhz) : ordered_json(nullptr);
  record["estimate"] = kEstimateNote;
  record["compile_seconds"] = static_cast<double>(NowNs() - start_ns) / 1e9;
  SLM_RETURN_IF_ERROR(AddFiles(part, record));
  SLM_RETURN_IF_ERROR(WriteRecord(part, record, io));
  return part.Commit();
}

}  // namespace

Result<NpuCompiler> FindNpuCompiler(const std::string& folder) {
  const std::string where = CompilerFolder(folder);
  std::error_code failed;
  NpuCompiler c;
  c.program = fs::absolute(where, failed).string() + "/" + kProgram;
  if (!fs::is_regular_file(c.program, failed) || access(c.program.c_str(), X_OK) != 0)
    return Error(Code::kUnavailable, "OpenVINO's compiler for NPUs is not here: " + where + " has no program " + kProgram, kInstall);
  Digest d(DigestKind::kSha256);
  SLM_RETURN_IF_ERROR(AddFile(c.program, d));
  if (const std::string made_of = where + "/made_of.txt"; fs::is_regular_file(made_of, failed)) SLM_RETURN_IF_ERROR(AddFile(made_of, d));
  c.sha256 = d.Hex();
  return c;
}

Result<Blob> CompiledBlob(const Io& io, const NpuCompiler& compiler, const std::string& path, const std::string& platform,
                          const std::string& cache) {
  SLM_ASSIGN_OR_RETURN(const onnx::Model m, onnx::ReadModel(path));
  SLM_ASSIGN_OR_RETURN(ordered_json origin, SumsOf(m));
  origin["platform"] = platform;
  origin["compiler_sha256"] = compiler.sha256;
  const std::string folder = cache + "/" + KeyOf(origin);
  std::error_code absent;
  std::string why;
  if (fs::exists(folder, absent)) {
    auto there = Believe(folder, origin);
    if (there.ok()) {
      there.value().cached = true;
      return there;
    }
    why = there.error().message();
  }
  const Status compiled = Make(io, compiler, m, platform, origin, folder);
  auto there = Believe(folder, origin);  // after a failure, too: another slm may have made it meanwhile
  if (!there.ok()) return compiled.ok() ? there.error() : compiled.error();
  there.value().cached = !compiled.ok();
  there.value().why = why;
  return there;
}

}  // namespace slm::cli
