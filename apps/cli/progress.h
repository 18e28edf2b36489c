// Progress on stderr: a bar on a terminal, one line per 10 % elsewhere; with the time that is left once two seconds have passed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "verb.h"

namespace slm::cli {

class Progress {
 public:
  // `label` names the work ("model.safetensors"); `total` is in the caller's unit, 0 when not known (then only Finish writes).
  enum class Unit : unsigned char { kBytes, kSteps };
  Progress(Io& io, std::string_view label, uint64_t total, Unit unit = Unit::kBytes);
  // Work done so far, absolute. Cheap: writes only when the picture changes, on a terminal at most 10 times a second.
  void Update(uint64_t done);
  // Writes the last state and ends the line. Called by the destructor if work stopped half-way (the bar stays as it was).
  void Finish();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void Draw(uint64_t done);
  std::string Left(uint64_t done) const;  // ", about 80 s left", once that can be told
  Io& io_;
  std::string label_;
  uint64_t total_;
  Unit unit_;
  uint64_t done_ = 0;
  int64_t start_ns_;
  int64_t drawn_ns_ = 0;
  uint64_t tenths_ = 0;     // lines written so far, in steps of 10 %
  bool line_open_ = false;  // a bar is on the current line
  bool finished_ = false;
};

// "98.4 MB", decimal units.
std::string FormatBytes(uint64_t bytes);

}  // namespace slm::cli
