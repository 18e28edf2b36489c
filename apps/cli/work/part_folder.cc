// See part_folder.h.
#include "work/part_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLock = ".slmkit.lock";

Error IoError(const std::string& path, const std::string& why) {
  return Error(Code::kIo, path + ": " + why, "check the path, its permissions and the free space");
}

// Links resolved, without a separator at the end.
Result<std::string> PlaceOfFolder(const std::string& path) {
  std::error_code failed;
  fs::path place = fs::weakly_canonical(fs::absolute(path, failed), failed);
  if (failed) return IoError(path, failed.message());
  if (!place.has_filename()) place = place.parent_path();
  return place.string();
}

void FlushFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems refuse it for folders: the files themselves are on the disk
  close(fd);
}

// What a killed run left, its lock excepted.
Status Clear(const std::string& part) {
  std::error_code failed;
  for (const fs::directory_entry& e : fs::directory_iterator(part, failed))
    if (std::error_code kept; e.path().filename() != kLock) fs::remove_all(e.path(), kept);
  return failed ? Status(IoError(part, failed.message())) : Ok();
}

}  // namespace

Result<PartFolder> PartFolder::Create(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(std::string place, PlaceOfFolder(path));
  std::error_code failed;
  if (fs::exists(place, failed) && (!fs::is_directory(place, failed) || !fs::is_empty(place, failed)))
    return Error(Code::kInvalidArgument, path + ": is there already", "name a new folder, or an empty one");
  const std::string part = place + ".part", lock = part + "/" + kLock;
  if (fs::exists(fs::symlink_status(part, failed)) &&
      (fs::is_symlink(part, failed) || !fs::is_directory(part, failed) || !fs::exists(lock, failed)))
    return Error(Code::kInvalidArgument, part + ": is in the way and not what slm leaves behind", "move it away, or choose another folder");
  failed.clear();
  fs::create_directories(part, failed);
  if (failed) return IoError(path, failed.message());
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return IoError(lock, strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return Error(Code::kUnavailable, path + ": another slm is writing it", "wait for it, or choose another folder");
  }
  PartFolder folder(std::move(place), fd);
  SLM_RETURN_IF_ERROR(Clear(part));
  return folder;
}

PartFolder::PartFolder(PartFolder&& other) noexcept
    : place_(std::move(other.place_)), part_(std::move(other.part_)), lock_(std::exchange(other.lock_, -1)) {}

PartFolder::~PartFolder() {
  if (lock_ < 0) return;
  std::error_code ignored;
  fs::remove_all(part_, ignored);
  close(lock_);
}

Status PartFolder::Commit() {
  if (unlink(File(kLock).c_str()) != 0) return IoError(part_, strerror(errno));
  FlushFolder(part_);
  if (rename(part_.c_str(), place_.c_str()) != 0) return IoError(place_, strerror(errno));
  FlushFolder(fs::path(place_).parent_path().string());
  close(std::exchange(lock_, -1));
  return Ok();
}

}  // namespace slm::cli
