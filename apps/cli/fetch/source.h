// What `slm fetch` was asked for: a catalogue name, hf:owner/repo[@revision][:patterns], or file:PATH.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "fetch/catalogue.h"

namespace slm::cli {

struct HubSource {
  std::string repo;                   // "owner/repo" or "repo"
  std::string revision = "main";      // branch, tag or commit; may contain '/'
  std::vector<std::string> patterns;  // shell patterns, '*' also matches '/'; empty: the files a model needs
};
struct FileSource {
  std::string path;
};
using FetchSource = std::variant<const CatalogueEntry*, HubSource, FileSource>;

// Errors: kInvalidArgument for a malformed spec, kNotFound for a name that is not in the catalogue.
Result<FetchSource> ParseFetchSource(const std::string& text);

// Store name used when none is given: the catalogue's, "owner--repo", the file's name without .gguf.
std::string DefaultStoreName(const FetchSource& source);

// One spelling for one source, as the store remembers it: "smollm2-135m-instruct", "hf:owner/repo@rev:a,b", "file:/abs/path".
std::string SourceText(const FetchSource& source);

// Does `path` match one of `patterns`?
bool MatchesAny(const std::string& path, const std::vector<std::string>& patterns);

// Of a repository's files, those a model needs: weights at the top (safetensors, or GGUF where there are none), configuration,
// tokenizer, chat template, licence. Errors: kNotFound without weights, kInvalidArgument when several GGUF models are there.
Result<std::vector<std::string>> ChooseModelFiles(const HubSource& source, const std::vector<std::string>& files);

}  // namespace slm::cli
