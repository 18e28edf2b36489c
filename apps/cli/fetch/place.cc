// File-system steps of a fetch; see place.h.
#include "fetch/place.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "progress.h"

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

Error Failed(const std::string& path, const std::string& why) {
  return Error(Code::kIo, path + ": " + why, "check permissions and free space; SLM_HOME moves the store");
}

// The file or folder `path` as it is now survives a power cut.
Status Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed(path, strerror(errno));
  const int why = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // Some file systems cannot sync folders; there is nothing to be done about it.
  return why == 0 || why == EINVAL || why == ENOTSUP ? Ok() : Status(Failed(path, strerror(why)));
}

// The same for all that is in `folder`.
Status SyncTree(const std::string& folder) {
  std::error_code ec;
  for (fs::recursive_directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code kind;
    if (it->is_symlink(kind) || !(it->is_regular_file(kind) || it->is_directory(kind))) continue;
    SLM_RETURN_IF_ERROR(Sync(it->path().string()));
  }
  if (ec) return Failed(folder, ec.message());
  return Sync(folder);
}

}  // namespace

Result<FetchLock> FetchLock::Take(const std::string& root, const std::string& name) {
  SLM_RETURN_IF_ERROR(MakeFolder(root + "/tmp"));
  const std::string path = root + "/tmp/" + name + ".lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return Failed(path, strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int why = errno;
    close(fd);
    if (why == EWOULDBLOCK)
      return Error(Code::kUnavailable, name + ": another slm fetch or rm of it is running", "wait for it, or choose another --name");
    return Failed(path, strerror(why));
  }
  return FetchLock(fd);
}

FetchLock::~FetchLock() {
  if (fd_ >= 0) close(fd_);
}

Status CheckFreeSpace(const std::string& folder, uint64_t bytes) {
  constexpr uint64_t kReserve = 64u << 20;
  std::error_code ec;
  const fs::space_info space = fs::space(folder, ec);
  if (ec) return Failed(folder, ec.message());
  if (bytes < UINT64_MAX - kReserve && space.available >= bytes + kReserve) return Ok();
  return Error(Code::kIo, folder + ": needs " + FormatBytes(bytes) + ", " + FormatBytes(space.available) + " are free",
               "free some space, or set SLM_HOME to a larger disk");
}

Status MakeFolder(const std::string& path) {
  std::error_code ec;
  fs::create_directories(path, ec);
  return ec ? Status(Failed(path, ec.message())) : Ok();
}

Status EmptyFolder(const std::string& path) {
  std::error_code ec;
  fs::remove_all(path, ec);
  if (ec) return Failed(path, ec.message());
  return MakeFolder(path);
}

Status PlaceFile(const std::string& from, const std::string& to, Sharing sharing) {
  SLM_RETURN_IF_ERROR(MakeFolder(fs::path(to).parent_path().string()));
  std::error_code ec;
  if (sharing == Sharing::kLink) {
    fs::create_hard_link(from, to, ec);
    if (!ec) return Ok();
  }
  ec.clear();
  fs::copy_file(from, to, ec);
  return ec ? Status(Failed(to, ec.message())) : Ok();
}

Result<StoredModel> FinishModel(const std::string& root, const StoredModel& model) {
  SLM_RETURN_IF_ERROR(WriteManifest(ReadyFolder(root, model.name), model));
  SLM_RETURN_IF_ERROR(SyncTree(ReadyFolder(root, model.name)));
  SLM_RETURN_IF_ERROR(PublishModel(root, model.name));
  SLM_RETURN_IF_ERROR(Sync(root + "/models"));
  return FindModel(root, model.name);
}

}  // namespace slm::cli
