// See context_cache.h.
#include "context_cache.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "compiled_folder.h"
#include "fetch/digest.h"
#include "model/quoted.h"

namespace slm::cli {
namespace {

namespace fs = std::filesystem;
namespace ort = backend::ort;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kModel = "model.onnx";
constexpr const char* kHint = "slm compile makes it anew from the original ONNX file";
constexpr const char* kMaker = "provider";

Error Bad(const std::string& path, const std::string& what) { return Error(Code::kCorrupt, path + ": " + what, kHint); }

// Whose compiler it was: what must be the same again when the binary is loaded.
Result<ordered_json> Makers(const ort::Runtime& runtime, const ort::Choice& choice) {
  SLM_ASSIGN_OR_RETURN(const ort::Provider provider, FirstProvider(runtime, choice));
  ordered_json j = {{"runtime", Describe(runtime).version},
                    {"provider", provider.name},
                    {"provider_version", provider.version},
                    {"provider_sha256", nullptr}};
  if (provider.file.empty()) return j;
  SLM_ASSIGN_OR_RETURN(const std::string sum, Sha256OfFile(provider.file));
  j["provider_sha256"] = sum;
  return j;
}

std::string CompatibilityOf(const onnx::Model& m, const std::string& provider) {
  for (const auto& [key, value] : m.metadata)
    if (key == "ep_compatibility_info." + provider) return value;
  return "";
}

bool IsContext(const onnx::Node& n) { return n.op_type == "EPContext" && n.domain == "com.microsoft"; }

// Those of the nodes and of the graphs in their attributes; reading has bounded how deep these lie.
void AddContexts(std::span<const onnx::Node> nodes, std::vector<const onnx::Node*>& out) {
  for (const onnx::Node& n : nodes) {
    if (IsContext(n)) out.push_back(&n);
    for (const onnx::Attribute& a : n.attributes)
      for (const onnx::Graph& g : a.graphs) AddContexts(g.nodes, out);
  }
}
std::vector<const onnx::Node*> ContextsIn(const onnx::Model& m) {
  std::vector<const onnx::Node*> out;
  AddContexts(m.graph.nodes, out);
  for (const onnx::Function& f : m.functions) AddContexts(f.nodes, out);
  return out;
}

// The file itself and the binaries that its nodes name must stand in the record.
Status CheckNamed(const onnx::Model& m, const json& record) {
  std::set<std::string> known;
  for (const auto& f : record["files"]) known.insert(f["name"].get<std::string>());
  if (!known.contains(fs::path(m.path).filename().string())) return Bad(m.path, std::string("does not stand in ") + kRecordFile);
  for (const onnx::Node* n : ContextsIn(m)) {
    const onnx::Attribute* embedded = n->Find("embed_mode");
    if (!embedded || embedded->ints.empty() || embedded->ints[0] != 0) continue;  // the binary is in the file itself, which has a sum
    const onnx::Attribute* name = n->Find("ep_cache_context");
    if (!name || name->strings.empty() || known.contains(name->strings[0])) continue;
    return Bad(m.path, "names a binary that its record does not: " + model::Quoted(name->strings[0]));
  }
  return Ok();
}

// A binary of another version, or of other options, is stale, whatever its bytes are.
Status CheckOrigin(const ordered_json& here, const std::string& place, const json& record) {
  const std::vector<std::string> differences = DifferencesOf(here, record);
  return differences.empty() ? Ok() : Status(Bad(place, "was compiled with " + differences[0]));
}

Status CheckFit(const ort::Runtime& runtime, const ort::Choice& choice, const std::string& place, const std::string& compatibility) {
  if (compatibility.empty()) return Ok();  // the provider says nothing; the key already has its version
  SLM_ASSIGN_OR_RETURN(const ort::ContextFit fit, FitOfContext(runtime, choice, compatibility));
  if (fit != ort::ContextFit::kNot) return Ok();
  return Error(Code::kUnsupported, place + ": the provider refuses it on this device (" + model::PrintableUtf8(compatibility, 200) + ")",
               kHint);
}

Result<Context> Believe(const ort::Runtime& runtime, const ort::Choice& choice, const ordered_json& origin, const std::string& folder) {
  SLM_ASSIGN_OR_RETURN(const json record, ReadRecord(folder, kMaker, kHint));
  Context c;
  c.model = folder + "/" + kModel;
  SLM_ASSIGN_OR_RETURN(const onnx::Model m, onnx::ReadModel(c.model));
  SLM_RETURN_IF_ERROR(CheckNamed(m, record));
  SLM_RETURN_IF_ERROR(CheckOrigin(origin, folder, record));
  c.origin = origin;
  c.provider = record["provider"];
  c.compatibility = CompatibilityOf(m, c.provider);
  SLM_RETURN_IF_ERROR(CheckFit(runtime, choice, folder, c.compatibility));
  for (const auto& f : record["files"]) c.artifacts.push_back(folder + "/" + f["name"].get<std::string>());
  c.artifacts.push_back(folder + "/" + kRecordFile);
  return c;
}

Status Compile(const Io& io, const ort::Runtime& runtime, const ContextRequest& r, ordered_json record, const std::string& folder) {
  SLM_ASSIGN_OR_RETURN(PartFolder part, NewFolder(folder));
  SLM_RETURN_IF_ERROR(CompileContext(runtime, r.path, r.choice, part.File(kModel)));
  SLM_RETURN_IF_ERROR(AddFiles(part, record));
  SLM_ASSIGN_OR_RETURN(const onnx::Model m, onnx::ReadModel(part.File(kModel)));
  record["ep_compatibility_info"] = CompatibilityOf(m, record["provider"]);
  SLM_RETURN_IF_ERROR(WriteRecord(part, record, io));
  return part.Commit();
}

}  // namespace

Result<ordered_json> ContextOrigin(const ort::Runtime& runtime, const ort::Choice& choice, const onnx::Model& m, const KnownSums& known) {
  SLM_ASSIGN_OR_RETURN(const ordered_json makers, Makers(runtime, choice));
  SLM_ASSIGN_OR_RETURN(ordered_json j, SumsOf(m, known));
  j.update(makers);
  std::map<std::string, std::string> options;  // of a key the last value, as the provider takes it
  for (const ort::ProviderOption& o : choice.options)
    if (o.provider.empty() || o.provider == j["provider"]) options[o.key] = o.value;
  j["options"] = options;
  return j;
}

FoundContext FindContext(const ort::Runtime& runtime, const ort::Choice& choice, const ordered_json& origin,
                         const std::vector<std::string>& caches) {
  FoundContext found;
  for (const std::string& cache : caches) {
    const std::string folder = cache + "/" + KeyOf(origin);
    if (std::error_code absent; !fs::exists(fs::symlink_status(folder, absent))) continue;
    auto there = Believe(runtime, choice, origin, folder);
    if (there.ok()) return {there.Take(), ""};
    if (found.why.empty()) found.why = there.error().message();
  }
  return found;
}

Result<Context> CompiledContext(const Io& io, const ort::Runtime& runtime, const ContextRequest& r) {
  SLM_ASSIGN_OR_RETURN(const onnx::Model m, onnx::ReadModel(r.path));
  SLM_RETURN_IF_ERROR(CheckContexts(m, runtime, r.choice));
  SLM_ASSIGN_OR_RETURN(const ordered_json origin, ContextOrigin(runtime, r.choice, m, r.sums));
  FoundContext found = FindContext(runtime, r.choice, origin, {r.cache});
  if (found.context) {
    found.context->cached = true;
    return *std::move(found.context);
  }
  const std::string folder = r.cache + "/" + KeyOf(origin);
  const Status compiled = Compile(io, runtime, r, origin, folder);
  auto there = Believe(runtime, r.choice, origin, folder);  // after a failure, too: another slm may have made it meanwhile
  if (!there.ok()) return compiled.ok() ? there.error() : compiled.error();
  there.value().cached = !compiled.ok();
  there.value().why = found.why;
  return there;
}

Status CheckContexts(const onnx::Model& m, const ort::Runtime& runtime, const ort::Choice& choice) {
  if (ContextsIn(m).empty()) return Ok();
  const std::string folder = fs::path(m.path).parent_path().string();
  SLM_ASSIGN_OR_RETURN(const json record, ReadRecord(folder.empty() ? "." : folder, kMaker, kHint));
  SLM_RETURN_IF_ERROR(CheckNamed(m, record));
  SLM_ASSIGN_OR_RETURN(const ordered_json makers, Makers(runtime, choice));
  SLM_RETURN_IF_ERROR(CheckOrigin(makers, m.path, record));
  return CheckFit(runtime, choice, m.path, CompatibilityOf(m, record["provider"]));
}

}  // namespace slm::cli
