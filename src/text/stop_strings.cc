// Stop strings are few and short: a direct search of the held text is faster than any automaton would be to build.
#include "text/stop_strings.h"

#include <algorithm>

namespace slm::text {

Result<StopStrings> StopStrings::Create(std::vector<std::string> stops) {
  size_t longest = 0;
  for (const std::string& s : stops) {
    if (s.empty())
      return Error(Code::kInvalidArgument, "an empty stop string", "leave it out: an empty stop string would end every answer at once");
    longest = std::max(longest, s.size());
  }
  StopStrings result;
  result.stops_ = std::move(stops);
  // A token is rarely longer than 64 bytes; both strings grow once if one is.
  result.held_.reserve(longest + 256);
  result.out_.reserve(longest + 256);
  return result;
}

StopStrings::Output StopStrings::Push(std::string_view piece) {
  out_.clear();
  if (stopped_) return {};
  held_.append(piece);
  size_t first_end = std::string::npos, begin = 0;
  int stop = -1;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t at = held_.find(stops_[i]);
    if (at == std::string::npos) continue;
    const size_t end = at + stops_[i].size();
    if (end < first_end || (end == first_end && at < begin)) {
      first_end = end;
      begin = at;
      stop = static_cast<int>(i);
    }
  }
  if (stop >= 0) {
    stopped_ = true;
    out_.assign(held_, 0, begin);
    held_.clear();
    return {out_, stop};
  }
  // Hold back the longest end of the text that begins a stop string.
  size_t hold = 0;
  for (const std::string& s : stops_) {
    for (size_t n = std::min(s.size() - 1, held_.size()); n > hold; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(s).substr(0, n)) {
        hold = n;
        break;
      }
    }
  }
  out_.assign(held_, 0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return {out_, -1};
}

std::string_view StopStrings::Flush() {
  out_.clear();
  out_.append(held_);
  held_.clear();
  return out_;
}

void StopStrings::Reset() {
  held_.clear();
  out_.clear();
  stopped_ = false;
}

}  // namespace slm::text
