// Result<T>: failures as values at every door.
//
// What: an error is a code, a context chain ("gguf: blk.3.attn_q: offset past end") and a hint that says what to do next.
// Why here: no exception crosses a door of this library and C++20 has no std::expected. Shape after abseil's StatusOr.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace slm {

enum class Code : unsigned char {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kNotFound,         // a file, tensor, name that is not there
  kCorrupt,          // bytes that contradict themselves or their container's specification
  kUnsupported,      // well formed, but not something this build can do
  kUnavailable,      // an optional part (library, device, network) is absent
  kLimit,            // context, memory budget, gate: a limit said no
  kIo,               // the operating system refused
  kCancelled,        // stopped on request
  kInternal,         // a bug on our side
};

// Lower-case name of a code, as printed in JSON ("invalid_argument").
const char* CodeName(Code code);

class [[nodiscard]] Error {
 public:
  Error(Code code, std::string message, std::string hint = {}) : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  // Puts `place` before the message: Error("offset past end").At("blk.3").At("gguf") reads "gguf: blk.3: offset past end".
  Error At(const std::string& place) const { return Error(code_, place + ": " + message_, hint_); }

 private:
  Code code_;
  std::string message_;
  std::string hint_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return v_.index() == 0; }
  T& value() {
    SLM_ASSERT(ok());
    return *std::get_if<0>(&v_);
  }
  const T& value() const {
    SLM_ASSERT(ok());
    return *std::get_if<0>(&v_);
  }
  T Take() { return std::move(value()); }
  const Error& error() const {
    SLM_ASSERT(!ok());
    return *std::get_if<1>(&v_);
  }

 private:
  std::variant<T, Error> v_;
};

// A call that yields nothing but success or failure.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  const Error& error() const {
    SLM_ASSERT(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

inline Status Ok() { return {}; }

}  // namespace slm

#define SLM_CONCAT_(a, b) a##b
#define SLM_CONCAT(a, b) SLM_CONCAT_(a, b)
// Returns the error of a Status expression to the caller.
#define SLM_RETURN_IF_ERROR(expr)                                                 \
  do {                                                                            \
    if (auto slm_status_ = (expr); !slm_status_.ok()) return slm_status_.error(); \
  } while (0)
// SLM_ASSIGN_OR_RETURN(auto x, Call()): the value of a Result expression, or its error to the caller.
#define SLM_ASSIGN_OR_RETURN(decl, expr)                                                         \
  auto SLM_CONCAT(slm_result_, __LINE__) = (expr);                                               \
  if (!SLM_CONCAT(slm_result_, __LINE__).ok()) return SLM_CONCAT(slm_result_, __LINE__).error(); \
  decl = SLM_CONCAT(slm_result_, __LINE__).Take()
