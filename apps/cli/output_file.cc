// Temporary file, fsync, rename; see output_file.h.
#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

Error IoError(const std::string& path, int why) {
  return Error(Code::kIo, path + ": " + strerror(why), "check the path, its permissions and the free space");
}

// Where writing to `path` ends up; a link to nothing yet is followed too.
std::string Place(const std::string& path) {
  std::error_code failed;
  if (!fs::is_symlink(path, failed)) return path;
  const fs::path place = fs::weakly_canonical(fs::path(path).parent_path() / fs::read_symlink(path, failed), failed);
  return failed || place.empty() ? path : place.string();
}

bool SameFile(const struct stat& wanted, const fs::path& path) {
  struct stat s = {};
  return stat(path.c_str(), &s) == 0 && s.st_dev == wanted.st_dev && s.st_ino == wanted.st_ino;
}

// "model-00002-of-00005.gguf" without its number, which all shards of a model share; empty for other names.
std::string SeriesOf(const fs::path& path) {
  static constexpr std::string_view kDigits = "0123456789";
  const std::string stem = path.stem().string(), of = "-of-";
  const size_t at = stem.rfind(of);
  if (at == stem.npos || at + of.size() == stem.size() || stem.find_first_not_of(kDigits, at + of.size()) != stem.npos) return {};
  const size_t before = at == 0 ? stem.npos : stem.find_last_not_of(kDigits, at - 1);
  if (before == stem.npos || stem[before] != '-' || before + 1 == at) return {};
  return stem.substr(0, before) + stem.substr(at) + path.extension().string();
}

}  // namespace

bool IsDirect(const std::string& path) {
  struct stat s = {};
  return stat(path.c_str(), &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

uint64_t BytesOf(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code failed;
  const auto add = [&](const fs::directory_entry& e) {
    const uint64_t size = e.is_regular_file(failed) ? e.file_size(failed) : 0;
    if (!failed) bytes += size;
  };
  if (!fs::is_directory(path, failed)) add(fs::directory_entry(path, failed));
  else
    for (const fs::directory_entry& e : fs::directory_iterator(path, failed)) add(e);
  return bytes;
}

Result<std::string> PlaceOf(const std::string& path) {
  struct stat old = {};
  const bool exists = stat(path.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) return Error(Code::kInvalidArgument, path + ": is a folder", "give the path of a file");
  if (path.ends_with('/') || path.empty())
    return Error(Code::kInvalidArgument, "'" + path + "' does not name a file", "give the path of a file");
  if (exists && access(path.c_str(), W_OK) != 0) return IoError(path, errno);  // renaming would not ask
  return Place(path);
}

Result<OutputFile> OutputFile::Create(const std::string& path) {
  if (IsDirect(path)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe that nobody reads would hold it up for ever
    if (fd < 0 && errno == ENXIO) return Error(Code::kIo, path + ": nobody reads it", "start what reads the pipe first");
    if (fd < 0) return IoError(path, errno);
    if (const int flags = fcntl(fd, F_GETFL); flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
      const int why = errno;
      close(fd);
      return IoError(path, why);
    }
    return OutputFile(path, path, "", fd);
  }
  SLM_ASSIGN_OR_RETURN(const std::string place, PlaceOf(path));
  struct stat old = {};
  const bool exists = stat(path.c_str(), &old) == 0;
  constexpr int kTries = 100;  // names that a killed run left behind
  for (int i = 0; i < kTries; ++i) {
    const std::string name = ".slm-" + std::to_string(getpid()) + "-" + std::to_string(i) + ".part";
    const std::string part = (fs::path(place).parent_path() / name).string();
    const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return IoError(path, errno);
    OutputFile file(path, place, part, fd);
    if (exists && fchmod(fd, old.st_mode & 07777) != 0) return IoError(path, errno);
    return file;
  }
  return IoError(path, EEXIST);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), place_(std::move(other.place_)), part_(std::move(other.part_)), fd_(other.fd_) {
  other.fd_ = -1;
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!part_.empty()) unlink(part_.c_str());
}

Error OutputFile::Failed() const { return IoError(path_, errno); }

Status OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed();
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Ok();
}

Status OutputFile::Commit() {
  if (!part_.empty() && (fsync(fd_) != 0 || rename(part_.c_str(), place_.c_str()) != 0)) return Failed();
  const int fd = fd_;
  fd_ = -1;
  if (close(fd) != 0) return Failed();
  return Ok();
}

namespace {
Error Interrupted(const std::string& path) { return Error(Code::kCancelled, "interrupted; " + path + " was not written"); }
}  // namespace

Result<OutputFile> OpenOutput(const std::string& path, const Io& io) {
  auto created = OutputFile::Create(path);
  if (!created.ok() && io.cancelled()) return Interrupted(path);
  return created;
}

Status WriteUnlessCancelled(OutputFile& file, std::span<const std::byte> bytes, const std::string& path, const Io& io) {
  if (io.cancelled()) return Interrupted(path);
  return file.Write(bytes);
}

Status WriteTextFile(const std::string& path, const std::string& text, const Io& io) {
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  SLM_RETURN_IF_ERROR(WriteUnlessCancelled(file, std::as_bytes(std::span(text)), path, io));
  return file.Commit();
}

Result<PassingFile> PassingFile::Create(const std::string& near) {
  std::string name = near + ".XXXXXX";
  const int fd = mkstemp(name.data());
  if (fd < 0)
    return Error(Code::kIo, near + ": no file can be made beside it: " + strerror(errno), "check the folder, its permissions and space");
  close(fd);
  return PassingFile(name);
}

PassingFile::~PassingFile() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove(path_, ignored);
}

Status RefuseInput(const std::string& out, const std::string& input) {
  struct stat wanted = {};
  if (out.empty() || input.empty() || stat(out.c_str(), &wanted) != 0 || !S_ISREG(wanted.st_mode) || !SameFile(wanted, input)) return Ok();
  return Error(Code::kInvalidArgument, out + ": is a text that this run reads", "give another path");
}

Status RefuseModelFile(const std::string& out, const std::string& model, Neighbours neighbours) {
  const Error own(Code::kInvalidArgument, out + ": is a file of the model itself", "give another path: the model would be destroyed");
  struct stat wanted = {};
  if (stat(out.c_str(), &wanted) != 0 || !S_ISREG(wanted.st_mode)) return Ok();
  if (SameFile(wanted, model)) return own;
  std::error_code failed;
  // Beside an ONNX file lie its weights, tokenizer and configuration, all with names of their own.
  const bool is_directory = fs::is_directory(model, failed);
  const bool folder = is_directory || (model.ends_with(".onnx") && neighbours == Neighbours::kSameExtension);
  const fs::path root = is_directory ? fs::path(model) : fs::absolute(model, failed).parent_path();
  const auto kin_of = [&](const fs::path& p) { return neighbours == Neighbours::kSameExtension ? p.extension().string() : SeriesOf(p); };
  const std::string kin = kin_of(model);
  for (fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code unknown;
    if (!folder && it->is_directory(unknown)) it.disable_recursion_pending();
    const bool belongs = folder || (!kin.empty() && kin_of(it->path()) == kin);
    if (belongs && SameFile(wanted, it->path())) return own;
  }
  return Ok();
}

}  // namespace slm::cli
