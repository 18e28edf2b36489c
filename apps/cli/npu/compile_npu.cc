// See compile_npu.h.
#include "npu/compile_npu.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "compiled_record.h"
#include "model/hf/folder.h"
#include "model/json.h"
#include "model/quoted.h"
#include "output_file.h"
#include "progress.h"
#include "targets/targets.h"

namespace slm::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kFamily = "openvino-npu-";
constexpr double kMostGrowth = 1.10;

struct GraphFile {
  std::string path, file;
  int tokens = 0;
};

Result<std::string> PlatformOf(const std::string& target) {
  std::string known;
  for (const std::string& name : targets::TargetNames()) {
    if (!name.starts_with(kFamily)) continue;
    if (name == target) return target.substr(kFamily.size());
    known += (known.empty() ? "" : ", ") + name;
  }
  return Error(Code::kInvalidArgument, "--target " + target + ": no compiler for it here",
               "one of " + known + "; --device takes providers");
}

// The graphs that manifest.json names, or the one file.
Result<std::vector<GraphFile>> GraphsOf(const std::string& model) {
  std::error_code failed;
  if (!fs::is_directory(model, failed)) return std::vector<GraphFile>{{model, fs::path(model).filename().string(), 0}};
  SLM_ASSIGN_OR_RETURN(const model::hf::Folder folder, model::hf::Folder::Open(model));
  SLM_ASSIGN_OR_RETURN(const std::string text, folder.Text("manifest.json", 1 << 20));
  const Error no_manifest(Code::kInvalidArgument, model + ": no manifest.json that names graphs of fixed shapes",
                          "slm export MODEL --to qdq -o FOLDER writes such a folder; or name an ONNX file");
  const auto parsed = model::ParseJson(text);
  if (text.empty() || !parsed.ok()) return no_manifest;
  const json& m = parsed.value();
  if (!m.is_object() || m.value("format", json()) != "slmkit-static" || !m.contains("graphs") || !m["graphs"].is_array())
    return no_manifest;
  std::vector<GraphFile> out;
  for (const json& g : m["graphs"]) {
    if (!g.is_object() || !g.contains("file") || !g["file"].is_string() || !g.contains("tokens") || !g["tokens"].is_number_integer())
      return no_manifest;
    const std::string file = g["file"];
    if (const auto map = folder.Map(file); !map.ok()) return map.error().At(model);  // a plain name, inside the folder
    out.push_back({model + "/" + file, file, g["tokens"]});
  }
  if (out.empty()) return no_manifest;
  return out;
}

// Of a graph that the compiler refuses: it fails at some that it takes in another form.
std::string OtherForm(int tokens) {
  return tokens == 1 ? "slm export --to qdq --decode-tokens 4 writes a decode graph of another size, which the compiler may take"
                     : "slm export --to qdq --key-rotation columns writes another form, which the compiler may take";
}

std::string Sentence(const CompiledGraph& g) {
  const std::string estimate = g.blob.latency_us ? fmt::format(", {:.0f} us estimated by its cost model", *g.blob.latency_us) : "";
  return fmt::format("{}: {} by {}, {}{}", g.file, g.blob.cached ? "from the cache" : "compiled", g.blob.compiler,
                     FormatBytes(g.blob.bytes), estimate);
}

// What the compiler made of the graphs, and those that it refused, as rows with the error.
struct Outcome {
  std::vector<CompiledGraph> graphs;
  ordered_json refused = ordered_json::array();
};

ordered_json RowsOf(const std::vector<CompiledGraph>& graphs) {
  ordered_json rows = ordered_json::array();
  for (const CompiledGraph& g : graphs) rows.push_back(RowOf(g));
  return rows;
}

void Print(Io& io, const NpuRequest& r, const Outcome& o, const std::vector<std::string>& grown, double seconds) {
  if (io.json) {
    ordered_json rows = RowsOf(o.graphs);
    for (size_t i = 0; i < o.graphs.size(); ++i) {
      const Blob& blob = o.graphs[i].blob;
      rows[i]["blob"] = blob.path;
      rows[i]["cached"] = blob.cached;
      rows[i]["compile_seconds"] = blob.compile_s;
      rows[i]["made_anew"] = blob.why.empty() ? ordered_json(nullptr) : ordered_json(blob.why);
    }
    for (const auto& row : o.refused) rows.push_back(row);
    io.PrintJson({{"target", r.target}, {"graphs", std::move(rows)}, {"estimates", kEstimateNote}, {"grown", grown}, {"seconds", seconds}});
    return;
  }
  for (const CompiledGraph& g : o.graphs) {
    io.Print(g.blob.path + "\n");
    if (!g.blob.why.empty()) io.Note("made anew: " + g.blob.why);
    io.Note(Sentence(g));
  }
}

// Every graph of a folder, also after one that is refused; of one file a refusal is the error.
Result<Outcome> CompileAll(Io& io, const NpuRequest& r, const NpuCompiler& compiler, const std::string& platform,
                           const std::vector<GraphFile>& files) {
  Outcome o;
  for (const GraphFile& f : files) {
    auto blob = CompiledBlob(io, compiler, f.path, platform, r.cache);
    if (blob.ok()) {
      o.graphs.push_back({f.file, f.tokens, blob.Take()});
      continue;
    }
    if (blob.error().code() != Code::kUnsupported || f.tokens == 0) return blob.error();
    const Error error(blob.error().code(), blob.error().message(), OtherForm(f.tokens) + "; " + blob.error().hint());
    o.refused.push_back(RefusedRow(io, f.file, f.tokens, error));
  }
  return o;
}

}  // namespace

ordered_json RowOf(const CompiledGraph& g) {
  const auto number = [](const std::optional<double>& x) { return x ? ordered_json(*x) : ordered_json(nullptr); };
  return {{"file", g.file},
          {"tokens", g.tokens > 0 ? ordered_json(g.tokens) : ordered_json(nullptr)},
          {"model_sha256", g.blob.model_sha256},
          {"compiler", g.blob.compiler},
          {"blob_sha256", g.blob.sha256},
          {"bytes", g.blob.bytes},
          {"estimated_latency_us", number(g.blob.latency_us)},
          {"estimated_at_mhz", number(g.blob.mhz)}};
}

std::vector<std::string> GrownSince(const json& before, const std::vector<CompiledGraph>& now) {
  std::vector<std::string> out;
  for (const CompiledGraph& g : now)
    for (const json& row : before) {
      if (!row.is_object() || row.value("file", json()) != g.file) continue;
      const auto compare = [&](const char* key, const char* what, std::optional<double> x) {
        if (!x || !row.contains(key) || !row[key].is_number()) return;
        const double was = row[key].get<double>();
        if (*x > was * kMostGrowth) out.push_back(fmt::format("{}: {} {:.0f}, {:.0f} before", g.file, what, *x, was));
      };
      compare("bytes", "bytes of the blob", static_cast<double>(g.blob.bytes));
      compare("estimated_latency_us", "estimated latency, us:", g.blob.latency_us);
    }
  return out;
}

Result<int> CompileForNpu(Io& io, const NpuRequest& r) {
  const int64_t start_ns = NowNs();
  SLM_ASSIGN_OR_RETURN(const std::string platform, PlatformOf(r.target));
  SLM_ASSIGN_OR_RETURN(const std::vector<GraphFile> files, GraphsOf(r.model));
  SLM_ASSIGN_OR_RETURN(const NpuCompiler compiler, FindNpuCompiler(r.compiler));
  std::error_code failed;
  const std::string own = fs::is_directory(r.model, failed) ? r.model + "/" + kCompiledFile : "";
  const std::string base = r.against.empty() ? own : r.against;
  if (!r.against.empty() && !fs::exists(r.against, failed))
    return Error(Code::kNotFound, "--against " + r.against + ": no such file", "name a compiled.json");
  SLM_ASSIGN_OR_RETURN(const json record, ReadCompiled(base));
  if (const auto listed = ReadCompiled(own); !listed.ok()) return listed.error();
  NpuCompiler limited = compiler;
  limited.limit_s = r.limit_s;
  SLM_ASSIGN_OR_RETURN(const Outcome o, CompileAll(io, r, limited, platform, files));
  const std::vector<std::string> grown = GrownSince(RowsIn(record, r.target), o.graphs);
  const bool refused = !grown.empty() && r.growth == Growth::kRefused;
  if (!own.empty() && !refused && !o.graphs.empty()) SLM_RETURN_IF_ERROR(WriteCompiled(own, r.target, RowsOf(o.graphs), io));
  Print(io, r, o, grown, static_cast<double>(NowNs() - start_ns) / 1e9);
  for (const std::string& g : grown) io.Note((refused ? "grew by more than 10 %: " : "accepted: ") + g);
  if (refused) io.Note(base + " stays as it is; --accept-growth takes the new numbers over");
  if (!o.refused.empty()) return int{kExitFailed};
  return int{refused ? kExitGate : kExitOk};
}

}  // namespace slm::cli
