// See compiled_folder.h.
#include "compiled_folder.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "fetch/digest.h"
#include "model/hf/folder.h"
#include "model/json.h"
#include "model/quoted.h"
#include "output_file.h"

namespace slm::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kSchema = 1;

std::string Text(const ordered_json& j, int indent) { return j.dump(indent, ' ', false, ordered_json::error_handler_t::replace); }

bool HasText(const json& j, const char* key) { return j.is_object() && j.contains(key) && j[key].is_string(); }

}  // namespace

std::string KeyOf(const ordered_json& origin) { return Sha256Of(Text(origin, -1)); }

Result<ordered_json> SumsOf(const onnx::Model& m, const KnownSums& known) {
  const fs::path path = m.path;
  const auto sum_of = [&](const std::string& name) -> Result<std::string> {
    if (const auto it = known.find(name); it != known.end()) return it->second;
    return Sha256OfFile((path.parent_path() / name).string());
  };
  SLM_ASSIGN_OR_RETURN(const std::string sum, sum_of(path.filename().string()));
  ordered_json j = {{"schema", kSchema}, {"model_sha256", sum}, {"data", ordered_json::array()}};
  for (const onnx::ExternalFile& f : m.external_files) {
    SLM_ASSIGN_OR_RETURN(const std::string data, sum_of(f.name));
    j["data"].push_back({{"name", f.name}, {"sha256", data}});
  }
  return j;
}

std::vector<std::string> DifferencesOf(const ordered_json& here, const json& record) {
  std::vector<std::string> out;
  const auto shown = [](const json& j) { return model::PrintableUtf8(j.dump(-1, ' ', false, json::error_handler_t::replace), 80); };
  const auto compare = [&](const std::string& key, const json& mine, const json& there) {
    if (mine != there) out.push_back("another " + key + ": " + shown(there) + ", here it is " + shown(mine));
  };
  for (const auto& [key, value] : here.items()) {
    const json there = record.is_object() && record.contains(key) ? record[key] : json(), mine = value;
    if (!mine.is_object() || !there.is_object()) {
      compare(key, mine, there);
      continue;
    }
    json names = mine;
    names.update(there);
    for (const auto& [name, unused] : names.items()) compare(name, mine.value(name, json()), there.value(name, json()));
  }
  return out;
}

Result<PartFolder> NewFolder(const std::string& path) {
  std::error_code failed;
  fs::remove_all(path, failed);
  fs::create_directories(fs::path(path).parent_path(), failed);
  return PartFolder::Create(path);
}

Status AddFiles(const PartFolder& part, ordered_json& record) {
  std::error_code failed;
  std::vector<std::string> names;
  for (fs::directory_iterator it(part.path(), failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(".")) names.push_back(name);  // the folder's lock goes away with the commit
  }
  if (failed) return Error(Code::kIo, part.path() + ": " + failed.message());
  std::sort(names.begin(), names.end());
  record["files"] = ordered_json::array();
  for (const std::string& name : names) {
    SLM_ASSIGN_OR_RETURN(const std::string sum, Sha256OfFile(part.File(name)));
    const auto bytes = fs::file_size(part.File(name), failed);
    if (failed) return Error(Code::kIo, part.File(name) + ": " + failed.message());
    record["files"].push_back({{"name", name}, {"bytes", bytes}, {"sha256", sum}});
  }
  return Ok();
}

Status WriteRecord(const PartFolder& part, const ordered_json& record, const Io& io) {
  return WriteTextFile(part.File(kRecordFile), Text(record, 2) + "\n", io);
}

Result<json> ReadRecord(const std::string& folder, const char* maker, const char* hint) {
  const auto bad = [&](const std::string& place, const std::string& what) { return Error(Code::kCorrupt, place + ": " + what, hint); };
  const std::string damaged = std::string(kRecordFile) + " is damaged";
  SLM_ASSIGN_OR_RETURN(const model::hf::Folder files, model::hf::Folder::Open(folder));
  SLM_ASSIGN_OR_RETURN(const std::string text, files.Text(kRecordFile, 1 << 20));
  if (text.empty()) return bad(folder, std::string("there is no ") + kRecordFile + ": a compiled graph is opened only with its record");
  const auto parsed = model::ParseJson(text);
  if (!parsed.ok()) return bad(folder, damaged + ": " + parsed.error().message());
  const json& j = parsed.value();
  if (!HasText(j, maker) || !j.contains("schema") || j["schema"] != kSchema || !j.contains("files") || !j["files"].is_array())
    return bad(folder, damaged + ", or of another version");
  for (const auto& f : j["files"]) {
    if (!HasText(f, "name") || !HasText(f, "sha256")) return bad(folder, damaged);
    const std::string name = f["name"];
    if (const auto map = files.Map(name); !map.ok()) return bad(folder, map.error().message());  // a plain name, inside the folder
    SLM_ASSIGN_OR_RETURN(const std::string sum, Sha256OfFile(folder + "/" + name));
    if (sum != f["sha256"])
      return bad(folder + "/" + model::PrintableUtf8(name, 80), "is not the file that was compiled: its SHA-256 differs");
  }
  return j;
}

}  // namespace slm::cli
