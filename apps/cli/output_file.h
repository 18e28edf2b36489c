// A file that appears whole or not at all: written beside its place under another name, flushed to the disk, then renamed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

// Owned by one thread. Without Commit, the destructor takes back what was written and an older file stays as it was.
class OutputFile {
 public:
  // `path`: a new file, or one to replace, whose permissions are kept; of a symbolic link, the file it points to. A pipe or device
  // is written directly. Errors, naming `path`: kInvalidArgument (a folder), kIo.
  static Result<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // Appends all bytes. Errors: kIo, with the system's reason.
  Status Write(std::span<const std::byte> bytes);
  // Puts the file in its place. Errors: kIo.
  Status Commit();

 private:
  OutputFile(std::string path, std::string place, std::string part, int fd)
      : path_(std::move(path)), place_(std::move(place)), part_(std::move(part)), fd_(fd) {}
  Error Failed() const;
  std::string path_;   // as the caller spells it
  std::string place_;  // where it goes, links resolved
  std::string part_;   // where it is until then; empty: written directly
  int fd_ = -1;
};

// Where a regular file at `path`, new or to be replaced, goes: of a symbolic link, what it points to. Errors as Create.
Result<std::string> PlaceOf(const std::string& path);
// Is something at `path` that is written directly: a pipe, a device?
bool IsDirect(const std::string& path);

// Bytes of the file at `path`, or of the files right in the folder there; what cannot be read counts nothing.
uint64_t BytesOf(const std::string& path);

// Create for a verb: interrupted while it waits for a pipe's reader, it says so. Errors as Create, kCancelled.
Result<OutputFile> OpenOutput(const std::string& path, const Io& io);
// The next bytes of `file` at `path`. Errors: kCancelled after an interrupt, and Write's.
Status WriteUnlessCancelled(OutputFile& file, std::span<const std::byte> bytes, const std::string& path, const Io& io);
// A whole file at once. Errors: those of both.
Status WriteTextFile(const std::string& path, const std::string& text, const Io& io);

// A path beside `near` that nothing had, held by an empty file until it is written; what is there goes away with this object.
class PassingFile {
 public:
  // Errors: kIo, naming `near`.
  static Result<PassingFile> Create(const std::string& near);
  PassingFile(PassingFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PassingFile& operator=(PassingFile&&) = delete;
  ~PassingFile();
  const std::string& path() const { return path_; }

 private:
  explicit PassingFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Which files beside a model's single file count as its own: those with the same extension, which may be its shards, for an output
// that is no model; or only those whose names say that they are, for one that is.
enum class Neighbours : unsigned char { kSameExtension, kShards };
// Refuses an output that is a file of the model at `model`, whatever its spelling: any file of a model folder; of a single file, it
// and its neighbours. Error: kInvalidArgument.
Status RefuseModelFile(const std::string& out, const std::string& model, Neighbours neighbours);
// Refuses an output that is the file `input`, whatever its spelling; an empty path is no file. Error: kInvalidArgument.
Status RefuseInput(const std::string& out, const std::string& input);

}  // namespace slm::cli
