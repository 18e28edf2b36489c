// slm verify: golden answers of a package recorded once, then every artefact of it judged against them, for a build server.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "checks.h"
#include "model/json.h"
#include "open_model.h"
#include "output_file.h"
#include "prompt.h"
#include "read_input.h"
#include "store.h"
#include "verb.h"
#include "verify/golden_file.h"
#include "version.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

struct VerifyOptions {
  std::string package, golden, base, prompts, memory;
  bool record = false, no_latency = false, no_skip = false;
  int n_steps = 16, n_top = 16, n_threads = 0;
  std::optional<double> max_kld;
  double slack = 0.25;
};

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
constexpr int kPasses = 3;              // over the answers for a time

bool IsModel(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) return (path.extension() == ".gguf" && !IsLaterShard(path.string())) || path.extension() == ".slm";
  return fs::exists(path / "genai_config.json", failed) || fs::exists(path / "config.json", failed);
}

// Where the golden answers of `package` lie: in a folder of artefacts, else beside the model.
struct Place {
  std::string file, folder;         // the file, and what its paths are relative to
  bool one_model = false;           // named by itself
  std::vector<std::string> models;  // relative
};
Result<Place> PlaceOfPackage(const VerifyOptions& o, const Io& io) {
  SLM_ASSIGN_OR_RETURN(std::string package, ResolveModel(io, o.package));
  while (package.size() > 1 && package.ends_with('/')) package.pop_back();
  const fs::path path(package);
  std::error_code failed;
  Place p;
  if (IsModel(path) || !fs::is_directory(path, failed)) {
    p.folder = path.has_parent_path() ? path.parent_path().string() : ".";
    p.models = {path.filename().string()};
    p.one_model = true;
    p.file = package + ".golden.json";
  } else {
    p.folder = package;
    p.file = package + "/golden.json";
    for (fs::directory_iterator it(path, failed), end; !failed && it != end; it.increment(failed))
      if (IsModel(it->path())) p.models.push_back(it->path().filename().string());
    if (failed) return Error(Code::kIo, package + ": " + failed.message(), "check the folder");
    std::sort(p.models.begin(), p.models.end());
  }
  if (!o.golden.empty()) p.file = o.golden;
  return p;
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
      std::vector<Message> messages;
      const auto list = j.value().find("messages");
      if (list == j.value().end() || !list->is_array() || list->empty()) return bad;
      for (const auto& message : *list) {
        if (!message.is_object() || !message.contains("role") || !message.contains("content") || !message["role"].is_string() ||
            !message["content"].is_string())
          return bad;
        messages.push_back({message["role"], message["content"]});
      }
      SLM_ASSIGN_OR_RETURN(ids, EncodeChat(m, messages));
    }
    if (ids.empty()) return bad;
    prompts.push_back(std::move(ids));
  }
  if (prompts.empty()) return Error(Code::kInvalidArgument, path + ": no prompts", "write an object a line");
  return prompts;
}

OpenOptions OptionsFor(const VerifyOptions& o, const std::string& path, size_t context) {
  OpenOptions open;
  open.model = path;
  open.n_threads = o.n_threads;
  open.memory = o.memory;
  open.context = static_cast<int>(context);
  open.context_for = "the prompts and answers";
  open.context_from = o.record ? "--tokens or --prompts" : "the golden answers";
  return open;
}

// Errors name the option's place when the prompts do not fit.
Result<std::vector<eval::GoldenAnswer>> Record(Io& io, const VerifyOptions& o, GoldenFile* file) {
  constexpr int kPromptRoom = 1024;  // tokens, for the user's prompts
  OpenOptions open = OptionsFor(o, file->reference, static_cast<size_t>(o.n_steps + kPromptRoom));
  open.compute = file->compute;
  open.kv = "f32";
  open.context_least = o.n_steps + 1;
  SLM_ASSIGN_OR_RETURN(const OpenedModel m, OpenModel(io, open));
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

struct Judged {
  std::string verdict = "passed", reason;  // passed, failed, skipped
  eval::GoldenMatch match;
  double p95_ms = 0;
  std::string device, backend, isa;
  int n_threads = 0;
  double same_top() const { return match.steps > 0 ? static_cast<double>(match.same_top) / static_cast<double>(match.steps) : 0; }
};

size_t ContextOf(const std::vector<eval::GoldenAnswer>& answers) {
  size_t most = 0;
  for (const auto& a : answers) most = std::max(most, a.prompt.size() + a.answer.size());
  return most;
}

// Runs the answers until a pass is at most `enough_ms` slow at its 95th percentile, at most kPasses times; keeps the fastest.
Result<Judged> RunArtefact(Io& io, const VerifyOptions& o, const std::string& path, const GoldenFile& file, double enough_ms) {
  SLM_ASSIGN_OR_RETURN(const OpenedModel m, OpenModel(io, OptionsFor(o, path, ContextOf(file.answers))));
  const auto& c = m.backend->capabilities();
  if (c.vocab_size != file.vocab_size)
    return Error(Code::kInvalidArgument,
                 fmt::format("{} has a vocabulary of {} tokens, the answers one of {}", path, c.vocab_size, file.vocab_size),
                 "record the package again");
  Judged j;
  j.device = c.device;
  j.backend = c.backend;
  j.isa = c.isa;
  j.n_threads = c.n_threads;
  const auto go_on = [&io] { return !io.cancelled(); };
  SLM_ASSIGN_OR_RETURN(j.match, eval::CompareGolden(*m.backend, std::span(file.answers).first(1), go_on));  // warm-up
  for (int pass = 0; pass < kPasses; ++pass) {
    SLM_ASSIGN_OR_RETURN(j.match, eval::CompareGolden(*m.backend, file.answers, go_on));
    const double ms = static_cast<double>(eval::Percentile(j.match.step_ns, 0.95)) / 1e6;
    j.p95_ms = pass == 0 ? ms : std::min(j.p95_ms, ms);
    if (j.p95_ms <= enough_ms) break;
  }
  return j;
}

Result<int> RecordPackage(Io& io, const VerifyOptions& o, const Place& place) {
  if (place.models.empty())
    return Error(Code::kNotFound, place.folder + ": no model in it", "a package holds GGUF files, .slm files or model folders");
  GoldenFile file;
  file.program = "slm " SLM_VERSION;
  file.reference = place.folder + "/" + place.models[0];
  if (!o.base.empty()) {
    SLM_ASSIGN_OR_RETURN(file.reference, ResolveModel(io, o.base));
  }
  file.compute = "f32";
  for (const std::string& m : place.models)
    SLM_RETURN_IF_ERROR(RefuseModelFile(place.file, place.folder + "/" + m, Neighbours::kSameExtension));
  SLM_RETURN_IF_ERROR(RefuseModelFile(place.file, file.reference, Neighbours::kSameExtension));
  SLM_RETURN_IF_ERROR(RefuseInput(place.file, o.prompts));
  SLM_ASSIGN_OR_RETURN(file.answers, Record(io, o, &file));
  file.reference = o.base.empty() ? place.models[0] : fs::path(file.reference).filename().string();
  ordered_json list = ordered_json::array();
  for (const std::string& name : place.models) {
    const std::string path = place.folder + "/" + name;
    GoldenArtefact a;
    SLM_ASSIGN_OR_RETURN(const Identity id, IdentityOf(path));
    auto ran = RunArtefact(io, o, path, file, 0);
    if (!ran.ok()) return ran.error().At(name);
    const Judged& j = ran.value();
    a = {.path = name,
         .sha256 = id.sha256,
         .bytes = id.bytes,
         .max_kld = o.max_kld ? *o.max_kld : std::max(2 * j.match.mean_kld, kLeastKldBudget),
         .least_same_top = std::max(0.0, j.same_top() - kSameTopSlack),
         .kld = j.match.mean_kld,
         .same_top = j.same_top(),
         .p95_ms = j.p95_ms,
         .cpu = DetectCpu().brand,
         .isa = j.isa,
         .n_threads = j.n_threads};
    if (o.max_kld && j.match.mean_kld > *o.max_kld)
      return Error(Code::kLimit,
                   fmt::format("{}: KLD {:.6f} is more than --max-kld {}; nothing was recorded", name, j.match.mean_kld, *o.max_kld),
                   "raise the budget, or make the artefact anew with less loss");
    if (!io.json)
      io.Print(fmt::format("{}: KLD {:.6f} from {} ({}), at most {:.6f}; same top token {:.1f} %; 95 % of the steps in {:.2f} ms\n", name,
                           a.kld, file.reference, file.compute, a.max_kld, 100 * a.same_top, a.p95_ms));
    list.push_back(
        {{"path", a.path}, {"sha256", a.sha256}, {"kld", a.kld}, {"max_kld", a.max_kld}, {"same_top", a.same_top}, {"p95_ms", a.p95_ms}});
    file.artefacts.push_back(std::move(a));
  }
  SLM_RETURN_IF_ERROR(WriteTextFile(place.file, GoldenText(file), io));
  if (io.json) io.PrintJson({{"golden", place.file}, {"answers", file.answers.size()}, {"artefacts", list}});
  else io.Note("recorded in " + place.file);
  return int{kExitOk};
}

// The verdict on one artefact; an error only when the user interrupts.
Result<Judged> Judge(Io& io, const VerifyOptions& o, const std::string& folder, const GoldenFile& file, const GoldenArtefact& a) {
  const std::string path = folder + "/" + a.path;
  const auto failed = [](Judged j, std::string why) {
    j.verdict = "failed";
    j.reason = std::move(why);
    return j;
  };
  const auto id = IdentityOf(path);
  if (io.cancelled()) return Error(Code::kCancelled, "interrupted");
  if (!id.ok()) return failed({}, id.error().message());
  if (id.value().sha256 != a.sha256)
    return failed({},
                  fmt::format("other bytes than recorded: sha256 {}…, not {}…", id.value().sha256.substr(0, 12), a.sha256.substr(0, 12)));
  const double limit_ms = a.p95_ms * (1 + o.slack);
  auto ran = RunArtefact(io, o, path, file, o.no_latency ? 1e18 : limit_ms);
  if (!ran.ok()) {
    const Error& e = ran.error();
    if (e.code() == Code::kCancelled) return e;
    Judged j = failed({}, e.message());
    if (e.code() == Code::kUnsupported || e.code() == Code::kUnavailable) j.verdict = "skipped";
    return j;
  }
  Judged j = ran.Take();
  if (j.match.mean_kld > a.max_kld) return failed(j, fmt::format("KLD {:.6f} is more than {:.6f}", j.match.mean_kld, a.max_kld));
  if (j.same_top() < a.least_same_top)
    return failed(j, fmt::format("same top token {:.1f} %, less than {:.1f} %", 100 * j.same_top(), 100 * a.least_same_top));
  if (o.no_latency) return j;
  if (DetectCpu().brand != a.cpu || j.isa != a.isa || j.n_threads != a.n_threads) {
    j.reason = fmt::format("time not judged: recorded on {}, {}, {} threads", a.cpu, a.isa, a.n_threads);
    return j;
  }
  if (j.p95_ms > limit_ms)
    return failed(j, fmt::format("95 % of the steps in {:.2f} ms, more than {:.2f} ms ({:.2f} recorded, {:.0f} % allowed)", j.p95_ms,
                                 limit_ms, a.p95_ms, 100 * o.slack));
  return j;
}

ordered_json ToJson(const GoldenArtefact& a, const Judged& j) {
  ordered_json row = {
      {"path", a.path}, {"verdict", j.verdict}, {"reason", j.reason.empty() ? ordered_json(nullptr) : ordered_json(j.reason)}};
  if (j.match.steps == 0) return row;
  row.update({{"device", j.device},
              {"backend", j.backend},
              {"isa", j.isa},
              {"steps", j.match.steps},
              {"kld", j.match.mean_kld},
              {"largest_kld", j.match.max_kld},
              {"max_kld", a.max_kld},
              {"same_top", j.same_top()},
              {"p95_ms", j.p95_ms},
              {"recorded_p95_ms", a.p95_ms}});
  return row;
}

// Those to judge: of a model that was named its own; of a folder all, and its models that nobody recorded (without a sum).
Result<std::vector<GoldenArtefact>> ArtefactsOf(const Place& place, const GoldenFile& file) {
  std::vector<GoldenArtefact> out;
  for (const GoldenArtefact& a : file.artefacts)
    if (!place.one_model || a.path == place.models[0]) out.push_back(a);
  if (out.empty())
    return Error(Code::kNotFound, place.file + ": no golden answers of " + place.models[0] + " in it",
                 "record them: slm verify MODEL --record");
  for (const std::string& m : place.models)
    if (std::none_of(out.begin(), out.end(), [&](const GoldenArtefact& a) { return a.path == m; })) {
      out.emplace_back();
      out.back().path = m;
    }
  return out;
}

Result<int> VerifyPackage(Io& io, const VerifyOptions& o, const Place& place) {
  std::error_code unknown;
  if (!fs::exists(place.file, unknown))
    return Error(Code::kNotFound, place.file + ": no golden answers", "record them once: slm verify " + o.package + " --record");
  SLM_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(io, place.file));
  auto parsed = ParseGolden(text);
  if (!parsed.ok()) return parsed.error().At(place.file);
  const GoldenFile& file = parsed.value();
  SLM_ASSIGN_OR_RETURN(const std::vector<GoldenArtefact> artefacts, ArtefactsOf(place, file));
  ordered_json list = ordered_json::array();
  int n_failed = 0, n_skipped = 0;
  for (const GoldenArtefact& a : artefacts) {
    Judged j{.verdict = "failed",
             .reason = "was not recorded: slm verify --record",
             .match = {},
             .p95_ms = 0,
             .device = "",
             .backend = "",
             .isa = "",
             .n_threads = 0};
    if (!a.sha256.empty()) {
      SLM_ASSIGN_OR_RETURN(j, Judge(io, o, place.folder, file, a));
    }
    n_failed += j.verdict == "failed" ? 1 : 0;
    n_skipped += j.verdict == "skipped" ? 1 : 0;
    list.push_back(ToJson(a, j));
    if (io.json) continue;
    std::string line = fmt::format("{:<8} {}", j.verdict, a.path);
    if (j.match.steps > 0)
      line += fmt::format(": {} steps, KLD {:.6f}, same top token {:.1f} %, 95 % of the steps in {:.2f} ms", j.match.steps,
                          j.match.mean_kld, 100 * j.same_top(), j.p95_ms);
    io.Print(line + (j.reason.empty() ? "" : "; " + j.reason) + "\n");
  }
  const bool nothing = n_skipped == static_cast<int>(artefacts.size());
  const bool passed = n_failed == 0 && !nothing && (n_skipped == 0 || !o.no_skip);
  if (io.json)
    io.PrintJson({{"passed", passed}, {"failed", n_failed}, {"skipped", n_skipped}, {"reference", file.reference}, {"artefacts", list}});
  else if (nothing) io.Note("no artefact could run on this machine");
  return passed ? int{kExitOk} : int{kExitGate};
}

Result<int> Run(Io& io, const VerifyOptions& o) {
  if (!o.record && (!o.base.empty() || !o.prompts.empty() || o.max_kld))
    return Error(Code::kInvalidArgument, "--base, --prompts and --max-kld are of --record",
                 "leave them out: they are in the golden answers");
  SLM_ASSIGN_OR_RETURN(const Place place, PlaceOfPackage(o, io));
  return o.record ? RecordPackage(io, o, place) : VerifyPackage(io, o, place);
}

}  // namespace

Body DeclareVerify(CLI::App& app, Io& io) {
  auto o = std::make_shared<VerifyOptions>();
  app.add_option("PACKAGE", o->package, "model, or folder of models that were made from one")->required();
  app.add_flag("--record", o->record, "write the golden answers instead of comparing with them");
  app.add_option("--golden", o->golden,
                 "file of the golden answers (default: golden.json in the folder, MODEL.golden.json beside a model)");
  app.add_option("--base", o->base, "with --record: model that gives the answers, in f32 (default: the package's first model)");
  app.add_option("--prompts", o->prompts, "with --record: lines of {\"text\"} or {\"messages\"} (default: built-in ones)");
  app.add_option("--tokens", o->n_steps, "with --record: tokens of each answer")->check(CLI::Range(2, 4096))->capture_default_str();
  app.add_option("--top", o->n_top, "with --record: most probable tokens that are kept of each step")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--max-kld", o->max_kld, "with --record: most mean KLD, nats a step (default: twice what is measured, at least 0.002)")
      ->check(NumberFromZero());
  app.add_option("--latency-slack", o->slack, "share by which the 95th percentile of a step may be slower than recorded")
      ->check(NumberFromZero())
      ->capture_default_str();
  app.add_flag("--no-latency", o->no_latency, "do not judge times");
  app.add_flag("--no-skip", o->no_skip, "an artefact that this machine cannot run is a failure");
  AddThreads(app, o->n_threads);
  AddMemory(app, o->memory);
  app.footer(
      "Exit code 3 when an artefact fails. Times are judged only on the CPU, kernels and threads that they were recorded with.\n\n"
      "Example:\n  slm verify release/ --record --base model-f16.gguf\n  slm verify release/");
  return [o, &io]() -> Result<int> { return Run(io, *o); };
}

}  // namespace slm::cli
