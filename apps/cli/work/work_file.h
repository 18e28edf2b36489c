// A file whose writing outlives a kill: it grows as DST.part beside its place, with a journal of what is finished, and is renamed when it
// is whole. The same command run again takes over what is there.
//
// What is believed: nothing but bytes whose sum stands in a journal whose identity (source, recipe, program) is the caller's. So no
// flush is needed on the way: pages that a power cut lost fail their sum, and the work is taken up before them. The file is flushed once,
// before it gets its name; the folder after.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "quant/quant.h"
#include "verb.h"
#include "work/journal.h"

namespace slm::cli {

// Owned by one thread. The destructor leaves the work where it is; Discard takes it away.
class WorkFile final : public quant::Work {
 public:
  // `path`: as OutputFile::Create has it, for regular files only. `identity`: 64 hexadecimal digits. Takes over what an earlier run with
  // the same identity left; throws away, with a note, what one with another left. One run at a time: a lock of the journal says so.
  // Errors: kInvalidArgument (files in the way that are no work, a folder), kUnavailable (another run is writing it), kIo.
  static Result<std::unique_ptr<WorkFile>> Open(const std::string& path, const std::string& identity, Io& io);
  ~WorkFile() override;
  WorkFile(const WorkFile&) = delete;
  WorkFile& operator=(const WorkFile&) = delete;

  size_t finished() const { return journal_.rows.size(); }  // tensors
  const std::string& part() const { return part_; }         // where the bytes are until Commit

  // The next bytes. Errors: kIo, kCancelled after an interrupt.
  Status Write(std::span<const std::byte> bytes);
  // Bytes in the place of others, before Commit.
  Status Overwrite(uint64_t offset, std::string_view bytes);
  // Flushes the file and puts it in its place; the journal goes. Errors: kIo.
  Status Commit();
  void Discard();

  Status Begun() override;
  const quant::TensorReport* Finished(size_t i) override;
  Status Skip(uint64_t bytes) override;
  Status Finish(const quant::TensorReport& report) override;

 private:
  WorkFile(std::string path, std::string place, Io& io);
  Status OpenFiles();
  Status TakeOver(const std::string& identity);
  Status Believe();
  Error Failed() const;
  Status Append(const std::string& line);

  std::string path_, place_, part_, log_;  // as spelled; where it goes; where it grows; the journal
  Io& io_;
  int fd_ = -1, log_fd_ = -1;
  Journal journal_;
  size_t taken_ = 0;                      // rows of the journal that the writer skipped
  uint64_t at_ = 0;                       // where the next bytes go
  std::unique_ptr<class Digest> digest_;  // of the bytes since the row before
};

// The identity of what `plan` makes of `m`: its files as they lie (place, size, time), the plan, `recipe` (all options as one text) and
// this program. Errors: kIo.
Result<std::string> WorkIdentity(const model::Model& m, const quant::Plan& plan, const std::string& recipe);

}  // namespace slm::cli
