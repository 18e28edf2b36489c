// The catalogue's look-ups; the data is catalogue.inc.
#include "fetch/catalogue.h"

namespace slm::cli {
namespace {

constexpr CatalogueEntry kCatalogue[] = {
#define SLM_MODEL(...) {__VA_ARGS__},
#include "fetch/catalogue.inc"
#undef SLM_MODEL
};

}  // namespace

std::span<const CatalogueEntry> Catalogue() { return kCatalogue; }

const CatalogueEntry* FindCatalogueEntry(std::string_view name) {
  for (const CatalogueEntry& entry : kCatalogue)
    if (entry.name == name) return &entry;
  return nullptr;
}

std::vector<std::string> CatalogueNames() {
  std::vector<std::string> names;
  for (const CatalogueEntry& entry : kCatalogue) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> PackagesOf(const CatalogueEntry& entry) {
  std::vector<std::string> packages;
  if (entry.parts == 0) packages.emplace_back(entry.package);
  for (int i = 1; i <= entry.parts; ++i) packages.push_back(std::string(entry.package) + std::to_string(i));
  return packages;
}

bool MemberMatches(std::string_view name, std::string_view suffix) {
  if (suffix.ends_with('*')) {
    suffix.remove_suffix(1);
    while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
  }
  return name.ends_with(suffix);
}

}  // namespace slm::cli
