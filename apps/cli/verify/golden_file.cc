// See golden_file.h.
#include "verify/golden_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fetch/digest.h"
#include "model/hf/keys.h"
#include "model/json.h"
#include "model/quoted.h"
#include "onnx/onnx.h"
#include "store.h"

namespace slm::cli {
namespace {
using nlohmann::json;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kShardDigits = 5;  // of each number in "NAME-00001-of-00003.gguf"
constexpr size_t kMostBytes = size_t{64} << 20, kMostAnswers = 10000, kMostArtefacts = 1000, kMostText = 4096;

Error Bad(const std::string& where, const std::string& what) {
  return Error(Code::kCorrupt, where + ": " + what, "record it again: slm verify --record");
}

// One object of the document, of which every key must be there, and how to speak of it.
struct Object {
  model::hf::Keys keys;
  std::string where;
  Object(const json& j, std::string place) : keys(j), where(std::move(place)) {}

  Result<const json*> At(const char* key) const {
    if (const json* v = keys.Find(key)) return v;
    return Bad(where, std::string(key) + " is missing");
  }
  Result<double> Number(const char* key, double least, double most) const {
    SLM_RETURN_IF_ERROR(At(key));
    double x = 0;
    if (keys.Float(key, &x).ok() && x >= least && x <= most) return x;
    return Bad(where, std::string(key) + " is no number from " + json(least).dump() + " to " + json(most).dump());
  }
  Result<std::string> Text(const char* key) const {
    SLM_RETURN_IF_ERROR(At(key));
    std::string text;
    if (keys.Text(key, &text).ok() && text.size() <= kMostText) return text;
    return Bad(where, std::string(key) + " is no short text");
  }
  Result<const json*> List(const char* key, size_t most) const {
    SLM_ASSIGN_OR_RETURN(const json* v, At(key));
    if (v->is_array() && !v->empty() && v->size() <= most) return v;
    return Bad(where, std::string(key) + " is no list of 1 to " + std::to_string(most));
  }
};

Result<std::vector<int32_t>> Ids(const Object& o, const char* key, int vocab_size) {
  SLM_ASSIGN_OR_RETURN(const json* list, o.List(key, size_t{1} << 20));
  std::vector<int32_t> ids;
  for (const json& v : *list) {
    if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() >= vocab_size)
      return Bad(o.where, std::string(key) + " has an id outside the vocabulary of " + std::to_string(vocab_size));
    ids.push_back(v.get<int32_t>());
  }
  return ids;
}

Result<eval::GoldenStep> StepFrom(const Object& o, int vocab_size) {
  eval::GoldenStep step;
  SLM_ASSIGN_OR_RETURN(step.ids, Ids(o, "ids", vocab_size));
  SLM_ASSIGN_OR_RETURN(const json* list, o.List("log_probs", step.ids.size()));
  if (list->size() != step.ids.size()) return Bad(o.where, "log_probs has not one number an id");
  for (const json& v : *list) {
    constexpr double kRounding = 1e-6;
    const double x = v.is_number() ? v.get<double>() : std::nan("");
    if (!std::isfinite(x) || x > kRounding) return Bad(o.where, "log_probs has a value that is no log-probability");
    step.log_probs.push_back(x);
  }
  return step;
}

Result<eval::GoldenAnswer> AnswerFrom(const Object& o, int vocab_size) {
  eval::GoldenAnswer answer;
  SLM_ASSIGN_OR_RETURN(answer.prompt, Ids(o, "prompt", vocab_size));
  SLM_ASSIGN_OR_RETURN(answer.answer, Ids(o, "answer", vocab_size));
  SLM_ASSIGN_OR_RETURN(const json* steps, o.List("steps", answer.answer.size()));
  if (steps->size() != answer.answer.size()) return Bad(o.where, "steps has not one step a token of the answer");
  for (const json& s : *steps) {
    SLM_ASSIGN_OR_RETURN(auto step, StepFrom({s, o.where + ".steps[" + std::to_string(answer.steps.size()) + "]"}, vocab_size));
    answer.steps.push_back(std::move(step));
  }
  return answer;
}

Result<GoldenArtefact> ArtefactFrom(const Object& o) {
  constexpr double kMost = 1e18;
  GoldenArtefact a;
  SLM_ASSIGN_OR_RETURN(a.path, o.Text("path"));
  if (!IsSafeRelativePath(a.path)) return Bad(o.where, "path " + model::Quoted(a.path) + " leads out of the folder");
  SLM_ASSIGN_OR_RETURN(a.sha256, o.Text("sha256"));
  if (!IsHex(a.sha256, 64)) return Bad(o.where, "sha256 is no sum of 64 digits");
  SLM_ASSIGN_OR_RETURN(a.cpu, o.Text("cpu"));
  SLM_ASSIGN_OR_RETURN(a.isa, o.Text("isa"));
  SLM_ASSIGN_OR_RETURN(const double bytes, o.Number("bytes", 0, kMost));
  SLM_ASSIGN_OR_RETURN(const double n_threads, o.Number("threads", 0, 1 << 20));
  a.bytes = static_cast<uint64_t>(bytes);
  a.n_threads = static_cast<int>(n_threads);
  SLM_ASSIGN_OR_RETURN(a.max_kld, o.Number("max_kld", 0, kMost));
  SLM_ASSIGN_OR_RETURN(a.least_same_top, o.Number("least_same_top", 0, 1));
  SLM_ASSIGN_OR_RETURN(a.kld, o.Number("kld", 0, kMost));
  SLM_ASSIGN_OR_RETURN(a.same_top, o.Number("same_top", 0, 1));
  SLM_ASSIGN_OR_RETURN(a.p95_ms, o.Number("p95_ms", 0, kMost));
  return a;
}

// Where NNNNN stands in "NAME-NNNNN-of-MMMMM.gguf"; npos: another name.
size_t ShardNumberAt(const std::string& path) {
  constexpr std::string_view kEnd = ".gguf", kOf = "-of-";
  constexpr size_t kDigits = kShardDigits, kTail = kDigits + kOf.size() + kDigits + kEnd.size();
  if (path.size() <= kTail || !path.ends_with(kEnd)) return std::string::npos;
  const size_t at = path.size() - kTail;
  const auto digits = [&](size_t from) { return path.substr(from, kDigits).find_first_not_of("0123456789") == std::string::npos; };
  const bool is_shard =
      path[at - 1] == '-' && path.compare(at + kDigits, kOf.size(), kOf) == 0 && digits(at) && digits(at + kDigits + kOf.size());
  return is_shard ? at : std::string::npos;
}

// The files that make up what is at `path`.
Result<std::vector<fs::path>> FilesOf(const std::string& path) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (!fs::exists(status)) return Error(Code::kNotFound, path + ": no such file or folder", "check the path");
  std::vector<fs::path> files;
  if (fs::is_directory(status)) {
    for (fs::recursive_directory_iterator it(path, failed), end; !failed && it != end; it.increment(failed))
      if (it->status(failed).type() == fs::file_type::regular) files.push_back(it->path());
    if (failed) return Error(Code::kIo, path + ": " + failed.message(), "check the folder");
    if (files.empty()) return Error(Code::kNotFound, path + ": no files in it", "check the path");
    std::sort(files.begin(), files.end());
    return files;
  }
  if (!fs::is_regular_file(status)) return Error(Code::kInvalidArgument, path + ": no regular file", "name a model's file or folder");
  if (path.ends_with(".onnx")) {
    files.emplace_back(path);
    const auto m = onnx::ReadModel(path);  // one that is damaged is itself only; running it says why
    if (m.ok())
      for (const onnx::ExternalFile& f : m.value().external_files) files.push_back(fs::path(path).parent_path() / f.name);
    return files;
  }
  const size_t at = ShardNumberAt(path);
  if (at == std::string::npos) return std::vector<fs::path>{path};
  int n = 0;
  const char* const count = path.data() + at + kShardDigits + std::string_view("-of-").size();
  std::from_chars(count, count + kShardDigits, n);
  std::string shard = path;
  for (int i = 1; i <= n; ++i) files.emplace_back(shard.replace(at, kShardDigits, fmt::format("{:05}", i)));
  if (files.empty()) return Error(Code::kNotFound, path + ": a shard of none", "check the name");
  return files;
}

}  // namespace

bool IsLaterShard(const std::string& path) {
  const size_t at = ShardNumberAt(path);
  return at != std::string::npos && path.compare(at, kShardDigits, "00001") != 0;
}

std::string GoldenText(const GoldenFile& file) {
  ordered_json j = {{"slm_golden", 1},
                    {"program", file.program},
                    {"reference", {{"path", file.reference}, {"compute", file.compute}}},
                    {"vocab_size", file.vocab_size},
                    {"artefacts", ordered_json::array()},
                    {"answers", ordered_json::array()}};
  for (const GoldenArtefact& a : file.artefacts)
    j["artefacts"].push_back({{"path", a.path},
                              {"sha256", a.sha256},
                              {"bytes", a.bytes},
                              {"max_kld", a.max_kld},
                              {"least_same_top", a.least_same_top},
                              {"kld", a.kld},
                              {"same_top", a.same_top},
                              {"p95_ms", a.p95_ms},
                              {"cpu", a.cpu},
                              {"isa", a.isa},
                              {"threads", a.n_threads}});
  for (const eval::GoldenAnswer& a : file.answers) {
    ordered_json steps = ordered_json::array();
    for (const eval::GoldenStep& s : a.steps) steps.push_back({{"ids", s.ids}, {"log_probs", s.log_probs}});
    j["answers"].push_back({{"prompt", a.prompt}, {"answer", a.answer}, {"steps", std::move(steps)}});
  }
  return j.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<GoldenFile> ParseGolden(std::string_view text) {
  const auto parsed = model::ParseJson(text, {.bytes = kMostBytes, .depth = 8});
  if (!parsed.ok()) return Bad("golden answers", parsed.error().message());
  const json& j = parsed.value();
  const Object root{j, "golden answers"};
  SLM_ASSIGN_OR_RETURN(const double version, root.Number("slm_golden", 0, 1e9));
  if (version != 1) return Bad(root.where, "slm_golden is not 1, the form that this program reads");
  GoldenFile file;
  SLM_ASSIGN_OR_RETURN(file.program, root.Text("program"));
  SLM_ASSIGN_OR_RETURN(const json* reference, root.At("reference"));
  SLM_ASSIGN_OR_RETURN(file.reference, (Object{*reference, "reference"}.Text("path")));
  SLM_ASSIGN_OR_RETURN(file.compute, (Object{*reference, "reference"}.Text("compute")));
  SLM_ASSIGN_OR_RETURN(const double vocab_size, root.Number("vocab_size", 1, 1 << 28));
  file.vocab_size = static_cast<int>(vocab_size);
  SLM_ASSIGN_OR_RETURN(const json* answers, root.List("answers", kMostAnswers));
  for (const json& a : *answers) {
    SLM_ASSIGN_OR_RETURN(auto answer, AnswerFrom({a, "answers[" + std::to_string(file.answers.size()) + "]"}, file.vocab_size));
    file.answers.push_back(std::move(answer));
  }
  SLM_ASSIGN_OR_RETURN(const json* artefacts, root.List("artefacts", kMostArtefacts));
  for (const json& a : *artefacts) {
    SLM_ASSIGN_OR_RETURN(auto artefact, ArtefactFrom({a, "artefacts[" + std::to_string(file.artefacts.size()) + "]"}));
    file.artefacts.push_back(std::move(artefact));
  }
  return file;
}

Result<Identity> IdentityOf(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesOf(path));
  Identity id;
  std::error_code failed;
  const bool is_folder = fs::is_directory(path, failed);
  Digest all(DigestKind::kSha256);
  for (const fs::path& file : files) {
    SLM_ASSIGN_OR_RETURN(id.sha256, Sha256OfFile(file.string()));
    id.bytes += fs::file_size(file, failed);
    if (failed) return Error(Code::kIo, file.string() + ": " + failed.message(), "check the file");
    all.Add((is_folder ? file.lexically_relative(path) : file.filename()).generic_string());
    all.Add(std::string_view("\0", 1));
    all.Add(id.sha256 + "\n");
  }
  if (is_folder || files.size() > 1) id.sha256 = all.Hex();
  return id;
}

}  // namespace slm::cli
