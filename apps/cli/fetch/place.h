// What every kind of fetch shares: its working folder, its lock, the space check, and putting finished files in place.
#pragma once
#include <cstdint>
#include <string>

#include "base/result.h"
#include "store.h"

namespace slm::cli {

struct Fetched {
  StoredModel model;
  bool resumed = false;  // bytes of an earlier, unfinished run were used
};

// Holds <root>/tmp/<name>.lock, so that two fetches of one name, or a fetch and a removal, do not write into each other. Freed
// when it goes away, also by a crash. Errors: kUnavailable when another process holds it, kIo.
class FetchLock {
 public:
  static Result<FetchLock> Take(const std::string& root, const std::string& name);
  FetchLock(FetchLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FetchLock& operator=(FetchLock&&) = delete;
  ~FetchLock();

 private:
  explicit FetchLock(int fd) : fd_(fd) {}
  int fd_;
};

// Errors: kIo with both numbers when the file system of `folder` has fewer than `bytes` (and a reserve of 64 MiB) free.
Status CheckFreeSpace(const std::string& folder, uint64_t bytes);

Status MakeFolder(const std::string& path);   // with its parents
Status EmptyFolder(const std::string& path);  // exists and has nothing in it afterwards

// `from` at `to`, parents made: a second name of the same bytes where the file system can, else a copy.
enum class Sharing : unsigned char { kLink, kCopy };
Status PlaceFile(const std::string& from, const std::string& to, Sharing sharing);

// Writes slm.json into the ready folder, syncs all of it to the disk, moves it into the store and returns the model as
// FindModel sees it: a model that is there is whole, also after a power cut.
Result<StoredModel> FinishModel(const std::string& root, const StoredModel& model);

}  // namespace slm::cli
