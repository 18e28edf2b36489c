// See folder.h.
#include "model/hf/folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "model/quoted.h"

namespace slm::model::hf {
namespace {

namespace fs = std::filesystem;

bool Within(const std::string& path, const std::string& root) {
  return !root.empty() && path.size() > root.size() + 1 && path.compare(0, root.size(), root) == 0 && path[root.size()] == '/';
}

bool IsPlainName(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  for (const char c : name)
    if (c == '/' || c == '\\' || c == ':' || static_cast<unsigned char>(c) < 0x20) return false;
  return true;
}

}  // namespace

Result<Folder> Folder::Open(const std::string& path) {
  std::error_code ec;
  Folder f;
  f.path_ = path;
  const fs::path root = fs::canonical(path, ec);
  if (ec) return Error(Code::kNotFound, path + ": " + ec.message(), "check the path");
  if (!fs::is_directory(root, ec)) return Error(Code::kInvalidArgument, path + ": not a folder", "name a model folder");
  f.root_ = root.string();
  if (root.parent_path().filename() == "snapshots") {
    const fs::path blobs = fs::canonical(root.parent_path().parent_path() / "blobs", ec);
    if (!ec) f.blobs_ = blobs.string();
  }
  return f;
}

Folder Folder::OfTexts(std::map<std::string, std::string, std::less<>> texts) {
  Folder f;
  f.texts_ = std::move(texts);
  return f;
}

bool Folder::Has(std::string_view name) const {
  if (root_.empty()) return texts_.find(name) != texts_.end();
  std::error_code ec;
  const fs::file_status s = fs::symlink_status(fs::path(root_) / name, ec);
  return !ec && s.type() != fs::file_type::not_found;
}

Result<std::string> Folder::Resolve(std::string_view name) const {
  constexpr const char* kHint = "fetch the model again; a model folder must be complete in itself";
  if (root_.empty()) return Error(Code::kNotFound, Quoted(name) + " is missing", kHint);
  if (!IsPlainName(name)) return Error(Code::kCorrupt, "file name " + Quoted(name) + " is not the name of a file in the folder", kHint);
  std::error_code ec;
  const std::string real = fs::canonical(fs::path(root_) / name, ec).string();
  if (ec == std::errc::no_such_file_or_directory) return Error(Code::kNotFound, Quoted(name) + " is missing", kHint);
  if (ec) return Error(Code::kIo, Quoted(name) + ": " + ec.message(), kHint);
  if (!Within(real, root_) && !Within(real, blobs_))
    return Error(Code::kCorrupt, Quoted(name) + " is a link that leads out of the folder", kHint);
  return real;
}

Result<MappedFile> Folder::Map(std::string_view name) const {
  SLM_ASSIGN_OR_RETURN(const std::string real, Resolve(name));
  return MappedFile::Open(real);
}

Result<std::string> Folder::Text(std::string_view name, size_t limit) const {
  if (!Has(name)) return std::string();
  if (root_.empty()) return texts_.find(name)->second;
  SLM_ASSIGN_OR_RETURN(const MappedFile map, Map(name));
  const auto bytes = map.bytes();
  if (bytes.size() > limit)
    return Error(Code::kCorrupt, fmt::format("{}: {} bytes; at most {} are read", name, bytes.size(), limit), "this is not a model's file");
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace slm::model::hf
