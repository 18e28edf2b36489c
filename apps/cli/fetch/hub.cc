// The hub's protocol, step by step; see hub.h. Everything a server says is checked before it is used.
#include "fetch/hub.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "fetch/digest.h"
#include "fetch/download.h"
#include "fetch/http.h"
#include "progress.h"
#include "version.h"

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxFiles = 4096;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 50;  // their sum stays within 64 bits

struct RemoteFile {
  std::string name;
  uint64_t bytes = 0;
  std::string etag;  // without quotes; see Download::etag
};

struct Revision {
  std::string commit;  // 40 hex digits
  std::string license;
  std::vector<std::string> files;
};

// The connection to one repository.
struct Hub {
  Io& io;
  HttpClient client;
  const HubSource& source;
  HubOptions options;
  std::string bearer;  // the token, or empty where it must not be sent
};

Error Protocol(const Hub& hub, const std::string& what) {
  return Error(Code::kCorrupt, hub.options.endpoint + ": " + what, "is this the address of a model hub? see --endpoint");
}

TokenGiven Given(const Hub& hub) { return hub.bearer.empty() ? TokenGiven::kNo : TokenGiven::kYes; }

std::string LicenseOf(const nlohmann::json& model) {
  if (const auto card = model.find("cardData"); card != model.end() && card->is_object()) {
    const auto license = card->find("license");
    if (license != card->end() && license->is_string()) return license->get<std::string>();
  }
  if (const auto tags = model.find("tags"); tags != model.end() && tags->is_array())
    for (const auto& tag : *tags)
      if (tag.is_string() && tag.get_ref<const std::string&>().starts_with("license:")) return tag.get<std::string>().substr(8);
  return {};
}

Result<Revision> ReadRevision(Hub& hub) {
  HttpRequest request;
  request.url = hub.options.endpoint + "/api/models/" + UrlEncode(hub.source.repo, Slash::kKeep) + "/revision/" +
                UrlEncode(hub.source.revision, Slash::kEncode) + "?blobs=true";
  request.bearer = hub.bearer;
  SLM_ASSIGN_OR_RETURN(const HttpResponse response, hub.client.SendRetrying(request, hub.options.attempts));
  if (response.status != 200) return StatusError(response, hub.source.repo, Given(hub));
  const auto json = nlohmann::json::parse(response.body, nullptr, false);
  if (!json.is_object()) return Protocol(hub, "the answer about " + hub.source.repo + " is not a JSON object");
  Revision revision;
  const auto sha = json.find("sha");
  if (sha == json.end() || !sha->is_string() || !IsHex(sha->get_ref<const std::string&>(), 40))
    return Protocol(hub, "no commit in the answer about " + hub.source.repo);
  revision.commit = sha->get<std::string>();
  revision.license = LicenseOf(json).substr(0, 200);
  std::replace_if(
      revision.license.begin(), revision.license.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  const auto siblings = json.find("siblings");
  if (siblings == json.end() || !siblings->is_array() || siblings->size() > kMaxFiles)
    return Protocol(hub, "no list of files in the answer about " + hub.source.repo);
  for (const auto& sibling : *siblings) {
    const auto name = sibling.is_object() ? sibling.find("rfilename") : sibling.end();
    if (!sibling.is_object() || name == sibling.end() || !name->is_string())
      return Protocol(hub, "a file without a name in " + hub.source.repo);
    if (!IsSafeRelativePath(name->get_ref<const std::string&>()))
      return Protocol(hub, "the file name '" + name->get<std::string>() + "' leads out of the model's folder; refused");
    if (*name != "slm.json") revision.files.push_back(name->get<std::string>());
  }
  return revision;
}

std::string ResolveUrl(const Hub& hub, const std::string& commit, const std::string& file) {
  return hub.options.endpoint + "/" + UrlEncode(hub.source.repo, Slash::kKeep) + "/resolve/" + commit + "/" + UrlEncode(file, Slash::kKeep);
}

// W/"abc" and "abc" give abc.
std::string PlainEtag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  etag.erase(std::remove(etag.begin(), etag.end(), '"'), etag.end());
  std::transform(etag.begin(), etag.end(), etag.begin(), [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
  return etag;
}

Result<RemoteFile> HeadFile(Hub& hub, const std::string& commit, const std::string& name) {
  HttpRequest request;
  request.url = ResolveUrl(hub, commit, name);
  request.method = HttpMethod::kHead;
  request.bearer = hub.bearer;
  request.headers = {"Accept-Encoding: identity"};  // Content-Length must be the file's
  // The hub's own answer has what is needed; the storage it points to is not asked. A moved repository is followed.
  request.follow = [](const HttpResponse& r) { return r.Header("x-linked-etag").empty() && r.Header("location").starts_with("/"); };
  SLM_ASSIGN_OR_RETURN(const HttpResponse response, hub.client.SendRetrying(request, hub.options.attempts));
  if (response.status >= 400) return StatusError(response, hub.source.repo + "/" + name, Given(hub));
  const std::string repo_commit = response.Header("x-repo-commit");
  if (!repo_commit.empty() && repo_commit != commit)
    return Protocol(hub, name + ": answer is for commit " + repo_commit + ", asked for " + commit);
  RemoteFile file{name, 0, PlainEtag(response.Header("x-linked-etag"))};
  if (file.etag.empty()) file.etag = PlainEtag(response.Header("etag"));
  std::string size = response.Header("x-linked-size");
  if (size.empty() && response.status / 100 == 2) size = response.Header("content-length");
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), file.bytes);
  if (error != std::errc() || end != size.data() + size.size()) return Protocol(hub, name + ": its size is not told");
  if (file.bytes > kMaxFileBytes) return Protocol(hub, name + ": announces " + size + " bytes");
  return file;
}

// Files are kept by checksum while a fetch is unfinished, so a changed file never continues an old part.
std::string PartKey(const RemoteFile& file, const std::string& commit) {
  if (IsHex(file.etag, 64) || IsHex(file.etag, 40)) return file.etag;
  return "u" + Sha256Of(commit + "\n" + file.name + "\n" + std::to_string(file.bytes));
}

// A file of the same content that an earlier fetch left in the store under this name; empty: none.
std::string StoredCopy(const std::string& root, const std::string& name, const RemoteFile& file) {
  const auto model = FindModel(root, name);
  if (!model.ok() || !IsHex(file.etag, 64)) return {};
  for (const StoredFile& stored : model.value().files) {
    const std::string path = ModelFolder(root, name) + "/" + stored.name;
    std::error_code ec;
    if (stored.sha256 != file.etag || fs::file_size(path, ec) != file.bytes || ec) continue;
    if (const auto sum = Sha256OfFile(path); sum.ok() && sum.value() == file.etag) return path;
  }
  return {};
}

uint64_t SizeOrZero(const std::string& path) {
  std::error_code ec;
  const uint64_t size = fs::file_size(path, ec);
  return ec ? 0 : size;
}

// Brings one file to parts/<key>; `base` is what the progress bar has from the files before.
Result<Downloaded> BringFile(Hub& hub, const std::string& name, const std::string& commit, const RemoteFile& file, Progress& progress,
                             uint64_t base) {
  const std::string done = PendingFolder(hub.io.store, name) + "/parts/" + PartKey(file, commit);
  std::error_code ec;
  if (fs::is_regular_file(done, ec) && fs::file_size(done, ec) == file.bytes) {
    SLM_ASSIGN_OR_RETURN(const std::string sha256, Sha256OfFile(done));
    if (!IsHex(file.etag, 64) || sha256 == file.etag) return Downloaded{sha256, true};
    fs::remove(done, ec);
  }
  if (const std::string stored = StoredCopy(hub.io.store, name, file); !stored.empty()) {
    SLM_RETURN_IF_ERROR(PlaceFile(stored, done, Sharing::kLink));
    return Downloaded{file.etag, false};
  }
  Download download;
  download.label = hub.source.repo + "/" + file.name;
  download.url = ResolveUrl(hub, commit, file.name);
  download.bearer = hub.bearer;
  download.bytes = file.bytes;
  download.etag = file.etag;
  download.part = done + ".part";
  download.done = done;
  download.attempts = hub.options.attempts;
  download.progress = [&](uint64_t bytes) { progress.Update(base + bytes); };
  if (PartKey(file, commit) != file.etag) hub.io.Note(file.name + ": the server tells no checksum; only its size is checked");
  return DownloadFile(hub.client, hub.io.cancel, download);
}

Status CheckSpace(Hub& hub, const std::string& name, const std::string& commit, const std::vector<RemoteFile>& files) {
  uint64_t missing = 0;
  for (const RemoteFile& file : files) {
    const std::string done = PendingFolder(hub.io.store, name) + "/parts/" + PartKey(file, commit);
    const uint64_t here = std::max(SizeOrZero(done), SizeOrZero(done + ".part"));
    missing += file.bytes - std::min(here, file.bytes);
  }
  return CheckFreeSpace(hub.io.store, missing);
}

// The token goes to https, or to this machine; never in clear text over a network.
std::string BearerFor(Io& io, const HubOptions& options, const UrlParts& endpoint) {
  if (options.token.empty() || endpoint.scheme == "https" || IsLoopbackHost(endpoint.host)) return options.token;
  io.Note("the token is not sent: " + options.endpoint + " is not https");
  return {};
}

}  // namespace

std::string HubEndpoint(const std::function<const char*(const char*)>& get) {
  const char* set = get("HF_ENDPOINT");
  return set && *set ? set : "https://huggingface.co";
}

Result<std::string> HubToken(const std::function<const char*(const char*)>& get) {
  const auto value = [&](const char* name) {
    const char* text = get(name);
    return std::string(text ? text : "");
  };
  std::string token = value("HF_TOKEN"), from = "HF_TOKEN";
  if (token.empty()) token = value("HUGGING_FACE_HUB_TOKEN"), from = "HUGGING_FACE_HUB_TOKEN";
  if (token.empty()) {
    from = value("HF_TOKEN_PATH");
    if (from.empty() && !value("HF_HOME").empty()) from = value("HF_HOME") + "/token";
    if (from.empty() && !value("HOME").empty()) from = value("HOME") + "/.cache/huggingface/token";
    std::ifstream in(from);
    std::getline(in, token);
  }
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!token.empty() && blank(token.back())) token.pop_back();
  while (!token.empty() && blank(token.front())) token.erase(0, 1);
  const bool printable = std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!printable || token.size() > 4096)
    return Error(Code::kInvalidArgument, from + ": what is there is not a token", "tokens are letters, digits and '_', without blanks");
  return token;
}

Result<Fetched> FetchFromHub(Io& io, const HubSource& source, const std::string& name, const HubOptions& options) {
  SLM_ASSIGN_OR_RETURN(const UrlParts endpoint, ParseHttpUrl(options.endpoint));
  HttpOptions http{options.stall_seconds, "slmkit/" SLM_VERSION};
  Hub hub{io, HttpClient(std::move(http), io.cancel), source, options, BearerFor(io, options, endpoint)};
  SLM_ASSIGN_OR_RETURN(const Revision revision, ReadRevision(hub));
  SLM_ASSIGN_OR_RETURN(const auto chosen, ChooseModelFiles(source, revision.files));
  std::vector<RemoteFile> files;
  uint64_t total = 0;
  for (const std::string& file : chosen) {
    SLM_ASSIGN_OR_RETURN(RemoteFile remote, HeadFile(hub, revision.commit, file));
    total += remote.bytes;
    files.push_back(std::move(remote));
  }
  SLM_RETURN_IF_ERROR(MakeFolder(PendingFolder(io.store, name) + "/parts"));
  SLM_RETURN_IF_ERROR(CheckSpace(hub, name, revision.commit, files));
  if (!revision.license.empty()) io.Note("licence of " + source.repo + ": " + revision.license);

  Fetched fetched;
  fetched.model = {name, "", SourceText(source), revision.commit, revision.license, total, {}};
  const std::string ready = ReadyFolder(io.store, name);
  SLM_RETURN_IF_ERROR(EmptyFolder(ready));
  Progress progress(io, source.repo, total);
  uint64_t base = 0;
  for (const RemoteFile& file : files) {
    SLM_ASSIGN_OR_RETURN(const Downloaded done, BringFile(hub, name, revision.commit, file, progress, base));
    SLM_RETURN_IF_ERROR(
        PlaceFile(PendingFolder(io.store, name) + "/parts/" + PartKey(file, revision.commit), ready + "/" + file.name, Sharing::kLink));
    fetched.model.files.push_back({file.name, file.bytes, done.sha256});
    fetched.resumed = fetched.resumed || done.resumed;
    base += file.bytes;
    progress.Update(base);
  }
  progress.Finish();
  SLM_ASSIGN_OR_RETURN(fetched.model, FinishModel(io.store, fetched.model));
  return fetched;
}

}  // namespace slm::cli
