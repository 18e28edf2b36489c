// See external.h. Known attacks: CVE-2022-25882 and CVE-2024-27318 (".." and absolute paths), links, hard links to private files,
// and offsets or lengths past the end.
#include "onnx/external.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>
#include <system_error>

#include "model/quoted.h"

namespace slm::onnx {
namespace {

namespace fs = std::filesystem;
using model::Quoted;

constexpr const char* kHint =
    "the external data of a model must be complete files in the model's own folder: export or fetch the model again";
constexpr size_t kMaxFiles = 4096;

Result<uint64_t> Number(const std::string& text, const char* what) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || at != end)
    return Error(Code::kCorrupt, fmt::format("external data: {} {} is not a decimal number that fits 64 bits", what, Quoted(text)), kHint);
  return value;
}

bool Within(const std::string& path, const std::string& root) {
  if (root.empty()) return false;
  const std::string prefix = root.back() == '/' ? root : root + "/";
  return path.size() > prefix.size() && path.compare(0, prefix.size(), prefix) == 0;
}

// A hub's cache keeps the bytes in ".../blobs" and links from ".../snapshots/<commit>/...".
std::string BlobsOf(const fs::path& root) {
  std::error_code ec;
  for (fs::path p = root; p.has_relative_path(); p = p.parent_path())
    if (p.parent_path().filename() == "snapshots") {
      const fs::path blobs = fs::canonical(p.parent_path().parent_path() / "blobs", ec);
      return ec ? std::string() : blobs.string();
    }
  return {};
}

// A second name of the same file can lie anywhere. It is fine when all names are seen in the folder of the file.
bool HasNamesElsewhere(const std::string& path) {
  struct stat file;
  if (::stat(path.c_str(), &file) != 0 || file.st_nlink <= 1) return false;
  nlink_t here = 0;
  std::error_code ec;
  for (fs::directory_iterator i(fs::path(path).parent_path(), ec), end; !ec && i != end; i.increment(ec)) {
    struct stat other;
    if (::lstat(i->path().c_str(), &other) == 0 && other.st_ino == file.st_ino && other.st_dev == file.st_dev) ++here;
  }
  return here < file.st_nlink;
}

}  // namespace

bool IsPlainLocation(std::string_view location) {
  if (location.empty() || location.size() > 4096) return false;
  for (const char c : location)
    if (c == '\\' || c == ':' || static_cast<unsigned char>(c) < 0x20) return false;
  while (true) {
    const size_t slash = location.find('/');
    const std::string_view name = location.substr(0, slash);
    if (name.empty() || name == ".." || name.size() > 255) return false;
    if (slash == std::string_view::npos) return name != ".";
    location.remove_prefix(slash + 1);
  }
}

Result<int> ExternalFiles::Open(const std::string& location) {
  if (const auto at = known_.find(location); at != known_.end()) return at->second;
  const std::string place = "external data " + Quoted(location);
  if (!IsPlainLocation(location)) return Error(Code::kCorrupt, place + ": not a relative path inside the model's folder", kHint);
  if (folder_.empty()) return Error(Code::kUnsupported, place + ": external data without a folder", "read the model from its file");
  if (maps_.size() >= kMaxFiles) return Error(Code::kCorrupt, fmt::format("{}: more than {} external files", place, kMaxFiles), kHint);
  std::error_code ec;
  if (root_.empty()) {
    root_ = fs::canonical(folder_, ec).string();
    if (ec) return Error(Code::kIo, place + ": " + folder_ + ": " + ec.message(), "check the path");
  }
  const std::string real = fs::canonical(fs::path(root_) / location, ec).string();
  if (ec == std::errc::no_such_file_or_directory) return Error(Code::kNotFound, place + " is missing", kHint);
  if (ec) return Error(Code::kIo, place + ": " + ec.message(), kHint);
  if (!Within(real, root_) && !Within(real, BlobsOf(root_)))
    return Error(Code::kCorrupt, place + " is a link that leads out of the model's folder", kHint);
  if (HasNamesElsewhere(real))
    return Error(Code::kCorrupt, place + " is a hard link whose other names are outside the folder",
                 "copy the file instead of linking it: cp --reflink=auto FILE COPY && mv COPY FILE");
  auto map = MappedFile::Open(real);
  if (!map.ok()) return Error(map.error().code() == Code::kIo ? Code::kIo : Code::kCorrupt, place + ": not a file that can be read", kHint);
  const int index = static_cast<int>(maps_.size());
  list_.push_back({location, map.value().bytes().size()});
  maps_.push_back(map.Take());
  known_.emplace(location, index);
  return index;
}

Result<std::span<const std::byte>> ExternalFiles::Part(const ExternalEntry& entry, uint64_t needed_bytes, int& file) {
  if (!entry.has_location) return Error(Code::kCorrupt, "external data without a location", kHint);
  uint64_t offset = 0;
  if (!entry.offset.empty()) {
    SLM_ASSIGN_OR_RETURN(offset, Number(entry.offset, "offset"));
  }
  if (entry.has_length) {
    SLM_ASSIGN_OR_RETURN(const uint64_t length, Number(entry.length, "length"));
    if (length != needed_bytes)
      return Error(Code::kCorrupt, fmt::format("external data has {} bytes, its shape and type need {}", length, needed_bytes), kHint);
  }
  SLM_ASSIGN_OR_RETURN(file, Open(entry.location));
  const auto bytes = maps_[static_cast<size_t>(file)].bytes();
  if (offset > bytes.size() || needed_bytes > bytes.size() - offset)
    return Error(Code::kCorrupt,
                 fmt::format("external data {}: {} bytes at offset {} reach past the end, the file has {}", Quoted(entry.location),
                             needed_bytes, offset, bytes.size()),
                 kHint);
  return bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(needed_bytes));
}

}  // namespace slm::onnx
