// slm fetch: brings a model into the local store, by catalogue name, from a hub, or from a local path.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "fetch/catalogue.h"
#include "fetch/digest.h"
#include "fetch/hub.h"
#include "fetch/local.h"
#include "fetch/place.h"
#include "fetch/source.h"
#include "fetch/wheels.h"
#include "progress.h"
#include "store.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

struct FetchOptions {
  std::string source, name, endpoint, python = "python3";
  int stall_seconds = 30, attempts = 5;
  bool list = false, copy = false, force = false;
};

// SHA-256 of a model: of its file when it is one, else of the lines "<sha256>  <name>\n" sorted by name, as sha256sum prints them.
std::string ModelSum(const StoredModel& model) {
  if (model.files.size() == 1) return model.files[0].sha256;
  std::vector<std::string> lines;
  for (const StoredFile& file : model.files) lines.push_back(file.name + '\0' + file.sha256);
  std::sort(lines.begin(), lines.end());
  Digest digest(DigestKind::kSha256);
  for (const std::string& line : lines) {
    const size_t end = line.find('\0');
    digest.Add(line.substr(end + 1) + "  " + line.substr(0, end) + "\n");
  }
  return digest.Hex();
}

void PrintFetched(Io& io, const Fetched& fetched) {
  const StoredModel& model = fetched.model;
  if (!io.json) {
    io.Print(model.path + "\n");
    return;
  }
  ordered_json files = ordered_json::array();
  for (const StoredFile& file : model.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  io.PrintJson({{"name", model.name},
                {"path", model.path},
                {"bytes", model.bytes},
                {"sha256", ModelSum(model)},
                {"resumed", fetched.resumed},
                {"source", model.source},
                {"revision", model.revision},
                {"license", model.license},
                {"files", std::move(files)}});
}

Result<int> PrintCatalogue(Io& io) {
  ordered_json list = ordered_json::array();
  for (const CatalogueEntry& entry : Catalogue()) {
    if (!io.json)
      io.Print(std::string(entry.name) + "\n    " + std::string(entry.summary) + "\n    " + FormatBytes(entry.bytes) +
               ", licence: " + std::string(entry.license) + "\n");
    list.push_back(
        {{"name", entry.name}, {"summary", entry.summary}, {"bytes", entry.bytes}, {"sha256", entry.sha256}, {"license", entry.license}});
  }
  if (io.json) io.PrintJson(list);
  return int{kExitOk};
}

// A catalogue model that is here with the right sum needs no network.
bool HasCatalogueModel(const StoredModel& model, const CatalogueEntry& entry) {
  if (model.files.size() != 1 || model.files[0].sha256 != entry.sha256) return false;
  const auto sum = Sha256OfFile(model.path);
  return sum.ok() && sum.value() == entry.sha256;
}

// Something else of that name is not overwritten unless asked.
Status CheckName(const StoredModel& there, const std::string& source, const FetchOptions& options) {
  if (options.force || there.source == source) return Ok();
  const std::string from = there.source.empty() ? "a folder put there by hand" : there.source;
  return Error(Code::kInvalidArgument, there.name + ": is in the store already, from " + from,
               "choose another name with --name, or --force to replace it");
}

// The lock of `name`, once another fetch or removal of it has ended.
Result<FetchLock> AwaitLock(Io& io, const std::string& name) {
  constexpr std::chrono::milliseconds kPause{100};
  for (bool told = false;; told = true) {
    auto lock = FetchLock::Take(io.store, name);
    if (lock.ok() || lock.error().code() != Code::kUnavailable) return lock;
    if (!told) io.Note(name + ": waiting for another slm fetch or rm of it");
    std::this_thread::sleep_for(kPause);
    if (io.cancelled()) return Error(Code::kCancelled, name + ": interrupted while waiting for another slm fetch or rm of it");
  }
}

Result<Fetched> Fetch(Io& io, const FetchOptions& options) {
  SLM_ASSIGN_OR_RETURN(const FetchSource source, ParseFetchSource(options.source));
  const std::string name = options.name.empty() ? DefaultStoreName(source) : options.name;
  if (!IsStoreName(name)) return Error(Code::kInvalidArgument, "'" + name + "': not a model name", "use letters, digits, '.', '_' and '-'");
  SLM_ASSIGN_OR_RETURN(const FetchLock lock, AwaitLock(io, name));
  const auto there = FindModel(io.store, name);
  if (there.ok()) SLM_RETURN_IF_ERROR(CheckName(there.value(), SourceText(source), options));
  if (const auto* entry = std::get_if<const CatalogueEntry*>(&source)) {
    if (there.ok() && HasCatalogueModel(there.value(), **entry)) {
      io.Note(name + ": is here already, checksum verified");
      return Fetched{there.value(), false};
    }
    return FetchFromCatalogue(io, **entry, name, options.python);
  }
  if (const auto* file = std::get_if<FileSource>(&source))
    return FetchFromFile(io, file->path, name, options.copy ? Sharing::kCopy : Sharing::kLink);
  const auto environment = [](const char* variable) { return std::getenv(variable); };
  HubOptions hub{options.endpoint.empty() ? HubEndpoint(environment) : options.endpoint, "", options.stall_seconds, options.attempts};
  while (hub.endpoint.ends_with("/")) hub.endpoint.pop_back();
  SLM_ASSIGN_OR_RETURN(hub.token, HubToken(environment));
  return FetchFromHub(io, std::get<HubSource>(source), name, hub);
}

}  // namespace

Body DeclareFetch(CLI::App& app, Io& io) {
  auto o = std::make_shared<FetchOptions>();
  app.add_option("SOURCE", o->source, "catalogue name, hf:owner/repo[@revision][:pattern,…], or file:PATH");
  app.add_flag("--list", o->list, "print the catalogue");
  app.add_option("--name", o->name, "name in the store (default: from SOURCE)");
  app.add_flag("--force", o->force, "replace a different model of that name");
  app.add_option("--endpoint", o->endpoint, "hf: address of the hub (default: HF_ENDPOINT, or the public hub)");
  app.add_option("--stall", o->stall_seconds, "hf: seconds without a byte before a connection is given up")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app.add_option("--attempts", o->attempts, "hf: tries in a row that may fail")->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--python", o->python, "catalogue: the Python interpreter that has pip")->capture_default_str();
  app.add_flag("--copy", o->copy, "file: always copy, never share the file's bytes");
  app.footer(
      "The token for hf: comes from HF_TOKEN or the hub client's token file and goes to the endpoint only.\n"
      "An interrupted fetch goes on where it stopped when the same command is given again; a second one of the same name waits.\n\n"
      "Examples:\n  slm fetch smollm2-135m-instruct\n  slm fetch hf:Qwen/Qwen3-0.6B\n  slm fetch hf:owner/repo-GGUF@main:*Q4_K_M.gguf\n"
      "  slm fetch file:model.gguf --name mine");
  return [o, &io]() -> Result<int> {
    if (o->list) return PrintCatalogue(io);
    if (o->source.empty())
      return Error(Code::kInvalidArgument, "SOURCE is required", "slm fetch --list shows the catalogue, slm fetch -h the forms");
    SLM_ASSIGN_OR_RETURN(const Fetched fetched, Fetch(io, *o));
    PrintFetched(io, fetched);
    return int{kExitOk};
  };
}

}  // namespace slm::cli
