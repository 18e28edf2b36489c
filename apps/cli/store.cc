// The model store on disk; see store.h. std::filesystem is used with error codes only, so nothing throws here but JSON parsing,
// which is asked not to.
#include "store.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "fetch/catalogue.h"
#include "fetch/place.h"

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kManifest = "slm.json";

Error IoError(const std::string& path, const std::error_code& code) {
  return Error(Code::kIo, path + ": " + code.message(), "check the folder's permissions and free space (SLM_HOME moves the store)");
}

bool EndsWithGguf(const fs::path& path) { return path.extension() == ".gguf"; }

// What a reader opens: a folder with a config is a model folder; else a single GGUF or the first shard of one.
std::string OpenablePath(const fs::path& folder) {
  std::error_code ec;
  std::vector<fs::path> ggufs;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name == "genai_config.json" || name == "package.json") return folder.string();
    if (EndsWithGguf(entry.path())) ggufs.push_back(entry.path());
  }
  if (ggufs.empty()) return folder.string();
  std::sort(ggufs.begin(), ggufs.end());
  const bool shards = ggufs[0].filename().string().find("-00001-of-") != std::string::npos;
  return ggufs.size() == 1 || shards ? ggufs[0].string() : folder.string();
}

uint64_t FolderBytes(const fs::path& folder) {
  std::error_code ec;
  uint64_t bytes = 0;
  for (fs::recursive_directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code file_ec;
    if (it->is_regular_file(file_ec) && !it->is_symlink(file_ec)) bytes += it->file_size(file_ec);
  }
  return bytes;
}

Status ReadManifest(const fs::path& file, StoredModel& model) {
  std::ifstream in(file);
  if (!in) return Ok();  // a folder the user put here by hand
  const auto json = nlohmann::json::parse(in, nullptr, false);
  const Error bad(Code::kCorrupt, file.string() + ": not a model description of this store",
                  "slm rm " + model.name + " and fetch it again");
  if (!json.is_object()) return bad;
  const auto text = [](const nlohmann::json& at, const char* key) {
    const auto it = at.find(key);
    return it != at.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  model.source = text(json, "source");
  model.revision = text(json, "revision");
  model.license = text(json, "license");
  const auto files = json.find("files");
  if (files == json.end()) return Ok();
  if (!files->is_array()) return bad;
  for (const auto& entry : *files) {
    if (!entry.is_object()) return bad;
    StoredFile file_entry{text(entry, "name"), 0, text(entry, "sha256")};
    const auto bytes = entry.find("bytes");
    if (bytes == entry.end() || !bytes->is_number_unsigned() || !IsSafeRelativePath(file_entry.name)) return bad;
    file_entry.bytes = bytes->get<uint64_t>();
    model.files.push_back(std::move(file_entry));
  }
  return Ok();
}

std::vector<std::string> KnownNames(const std::string& root) {
  std::vector<std::string> known;
  if (auto models = ListModels(root); models.ok())
    for (const auto& model : models.value()) known.push_back(model.name);
  return known;
}

Error MissingModel(const std::string& root, const std::string& model) {
  const std::string message = model + ": no such file, folder or model in the store";
  const auto stored = Suggest(model, KnownNames(root));
  if (!stored.empty()) return Error(Code::kNotFound, message, DidYouMean(stored));
  const auto catalogue = Suggest(model, CatalogueNames());
  if (!catalogue.empty()) return Error(Code::kNotFound, message, "slm fetch " + catalogue[0] + " brings it here");
  return Error(Code::kNotFound, message, "slm models lists what is there, slm fetch brings more");
}

}  // namespace

std::string StoreRoot(const std::function<const char*(const char*)>& get) {
  const auto value = [&](const char* name) {
    const char* text = get(name);
    return std::string(text ? text : "");
  };
  if (const std::string home = value("SLM_HOME"); !home.empty()) return home;
  // The XDG specification says that a relative path there is to be ignored.
  if (const std::string data = value("XDG_DATA_HOME"); data.starts_with("/")) return data + "/slmkit";
  if (const std::string home = value("HOME"); !home.empty()) return home + "/.local/share/slmkit";
  return "slmkit-store";
}

bool IsStoreName(const std::string& name) {
  if (name.empty() || name.size() > 128 || name[0] == '.' || name[0] == '-') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

bool IsSafeRelativePath(const std::string& path) {
  if (path.empty() || path.size() > 1024) return false;
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

std::string ModelFolder(const std::string& root, const std::string& name) { return root + "/models/" + name; }
std::string PendingFolder(const std::string& root, const std::string& name) { return root + "/tmp/" + name; }
std::string ReadyFolder(const std::string& root, const std::string& name) { return PendingFolder(root, name) + "/ready"; }

Result<StoredModel> FindModel(const std::string& root, const std::string& name) {
  const fs::path folder = ModelFolder(root, name);
  std::error_code ec;
  if (!IsStoreName(name) || !fs::is_directory(folder, ec))
    return Error(Code::kNotFound, name + ": no such model in the store", "slm models lists what is there");
  StoredModel model;
  model.name = name;
  SLM_RETURN_IF_ERROR(ReadManifest(folder / kManifest, model));
  model.path = OpenablePath(folder);
  if (model.files.empty()) model.bytes = FolderBytes(folder);
  for (const auto& file : model.files) model.bytes += file.bytes;
  return model;
}

Result<std::vector<StoredModel>> ListModels(const std::string& root) {
  const fs::path folder = fs::path(root) / "models";
  std::error_code ec;
  std::vector<StoredModel> models;
  if (!fs::exists(folder, ec)) return models;
  fs::directory_iterator it(folder, ec);
  if (ec) return IoError(folder.string(), ec);
  for (const auto& entry : it) {
    const std::string name = entry.path().filename().string();
    std::error_code entry_ec;
    if (!entry.is_directory(entry_ec) || !IsStoreName(name)) continue;
    auto found = FindModel(root, name);
    if (!found.ok()) {
      StoredModel damaged;
      damaged.name = name;
      damaged.path = OpenablePath(entry.path());
      damaged.bytes = FolderBytes(entry.path());
      damaged.damage = found.error();
      found = std::move(damaged);
    }
    models.push_back(found.Take());
  }
  std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return models;
}

Status WriteManifest(const std::string& folder, const StoredModel& model) {
  nlohmann::ordered_json json = {
      {"source", model.source}, {"revision", model.revision}, {"license", model.license}, {"files", nlohmann::json::array()}};
  for (const auto& file : model.files) json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  const std::string path = folder + "/" + kManifest;
  std::ofstream out(path);
  out << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  out.close();
  if (!out) return Error(Code::kIo, path + ": cannot be written", "check the store's permissions and free space");
  return Ok();
}

Status PublishModel(const std::string& root, const std::string& name) {
  const std::string ready = ReadyFolder(root, name), folder = ModelFolder(root, name);
  const std::string old = PendingFolder(root, ".old-" + name);
  std::error_code ec;
  fs::create_directories(fs::path(folder).parent_path(), ec);
  if (ec) return IoError(folder, ec);
  fs::remove_all(old, ec);
  const bool replaces = fs::exists(fs::symlink_status(folder, ec));
  if (replaces) {  // a folder cannot be renamed over a full one: the old one steps aside first
    fs::rename(folder, old, ec);
    if (ec) return IoError(folder, ec);
  }
  fs::rename(ready, folder, ec);
  if (ec) {
    const Error error = IoError(folder, ec);
    if (replaces) fs::rename(old, folder, ec);
    return error;
  }
  fs::remove_all(old, ec);
  fs::remove_all(PendingFolder(root, name), ec);
  return Ok();
}

Result<uint64_t> RemoveModel(const std::string& root, const std::string& name) {
  if (!IsStoreName(name))
    return Error(Code::kInvalidArgument, "'" + name + "': not a model name",
                 "names are letters, digits, '.', '_' and '-'; slm models lists them");
  const fs::path folder = ModelFolder(root, name), pending = PendingFolder(root, name);
  std::error_code ec;
  if (!fs::exists(fs::symlink_status(folder, ec)) && !fs::is_directory(fs::symlink_status(pending, ec))) {
    const auto close = Suggest(name, KnownNames(root));
    return Error(Code::kNotFound, name + ": no such model in the store",
                 close.empty() ? "slm models lists what is there" : DidYouMean(close));
  }
  SLM_ASSIGN_OR_RETURN(const FetchLock lock, FetchLock::Take(root, name));
  const auto kind = fs::symlink_status(folder, ec).type();  // as it is now that nobody else works on it
  if (kind != fs::file_type::not_found && kind != fs::file_type::directory)
    return Error(Code::kInvalidArgument, folder.string() + ": not a folder of this store (a symbolic link?)", "remove it by hand");
  uint64_t freed = 0;
  if (fs::is_directory(fs::symlink_status(pending, ec))) {
    freed += FolderBytes(pending);
    fs::remove_all(pending, ec);
    if (ec) return IoError(pending.string(), ec);
  }
  if (kind == fs::file_type::not_found) return freed;
  freed += FolderBytes(folder);
  const fs::path doomed = PendingFolder(root, ".old-" + name);
  fs::remove_all(doomed, ec);
  fs::rename(folder, doomed, ec);  // gone at once, even if deleting is slow or stopped
  if (ec) return IoError(folder.string(), ec);
  fs::remove_all(doomed, ec);
  if (ec) return IoError(doomed.string(), ec);
  return freed;
}

Result<std::string> ResolveModel(const Io& io, const std::string& model) {
  std::error_code ec;
  if (model.empty()) return Error(Code::kInvalidArgument, "MODEL is empty", "give a path or a name from slm models");
  if (fs::exists(model, ec)) return model;
  const size_t slash = model.find('/');
  const std::string name = model.substr(0, slash);
  if (!IsStoreName(name)) return MissingModel(io.store, model);
  if (slash == std::string::npos) {
    if (!fs::is_directory(ModelFolder(io.store, name), ec)) return MissingModel(io.store, model);
    return OpenablePath(ModelFolder(io.store, name));
  }
  const std::string inside = model.substr(slash + 1);
  const std::string path = ModelFolder(io.store, name) + "/" + inside;
  if (!IsSafeRelativePath(inside) || !fs::exists(path, ec)) return MissingModel(io.store, model);
  return path;
}

}  // namespace slm::cli
