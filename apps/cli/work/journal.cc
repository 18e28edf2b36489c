// Lines of JSON to rows and back; see journal.h.
#include "work/journal.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "fetch/digest.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

constexpr const char* kMagic = "slm_work";
constexpr int kVersion = 1;

std::optional<DType> DTypeNamed(const std::string& name) {
  for (int i = 0; i < static_cast<int>(DType::kCount); ++i)
    if (Info(static_cast<DType>(i)).name == name) return static_cast<DType>(i);
  return std::nullopt;
}

std::string TextOf(const ordered_json& o, const char* key) {
  const auto it = o.find(key);
  return it != o.end() && it->is_string() ? it->get<std::string>() : std::string();
}
std::optional<uint64_t> CountOf(const ordered_json& o, const char* key) {
  const auto it = o.find(key);
  if (it == o.end() || !it->is_number_unsigned()) return std::nullopt;
  return it->get<uint64_t>();
}

std::optional<JournalRow> RowOf(const ordered_json& o) {
  if (!o.is_object()) return std::nullopt;
  const auto from = DTypeNamed(TextOf(o, "from")), to = DTypeNamed(TextOf(o, "to"));
  const auto end = CountOf(o, "end");
  const auto error = o.find("error");
  JournalRow row{.report = {TextOf(o, "tensor"), from.value_or(DType::kF32), to.value_or(DType::kF32), 0},
                 .end = end.value_or(0),
                 .sha256 = TextOf(o, "sha256")};
  if (!from || !to || !end || row.report.name.empty() || !IsHex(row.sha256, 64) || error == o.end() || !error->is_number())
    return std::nullopt;
  row.report.error = error->get<double>();
  if (!std::isfinite(row.report.error)) return std::nullopt;
  return row;
}

}  // namespace

std::string JournalHead(const std::string& identity, uint64_t begin) {
  return ordered_json({{kMagic, kVersion}, {"identity", identity}, {"begin", begin}}).dump() + "\n";
}

std::string JournalLine(const JournalRow& row) {
  const quant::TensorReport& r = row.report;
  const ordered_json line = {{"tensor", r.name}, {"from", Info(r.from).name}, {"to", Info(r.to).name}, {"error", r.error},
                             {"end", row.end},   {"sha256", row.sha256}};
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::optional<Journal> ReadJournal(std::string_view text) {
  Journal j;
  size_t at = 0;
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n', at)) {
    const std::string_view line = text.substr(at, end - at);
    const ordered_json o = ordered_json::parse(line.begin(), line.end(), nullptr, false);
    if (j.ends.empty()) {
      if (!o.is_object() || CountOf(o, kMagic) != kVersion || !IsHex(TextOf(o, "identity"), 64) || !CountOf(o, "begin"))
        return std::nullopt;
      j.identity = TextOf(o, "identity");
      j.begin = *CountOf(o, "begin");
    } else {
      auto row = RowOf(o);
      if (!row || row->end < (j.rows.empty() ? j.begin : j.rows.back().end)) break;
      j.rows.push_back(std::move(*row));
    }
    at = end + 1;
    j.ends.push_back(at);
  }
  if (!j.ends.empty()) return j;
  const std::string begins = ordered_json({{kMagic, kVersion}}).dump();  // of a first line that was cut off
  const std::string_view known = std::string_view(begins).substr(0, begins.size() - 1);
  const size_t n = std::min(text.size(), known.size());
  return text.substr(0, n) == known.substr(0, n) && text.find('\n') == text.npos ? std::optional(j) : std::nullopt;
}

}  // namespace slm::cli
