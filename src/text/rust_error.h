// The last failure of the Rust side as an Error.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"
#include "slm_text.h"

namespace slm::text {

// `code` unless the message says otherwise: "internal:" is a bug of ours, "unknown ..." something this build cannot do.
inline Error LastRustError(Code code, std::string hint) {
  size_t n = 0;
  const char* data = slm_text_error(&n);
  std::string message = n > 0 ? std::string(data, n) : "no reason given";
  if (message.starts_with("internal:")) return Error(Code::kInternal, std::move(message), "please report this");
  if (message.starts_with("unknown ")) code = Code::kUnsupported;
  return Error(code, std::move(message), std::move(hint));
}

}  // namespace slm::text
