// Parsing of fetch sources and the choice of files. Pure text, no network.
#include "fetch/source.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "store.h"
#include "verb.h"

namespace slm::cli {
namespace {

constexpr const char* kHubShape = "write hf:owner/repo, hf:owner/repo@revision or hf:owner/repo:*Q4_K_M.gguf";

// The hub's own rule for the two halves of a repository's name.
bool IsRepoPart(const std::string& part) {
  return IsStoreName(part) && part.size() <= 96 && part.find("..") == std::string::npos && part.find("--") == std::string::npos;
}

bool IsRevision(const std::string& revision) {
  return IsSafeRelativePath(revision) && revision.size() <= 256 && revision.find_first_of(" ?#:") == std::string::npos;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<FetchSource> ParseHub(const std::string& text) {
  HubSource hub;
  std::string rest = text;
  const size_t colon = rest.find(':');
  if (colon != std::string::npos) {
    hub.patterns = Split(rest.substr(colon + 1), ',');
    rest.resize(colon);
    if (hub.patterns.empty()) return Error(Code::kInvalidArgument, "hf:" + text + ": no pattern after ':'", kHubShape);
  }
  const size_t at = rest.find('@');
  if (at != std::string::npos) {
    hub.revision = rest.substr(at + 1);
    rest.resize(at);
    if (!IsRevision(hub.revision)) return Error(Code::kInvalidArgument, "hf:" + text + ": not a revision after '@'", kHubShape);
  }
  hub.repo = rest;
  const size_t slash = rest.find('/');
  const bool good = slash == std::string::npos ? IsRepoPart(rest) : IsRepoPart(rest.substr(0, slash)) && IsRepoPart(rest.substr(slash + 1));
  if (!good) return Error(Code::kInvalidArgument, "hf:" + text + ": not a repository name", kHubShape);
  return FetchSource(hub);
}

// The shard name without its number: "model-00002-of-00005.gguf" gives "model-*-of-00005.gguf"; other names as they are.
std::string ShardFamily(const std::string& name) {
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos || of < 6 || name[of - 6] != '-') return name;
  const std::string number = name.substr(of - 5, 5);
  const bool digits = std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? name.substr(0, of - 5) + "*" + name.substr(of) : name;
}

}  // namespace

Result<FetchSource> ParseFetchSource(const std::string& text) {
  if (text.starts_with("hf:")) return ParseHub(text.substr(3));
  if (text.starts_with("file:")) {
    std::string path = text.substr(5);
    if (path.starts_with("///")) path.erase(0, 2);  // file:///abs/path
    if (path.empty()) return Error(Code::kInvalidArgument, "file: without a path", "write file:PATH of a GGUF file or a model folder");
    return FetchSource(FileSource{path});
  }
  if (const CatalogueEntry* entry = FindCatalogueEntry(text)) return FetchSource(entry);
  const std::string hint = DidYouMean(Suggest(text, CatalogueNames()));
  const std::string forms = text.find('/') != std::string::npos ? "hf:" + text + " asks the hub, file:" + text + " takes a local file"
                                                                : "slm fetch --list shows the names";
  return Error(Code::kNotFound, text + ": not in the catalogue", hint.empty() ? forms : hint);
}

std::string DefaultStoreName(const FetchSource& source) {
  if (const auto* entry = std::get_if<const CatalogueEntry*>(&source)) return std::string((*entry)->name);
  std::string name;
  if (const auto* hub = std::get_if<HubSource>(&source)) {
    name = hub->repo;
    if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
    return name;
  }
  std::filesystem::path path = std::get<FileSource>(source).path;
  if (path.filename().empty()) path = path.parent_path();  // "folder/"
  if (path.filename() == "." || path.filename() == "..") {
    std::error_code ec;
    path = std::filesystem::weakly_canonical(path, ec);
  }
  name = path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
  for (char& c : name)
    if (!IsStoreName(std::string("a") + c)) c = '-';
  name.erase(0, std::min(name.find_first_not_of(".-"), name.size()));
  name.resize(std::min<size_t>(name.size(), 128));
  return name.empty() ? "model" : name;
}

std::string SourceText(const FetchSource& source) {
  if (const auto* entry = std::get_if<const CatalogueEntry*>(&source)) return std::string((*entry)->name);
  if (const auto* file = std::get_if<FileSource>(&source)) {
    std::error_code ec;
    return "file:" + std::filesystem::weakly_canonical(std::filesystem::absolute(file->path, ec), ec).string();
  }
  const auto& hub = std::get<HubSource>(source);
  std::string text = "hf:" + hub.repo + (hub.revision == "main" ? "" : "@" + hub.revision);
  for (size_t i = 0; i < hub.patterns.size(); ++i) text += (i ? "," : ":") + hub.patterns[i];
  return text;
}

bool MatchesAny(const std::string& path, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return fnmatch(p.c_str(), path.c_str(), 0) == 0; });
}

Result<std::vector<std::string>> ChooseModelFiles(const HubSource& source, const std::vector<std::string>& files) {
  std::vector<std::string> chosen;
  if (!source.patterns.empty()) {
    for (const std::string& file : files)
      if (MatchesAny(file, source.patterns)) chosen.push_back(file);
    if (chosen.empty())
      return Error(Code::kNotFound, source.repo + ": no file matches the pattern",
                   "it has " + std::to_string(files.size()) + " files; patterns are shell patterns such as *Q4_K_M.gguf");
    return chosen;
  }
  static const std::vector<std::string> kCompanions = {"config.json",
                                                       "generation_config.json",
                                                       "tokenizer*",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "vocab.json",
                                                       "vocab.txt",
                                                       "merges.txt",
                                                       "*.model",
                                                       "chat_template*",
                                                       "*.safetensors.index.json",
                                                       "LICENSE*",
                                                       "USE_POLICY*",
                                                       "NOTICE*"};
  std::vector<std::string> safetensors, ggufs;
  std::set<std::string> gguf_families;
  for (const std::string& file : files) {
    if (file.find('/') != std::string::npos) continue;
    if (file.ends_with(".safetensors")) safetensors.push_back(file);
    if (file.ends_with(".gguf")) {
      ggufs.push_back(file);
      gguf_families.insert(ShardFamily(file));
    }
    if (MatchesAny(file, kCompanions)) chosen.push_back(file);
  }
  if (safetensors.empty() && gguf_families.size() > 1) {
    std::string names;
    size_t shown = 0;
    for (const std::string& family : gguf_families)
      if (++shown <= 20) names += " " + family;
    return Error(Code::kInvalidArgument, source.repo + ": has " + std::to_string(gguf_families.size()) + " GGUF models:" + names,
                 "choose one: slm fetch hf:" + source.repo + ":" + *gguf_families.begin());
  }
  const std::vector<std::string>& weights = safetensors.empty() ? ggufs : safetensors;
  if (weights.empty())
    return Error(Code::kNotFound, source.repo + ": has no .safetensors or .gguf file at its top",
                 "name files by a pattern: hf:" + source.repo + ":*");
  chosen.insert(chosen.end(), weights.begin(), weights.end());
  return chosen;
}

}  // namespace slm::cli
