// Folders of what a compiler made of an ONNX file: record.json says what it was made of and holds the SHA-256 of every file.
//
// Compilers' own files have no sum that a runtime would check, so nothing here is believed without its record.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/onnx.h"
#include "verb.h"
#include "work/part_folder.h"

namespace slm::cli {

inline constexpr const char* kRecordFile = "record.json";

// SHA-256 of a document, in hexadecimal: the name of a folder.
std::string KeyOf(const nlohmann::ordered_json& origin);

// SHA-256 of files in one folder, by name, that were compared with the files already.
using KnownSums = std::map<std::string, std::string>;
// {schema, model_sha256, data: [{name, sha256}]}: the bytes of the file that `m` was read from, and of its external data; what is not in
// `known` is read. Errors: kIo.
Result<nlohmann::ordered_json> SumsOf(const onnx::Model& m, const KnownSums& known = {});

// What a record says otherwise than `here`, the values of an object apart: "another soc_model: \"57\", here it is \"60\"".
std::vector<std::string> DifferencesOf(const nlohmann::ordered_json& here, const nlohmann::json& record);

// A new folder in place of what is at `path`. Errors: PartFolder::Create's.
Result<PartFolder> NewFolder(const std::string& path);
// Puts every file of `part` into record["files"], name, bytes and SHA-256. Errors: kIo.
Status AddFiles(const PartFolder& part, nlohmann::ordered_json& record);
Status WriteRecord(const PartFolder& part, const nlohmann::ordered_json& record, const Io& io);

// The record, when the folder's files have its sums and it has a text under `maker`. Errors: kCorrupt saying what differs; `hint` what to
// do.
Result<nlohmann::json> ReadRecord(const std::string& folder, const char* maker, const char* hint);

}  // namespace slm::cli
