// The local model store: one folder per model under a root, and the way a MODEL argument becomes a path.
//
// Layout: <root>/models/<name>/ holds the model's files and slm.json (source, files with bytes and sha256, licence).
// <root>/tmp/<name>/ holds a fetch in progress, so that it can be resumed; its finished folder is renamed into place.
// A name is one path component of [A-Za-z0-9._-] with no leading dot or dash, so it can point at nothing outside.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

struct StoredFile {
  std::string name;  // relative to the model's folder, '/' between components
  uint64_t bytes = 0;
  std::string sha256;  // 64 lower-case hex digits
};

struct StoredModel {
  std::string name;
  std::string path;               // absolute: what a reader opens, a file or the folder
  std::string source;             // what slm fetch was asked for; empty for a folder without slm.json
  std::string revision;           // package version or commit that was fetched; may be empty
  std::string license;            // as its publisher names it; empty when not known
  uint64_t bytes = 0;             // all files together
  std::vector<StoredFile> files;  // empty for a folder without slm.json
  // ListModels only: slm.json is not what this tool writes; name, path and bytes are right, the rest is empty.
  std::optional<Error> damage = std::nullopt;
};

// $SLM_HOME, else $XDG_DATA_HOME/slmkit, else $HOME/.local/share/slmkit. `get` is getenv or a test's stand-in.
std::string StoreRoot(const std::function<const char*(const char*)>& get);

// Is `name` a store name as described above, at most 128 bytes?
bool IsStoreName(const std::string& name);

// Is `path` relative, free of "..", empty and "." components, backslashes and control characters? Names that come from a
// server or an archive must pass before they are joined to a folder.
bool IsSafeRelativePath(const std::string& path);

std::string ModelFolder(const std::string& root, const std::string& name);    // <root>/models/<name>
std::string PendingFolder(const std::string& root, const std::string& name);  // <root>/tmp/<name>
std::string ReadyFolder(const std::string& root, const std::string& name);    // <root>/tmp/<name>/ready

// The models under `root`, by name; a damaged one is listed as such. A store that does not exist yet is empty. Errors: kIo.
Result<std::vector<StoredModel>> ListModels(const std::string& root);

// One model. Errors: kNotFound; kCorrupt when slm.json is not what this tool writes.
Result<StoredModel> FindModel(const std::string& root, const std::string& name);

// Writes slm.json into `folder` from source, license and files.
Status WriteManifest(const std::string& folder, const StoredModel& model);

// Moves the finished ReadyFolder to ModelFolder, replacing an older one of that name, and clears PendingFolder. Errors: kIo.
Status PublishModel(const std::string& root, const std::string& name);

// Deletes a model's folder (and what is left of an unfinished fetch of it). Never follows a symbolic link.
// Errors: kInvalidArgument for a name that is not one, kNotFound, kIo, kUnavailable while a fetch of that name runs.
// Returns the bytes freed.
Result<uint64_t> RemoveModel(const std::string& root, const std::string& name);

// Path of a MODEL argument: an existing path as it is; else a model of the store, "NAME" or "NAME/FILE".
// For a stored model whose weights are one GGUF (or the first of its shards) that is the file, else the folder.
// Errors: kNotFound with what to type instead.
Result<std::string> ResolveModel(const Io& io, const std::string& model);

}  // namespace slm::cli
