// DST.part and its journal; see work_file.h for what is believed and why nothing is flushed on the way.
#include "work/work_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "fetch/digest.h"
#include "output_file.h"

namespace slm::cli {
namespace {

Error IoError(const std::string& path, int why) {
  return Error(Code::kIo, path + ": " + strerror(why), "check the path, its permissions and the free space");
}

Status WriteAll(int fd, std::string_view bytes, uint64_t at, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return IoError(path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return Ok();
}

// Sum of the bytes [begin, end) of a file; empty when they are not there.
std::string SumOf(int fd, uint64_t begin, uint64_t end) {
  Digest digest(DigestKind::kSha256);
  std::vector<char> buffer(size_t{1} << 20);
  while (begin < end) {
    const ssize_t n = pread(fd, buffer.data(), std::min<uint64_t>(buffer.size(), end - begin), static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {};
    digest.Add({buffer.data(), static_cast<size_t>(n)});
    begin += static_cast<uint64_t>(n);
  }
  return digest.Hex();
}

Result<std::string> ReadAll(int fd, const std::string& path) {
  constexpr size_t kMost = size_t{64} << 20;  // a journal has some 250 bytes a tensor
  std::string text;
  std::vector<char> buffer(size_t{1} << 16);
  for (;;) {
    const ssize_t n = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return IoError(path, errno);
    if (n == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(n));
    if (text.size() > kMost) return Error(Code::kInvalidArgument, path + ": is no journal of slm quantize", "move it away");
  }
}

Error InTheWay(const std::string& path) {
  return Error(Code::kInvalidArgument, path + ": is in the way and not what slm quantize leaves behind",
               "move it away, or choose another -o");
}

// Opened for both, made when it is not there; never through a link.
Result<int> OpenRegular(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd < 0) return errno == ELOOP || errno == EISDIR || errno == ENXIO ? InTheWay(path) : IoError(path, errno);
  struct stat s = {};
  if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) return fd;
  close(fd);
  return InTheWay(path);
}

bool IsThere(const std::string& path) {
  struct stat s = {};
  return lstat(path.c_str(), &s) == 0;
}

// The journal, locked: a second run of the same output ends here.
Result<int> OpenLocked(const std::string& path, const std::string& output) {
  for (;;) {
    SLM_ASSIGN_OR_RETURN(const int fd, OpenRegular(path));
    struct stat s = {};
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      return Error(Code::kUnavailable, output + ": another slm quantize is writing it", "wait for it, or choose another -o");
    }
    if (fstat(fd, &s) == 0 && s.st_nlink > 0) return fd;
    close(fd);  // the run that held the lock finished in between and took its journal away
  }
}

}  // namespace

WorkFile::WorkFile(std::string path, std::string place, Io& io)
    : path_(std::move(path)), place_(std::move(place)), part_(place_ + ".part"), log_(part_ + ".journal"), io_(io) {}

WorkFile::~WorkFile() {
  if (fd_ >= 0) close(fd_);
  if (log_fd_ >= 0) close(log_fd_);
}

Error WorkFile::Failed() const { return IoError(path_, errno); }

Result<std::unique_ptr<WorkFile>> WorkFile::Open(const std::string& path, const std::string& identity, Io& io) {
  SLM_ASSERT(IsHex(identity, 64));
  SLM_ASSIGN_OR_RETURN(const std::string place, PlaceOf(path));
  std::unique_ptr<WorkFile> file(new WorkFile(path, place, io));
  SLM_RETURN_IF_ERROR(file->OpenFiles());
  SLM_RETURN_IF_ERROR(file->TakeOver(identity));
  return file;
}

Status WorkFile::OpenFiles() {
  if (IsThere(part_) && !IsThere(log_)) return InTheWay(part_);
  SLM_ASSIGN_OR_RETURN(log_fd_, OpenLocked(log_, path_));
  SLM_ASSIGN_OR_RETURN(fd_, OpenRegular(part_));
  struct stat old = {};
  if (stat(place_.c_str(), &old) == 0 && fchmod(fd_, old.st_mode & 07777) != 0) return Failed();
  return Ok();
}

Status WorkFile::TakeOver(const std::string& identity) {
  SLM_ASSIGN_OR_RETURN(const std::string text, ReadAll(log_fd_, log_));
  auto journal = ReadJournal(text);
  if (!journal) return InTheWay(log_);
  journal_ = std::move(*journal);
  if (journal_.identity != identity) {
    if (!journal_.identity.empty())
      io_.Note(part_ + ": begun by another program, from another source or with other options: it is written anew");
    journal_ = {};
    journal_.identity = identity;
    if (ftruncate(fd_, 0) != 0) return Failed();
  } else {
    SLM_RETURN_IF_ERROR(Believe());
    if (!journal_.rows.empty()) io_.Note(fmt::format("{}: {} tensors are there from an earlier run", part_, journal_.rows.size()));
  }
  const uint64_t end = journal_.ends.empty() ? 0 : journal_.ends.back();
  return ftruncate(log_fd_, static_cast<off_t>(end)) == 0 ? Ok() : Status(IoError(log_, errno));
}

// Keeps the rows whose bytes are what they say.
Status WorkFile::Believe() {
  size_t good = 0;
  for (uint64_t begin = journal_.begin; good < journal_.rows.size(); ++good) {
    if (io_.cancelled()) return Error(Code::kCancelled, "interrupted");
    const JournalRow& row = journal_.rows[good];
    if (SumOf(fd_, begin, row.end) != row.sha256) break;
    begin = row.end;
  }
  journal_.rows.resize(good);
  journal_.ends.resize(good + 1);
  return Ok();
}

Status WorkFile::Append(const std::string& line) {
  const uint64_t end = journal_.ends.empty() ? 0 : journal_.ends.back();
  SLM_RETURN_IF_ERROR(WriteAll(log_fd_, line, end, log_));
  journal_.ends.push_back(end + line.size());
  return Ok();
}

Status WorkFile::Write(std::span<const std::byte> bytes) {
  if (io_.cancelled()) return Error(Code::kCancelled, "interrupted; the same command goes on where " + part_ + " ends");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  SLM_RETURN_IF_ERROR(WriteAll(fd_, text, at_, path_));
  at_ += bytes.size();
  if (digest_) digest_->Add(text);
  return Ok();
}

Status WorkFile::Overwrite(uint64_t offset, std::string_view bytes) { return WriteAll(fd_, bytes, offset, path_); }

Status WorkFile::Begun() {
  digest_ = std::make_unique<Digest>(DigestKind::kSha256);
  if (!journal_.ends.empty() && journal_.begin == at_) return Ok();
  journal_.rows.clear();  // the keys have another length: nothing after them is where it was
  journal_.ends.clear();
  journal_.begin = at_;
  if (ftruncate(log_fd_, 0) != 0) return IoError(log_, errno);
  return Append(JournalHead(journal_.identity, at_));
}

const quant::TensorReport* WorkFile::Finished(size_t i) { return i < journal_.rows.size() ? &journal_.rows[i].report : nullptr; }

Status WorkFile::Skip(uint64_t bytes) {
  SLM_ASSERT(taken_ < journal_.rows.size());
  at_ += bytes;
  if (at_ == journal_.rows[taken_++].end) return Ok();
  return Error(Code::kInternal, part_ + ": its journal has other sizes than the plan", "delete it");
}

Status WorkFile::Finish(const quant::TensorReport& report) {
  Digest sum(DigestKind::kSha256);
  std::swap(sum, *digest_);
  journal_.rows.push_back({report, at_, sum.Hex()});
  return Append(JournalLine(journal_.rows.back()));
}

Status WorkFile::Commit() {
  if (ftruncate(fd_, static_cast<off_t>(at_)) != 0 || fsync(fd_) != 0 || rename(part_.c_str(), place_.c_str()) != 0) return Failed();
  const std::string folder = std::filesystem::path(place_).parent_path().string();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);  // some file systems refuse it for folders: the file itself is on the disk
    close(fd);
  }
  unlink(log_.c_str());
  return Ok();
}

void WorkFile::Discard() {
  unlink(part_.c_str());
  unlink(log_.c_str());
}

}  // namespace slm::cli
