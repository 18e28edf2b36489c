// See record.h.
#include "verify/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "model/json.h"
#include "onnx/static_folder/static_folder.h"
#include "output_file.h"
#include "prompt.h"
#include "read_input.h"
#include "store.h"
#include "verify/golden_file.h"
#include "verify/measure.h"
#include "version.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

// Short, of several kinds, and the same for every model.
constexpr const char* kPrompts[] = {
    "The capital of France is",
    "Water boils at a temperature of 100 degrees, and it freezes at",
    "def is_prime(n):\n    if n < 2:\n        return",
    "Question: A shop sells pens at 3 coins each. How much do 7 pens cost?\nAnswer:",
    "Il était une fois, dans un petit village,",
    "{\"name\": \"Ada\", \"born\": 1815, \"fields\": [\"mathematics\",",
};

// Rounding activations to 8 bits moves a model by about this much, and other kernels round otherwise.
constexpr double kLeastKldBudget = 0.002;
constexpr double kSameTopSlack = 0.05;  // of the steps, that may have another top token than when recorded

// {"messages": [{"role", "content"}, …]}; empty: the line holds none, or something else.
std::vector<Message> MessagesOf(const nlohmann::json& line) {
  const auto list = line.find("messages");
  if (list == line.end() || !list->is_array()) return {};
  std::vector<Message> messages;
  for (const auto& m : *list) {
    for (const char* key : {"role", "content"})
      if (!m.is_object() || !m.contains(key) || !m[key].is_string()) return {};
    messages.push_back({m["role"], m["content"]});
  }
  return messages;
}

// Lines of {"text"} or {"messages"}.
Result<std::vector<std::vector<int32_t>>> PromptsOfFile(const Io& io, const std::string& path, const OpenedModel& m) {
  SLM_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(io, path));
  std::vector<std::vector<int32_t>> prompts;
  int n_line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++n_line;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Error bad(Code::kCorrupt, fmt::format("{}: line {} is no prompt", path, n_line),
                    "write {\"text\": …} or {\"messages\": [{\"role\", \"content\"}, …]}, an object a line");
    const auto j = model::ParseJson(line);
    if (!j.ok() || !j.value().is_object()) return bad;
    std::vector<int32_t> ids;
    if (const auto t = j.value().find("text"); t != j.value().end() && t->is_string()) {
      SLM_ASSIGN_OR_RETURN(ids, EncodeRaw(m, t->get<std::string>(), Special::kPlain));
    } else {
      const auto messages = MessagesOf(j.value());
      if (messages.empty()) return bad;
      SLM_ASSIGN_OR_RETURN(ids, EncodeChat(m, messages));
    }
    if (ids.empty()) return bad;
    prompts.push_back(std::move(ids));
  }
  if (prompts.empty()) return Error(Code::kInvalidArgument, path + ": no prompts", "write an object a line");
  return prompts;
}

// What every sequence of the package's static graphs begins with; empty where there are none. Errors: kInvalidArgument (two beginnings).
Result<std::vector<int32_t>> BeginOf(const Package& package) {
  std::vector<int32_t> begin;
  for (const std::string& name : package.models) {
    const std::string path = package.folder + "/" + name;
    if (!onnx::IsStaticFolder(path)) continue;
    SLM_ASSIGN_OR_RETURN(const onnx::StaticFolder folder, onnx::ReadStaticFolder(path));
    const auto& own = folder.manifest.prefix_tokens;
    if (own.empty() || own == begin) continue;
    if (!begin.empty())
      return Error(Code::kInvalidArgument, path + ": begins with other tokens than another model of the package", "verify them apart");
    begin = own;
  }
  return begin;
}

// Errors name the option's place when the prompts do not fit.
Result<std::vector<eval::GoldenAnswer>> Record(Io& io, const VerifyOptions& o, const std::vector<int32_t>& begin, GoldenFile* file) {
  constexpr int kPromptRoom = 1024;  // tokens, for the user's prompts
  OpenOptions open = OpenOptionsFor(o, file->reference, static_cast<size_t>(o.n_steps + kPromptRoom));
  open.compute = file->compute;
  open.kv = "f32";
  open.context_least = o.n_steps + 1;
  SLM_ASSIGN_OR_RETURN(OpenedModel m, OpenModel(io, open));
  if (!begin.empty()) m.begin = begin;
  std::vector<std::vector<int32_t>> prompts;
  if (!o.prompts.empty()) {
    SLM_ASSIGN_OR_RETURN(prompts, PromptsOfFile(io, o.prompts, m));
  } else {
    for (const char* text : kPrompts) {
      SLM_ASSIGN_OR_RETURN(auto ids, EncodeRaw(m, text, Special::kPlain));
      // A model of few tokens of context still gets the beginning.
      ids.resize(std::min(ids.size(), static_cast<size_t>(std::max(1, m.backend->capabilities().max_context - o.n_steps))));
      prompts.push_back(std::move(ids));
    }
  }
  file->vocab_size = m.backend->capabilities().vocab_size;
  std::vector<eval::GoldenAnswer> answers;
  for (const auto& ids : prompts) {
    SLM_ASSIGN_OR_RETURN(auto answer, eval::RecordGolden(*m.backend, ids, o.n_steps, o.n_top, [&io] { return !io.cancelled(); }));
    answers.push_back(std::move(answer));
  }
  return answers;
}

// One model of the package measured against the answers.
Result<GoldenArtefact> RecordArtefact(Io& io, const VerifyOptions& o, const Package& package, const std::string& name,
                                      const GoldenFile& file) {
  const std::string path = package.folder + "/" + name;
  SLM_ASSIGN_OR_RETURN(const Identity id, IdentityOf(path));
  auto measured = MeasureArtefact(io, o, path, file, 0);
  if (!measured.ok()) return measured.error().At(name);
  const GoldenRun& m = measured.value();
  const double kld = m.match.mean_kld;
  if (o.max_kld && kld > *o.max_kld)
    return Error(Code::kLimit, fmt::format("{}: KLD {:.6f} is more than --max-kld {}; nothing was recorded", name, kld, *o.max_kld),
                 "raise the budget, or make the artefact anew with less loss");
  return GoldenArtefact{.path = name,
                        .sha256 = id.sha256,
                        .bytes = id.bytes,
                        .max_kld = o.max_kld ? *o.max_kld : std::max(2 * kld, kLeastKldBudget),
                        .least_same_top = std::max(0.0, m.same_top() - kSameTopSlack),
                        .kld = kld,
                        .same_top = m.same_top(),
                        .p95_ms = m.p95_ms,
                        .cpu = DetectCpu().brand,
                        .isa = m.isa,
                        .n_threads = m.n_threads};
}

ordered_json ToJson(const GoldenArtefact& a) {
  return {{"path", a.path}, {"sha256", a.sha256}, {"kld", a.kld}, {"max_kld", a.max_kld}, {"same_top", a.same_top}, {"p95_ms", a.p95_ms}};
}

}  // namespace

Result<int> RecordPackage(Io& io, const VerifyOptions& o, const Package& package) {
  if (package.models.empty())
    return Error(Code::kNotFound, package.folder + ": no model in it", "a package holds GGUF files, .slm files or model folders");
  GoldenFile file;
  file.program = "slm " SLM_VERSION;
  // Graphs of fixed shapes cannot answer in float for the others.
  const auto first = std::find_if(package.models.begin(), package.models.end(),
                                  [&](const std::string& name) { return !onnx::IsStaticFolder(package.folder + "/" + name); });
  if (!o.base.empty()) {
    SLM_ASSIGN_OR_RETURN(file.reference, ResolveModel(io, o.base));
  } else if (first != package.models.end()) {
    file.reference = package.folder + "/" + *first;
  } else {
    return Error(Code::kInvalidArgument,
                 package.folder + "/" + package.models[0] + ": only graphs of fixed shapes, which do not answer in float",
                 "name the float model with --base");
  }
  file.compute = "f32";
  for (const std::string& name : package.models)
    SLM_RETURN_IF_ERROR(RefuseModelFile(package.file, package.folder + "/" + name, Neighbours::kSameExtension));
  SLM_RETURN_IF_ERROR(RefuseModelFile(package.file, file.reference, Neighbours::kSameExtension));
  SLM_RETURN_IF_ERROR(RefuseInput(package.file, o.prompts));
  SLM_ASSIGN_OR_RETURN(const std::vector<int32_t> begin, BeginOf(package));
  SLM_ASSIGN_OR_RETURN(file.answers, Record(io, o, begin, &file));
  file.reference = o.base.empty() ? *first : fs::path(file.reference).filename().string();
  ordered_json list = ordered_json::array();
  for (const std::string& name : package.models) {
    SLM_ASSIGN_OR_RETURN(GoldenArtefact a, RecordArtefact(io, o, package, name, file));
    if (!io.json)
      io.Print(fmt::format("{}: KLD {:.6f} from {} ({}), at most {:.6f}; same top token {:.1f} %; 95 % of the steps in {:.2f} ms\n", name,
                           a.kld, file.reference, file.compute, a.max_kld, 100 * a.same_top, a.p95_ms));
    list.push_back(ToJson(a));
    file.artefacts.push_back(std::move(a));
  }
  SLM_RETURN_IF_ERROR(WriteTextFile(package.file, GoldenText(file), io));
  if (io.json) io.PrintJson({{"golden", package.file}, {"answers", file.answers.size()}, {"artefacts", list}});
  else io.Note("recorded in " + package.file);
  return int{kExitOk};
}

}  // namespace slm::cli
