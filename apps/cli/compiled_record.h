// compiled.json: what the graphs of a folder were compiled to, by target, beside them. Meant to be kept under version control: an export
// that grew is seen. It is a list, not an index: a compiled graph is found by its key and believed by its own record.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

inline constexpr const char* kCompiledFile = "compiled.json";
// What estimates are, in records and reports.
inline constexpr const char* kEstimateNote = "of the compiler's cost model: nothing was measured, nothing ran";

// Reports that a graph was refused, on stderr; its row for --json: {file, tokens, error: {code, message, hint}}.
nlohmann::ordered_json RefusedRow(Io& io, const std::string& file, int tokens, const Error& error);

// The document; null when the file is not there, or `path` is empty. Errors: kCorrupt.
Result<nlohmann::json> ReadCompiled(const std::string& path);
// Rows of a target, an array; empty when there is none.
nlohmann::json RowsIn(const nlohmann::json& record, const std::string& target);
// Writes the document that is there now with these rows for the target; a file that they do not name keeps its own, and so does what
// another run wrote meanwhile. Errors: kCorrupt, kIo.
Status WriteCompiled(const std::string& path, const std::string& target, const nlohmann::ordered_json& rows, const Io& io);

}  // namespace slm::cli
