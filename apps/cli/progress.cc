// Draws progress; see progress.h.
#include "progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "printable.h"

namespace slm::cli {

std::string FormatBytes(uint64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1000000) return fmt::format("{:.1f} kB", b / 1e3);
  if (bytes < 1000000000) return fmt::format("{:.1f} MB", b / 1e6);
  return fmt::format("{:.2f} GB", b / 1e9);
}

Progress::Progress(Io& io, std::string_view label, uint64_t total, Unit unit)
    : io_(io), label_(Printable(label, Show::kLine)), total_(total), unit_(unit), start_ns_(NowNs()) {}

void Progress::Update(uint64_t done) {
  done_ = done;
  if (total_ == 0 || finished_) return;
  if (io_.err_terminal == Terminal::kYes) {
    constexpr int64_t kRedrawNs = 100'000'000;
    const int64_t now = NowNs();
    if (now - drawn_ns_ < kRedrawNs) return;
    drawn_ns_ = now;
    Draw(done);
    return;
  }
  const uint64_t tenths = static_cast<uint64_t>(static_cast<double>(done) * 10 / static_cast<double>(total_));
  if (tenths <= tenths_ || tenths >= 10) return;  // 100 % is Finish's line
  tenths_ = tenths;
  io_.Note(fmt::format("{}: {} %{}", label_, tenths * 10, Left(done)));
}

std::string Progress::Left(uint64_t done) const {
  constexpr double kSoonest = 2;  // seconds, before which a guess says nothing
  const double seconds = static_cast<double>(NowNs() - start_ns_) * 1e-9;
  if (seconds < kSoonest || done == 0 || done >= total_) return {};
  const double left = seconds * static_cast<double>(total_ - done) / static_cast<double>(done);
  return left < 90 ? fmt::format(", about {:.0f} s left", left) : fmt::format(", about {:.0f} min left", left / 60);
}

void Progress::Draw(uint64_t done) {
  constexpr size_t kBar = 24;
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const size_t full = static_cast<size_t>(part * kBar);
  const double seconds = std::max(1e-3, static_cast<double>(NowNs() - start_ns_) * 1e-9);
  std::string count;
  if (unit_ == Unit::kBytes) {
    const auto rate = static_cast<uint64_t>(static_cast<double>(done) / seconds);
    count = fmt::format("{} of {}, {}/s", FormatBytes(done), FormatBytes(total_), FormatBytes(rate));
  } else {
    count = fmt::format("{} of {}", done, total_);
  }
  count += Left(done);
  io_.err(fmt::format("\r\x1b[K{} [{}{}] {:3.0f} % {}", label_, std::string(full, '='), std::string(kBar - full, ' '), part * 100, count));
  line_open_ = true;
}

void Progress::Finish() {
  if (finished_) return;
  finished_ = true;
  if (io_.err_terminal == Terminal::kYes && total_ > 0) {
    Draw(done_);
    io_.err("\n");
    line_open_ = false;
    return;
  }
  const double seconds = static_cast<double>(NowNs() - start_ns_) * 1e-9;
  const std::string amount = unit_ == Unit::kBytes ? FormatBytes(done_) : fmt::format("{} steps", done_);
  io_.Note(fmt::format("{}: done, {} in {:.1f} s", label_, amount, seconds));
}

Progress::~Progress() {
  if (line_open_) io_.err("\n");
}

}  // namespace slm::cli
