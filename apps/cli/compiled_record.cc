// See compiled_record.h.
#include "compiled_record.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/json.h"
#include "output_file.h"

namespace slm::cli {
namespace {
constexpr const char* kFormat = "slmkit-compiled";
}  // namespace

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json RefusedRow(Io& io, const std::string& file, int tokens, const Error& error) {
  io.err(ErrorLine(error) + "\n");
  return {{"file", file}, {"tokens", tokens}, {"error", ErrorJson(error)["error"]}};
}

Result<json> ReadCompiled(const std::string& path) {
  std::error_code failed;
  if (path.empty() || !std::filesystem::exists(path, failed)) return json();
  constexpr size_t kMost = 4 << 20;
  std::ifstream in(path, std::ios::binary);
  std::string text(kMost + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  auto parsed = model::ParseJson(text, {.bytes = kMost});
  if (!parsed.ok()) return parsed.error().At(path);
  const json& j = parsed.value();
  if (!j.is_object() || j.value("format", json()) != kFormat || j.value("version", json()) != 1 || !j.contains("targets") ||
      !j["targets"].is_object())
    return Error(Code::kCorrupt, path + ": not a record of compiled graphs", "delete it; slm compile writes it anew");
  return parsed;
}

json RowsIn(const json& record, const std::string& target) {
  if (!record.is_object() || !record["targets"].contains(target)) return json::array();
  const json& rows = record["targets"][target];
  return rows.is_array() ? rows : json::array();
}

Status WriteCompiled(const std::string& path, const std::string& target, const ordered_json& rows, const Io& io) {
  SLM_ASSIGN_OR_RETURN(const json before, ReadCompiled(path));
  ordered_json all = before.is_object() ? ordered_json(before["targets"]) : ordered_json::object();
  ordered_json list = rows;
  for (const json& row : RowsIn(before, target)) {
    const json file = row.is_object() ? row.value("file", json()) : json();
    if (std::none_of(rows.begin(), rows.end(), [&](const ordered_json& r) { return json(r["file"]) == file; }))
      list.push_back(ordered_json(row));
  }
  all[target] = std::move(list);
  const ordered_json document = {{"format", kFormat}, {"version", 1}, {"estimates", kEstimateNote}, {"targets", std::move(all)}};
  return WriteTextFile(path, document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n", io);
}

}  // namespace slm::cli
