// StopStrings: finds stop strings in a stream and holds back what may become one.
//
// The stop string that is complete first wins (the longer one if two end together), wherever the stream is cut into pieces:
// the answer does not depend on how the tokens fell.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace slm::text {

class StopStrings {
 public:
  // Errors: kInvalidArgument for an empty stop string. No stop strings at all is fine.
  static Result<StopStrings> Create(std::vector<std::string> stops);

  struct Output {
    std::string_view text;  // text that is certain now; valid until the next call
    int stop = -1;          // index of the stop string that ended the text, or -1; `text` ends right before it
  };
  // Takes the next piece. After a stop nothing more comes out until Reset. No allocation once pieces stop growing.
  Output Push(std::string_view piece);
  // The end of the stream: what was held back. Valid until the next call.
  std::string_view Flush();
  void Reset();
  const std::vector<std::string>& stops() const { return stops_; }

 private:
  std::vector<std::string> stops_;
  std::string held_, out_;
  bool stopped_ = false;
};

}  // namespace slm::text
