// A folder that appears whole or not at all: it grows as DST.part beside its place and is renamed when it is whole. Nothing is taken over
// from a run that was killed: what it left is found by its lock file and written anew.
#pragma once
#include <string>

#include "base/result.h"

namespace slm::cli {

// Owned by one thread. The destructor takes the folder away again unless it was committed.
class PartFolder {
 public:
  // `path`: a new folder, or an empty one. One run at a time: a lock says so. Errors: kInvalidArgument (something is there, or in the way
  // of DST.part), kUnavailable (another run is writing it), kIo.
  static Result<PartFolder> Create(const std::string& path);
  PartFolder(PartFolder&& other) noexcept;
  PartFolder& operator=(PartFolder&&) = delete;
  ~PartFolder();

  const std::string& path() const { return part_; }  // where its files go until Commit
  std::string File(const std::string& name) const { return part_ + "/" + name; }
  // Puts the folder in its place; its files are on the disk already. Errors: kIo.
  Status Commit();

 private:
  PartFolder(std::string place, int lock) : place_(std::move(place)), part_(place_ + ".part"), lock_(lock) {}
  std::string place_, part_;
  int lock_ = -1;
};

}  // namespace slm::cli
