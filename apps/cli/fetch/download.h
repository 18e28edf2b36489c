// One file over HTTP into a local path: resumed where it stopped, checked against its etag, retried.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "fetch/http.h"
#include "verb.h"

namespace slm::cli {

struct Download {
  std::string label;  // for messages
  std::string url;
  std::string bearer;                      // token, or empty
  uint64_t bytes = 0;                      // announced size; more or fewer is an error
  std::string etag;                        // 64 hex digits: SHA-256 of the file; 40: git's blob SHA-1; anything else cannot be checked
  std::string part;                        // path while unfinished; what lies there is continued
  std::string done;                        // path once complete and checked
  int attempts = 5;                        // tries in a row that bring nothing
  std::function<void(uint64_t)> progress;  // bytes of this file so far
};

struct Downloaded {
  std::string sha256;
  bool resumed = false;  // some of it was here from an earlier run
};

// Errors: kUnavailable when it keeps failing (what came is kept), kCorrupt when size or checksum are wrong (deleted), kIo for
// the disk, kCancelled; for 401, 403, 404 and the like, see StatusError.
Result<Downloaded> DownloadFile(HttpClient& client, const CancelFlag* cancel, const Download& download);

// The error of an answer that is neither 2xx nor worth a retry. Reads the hub's X-Error-Code and X-Error-Message.
enum class TokenGiven : unsigned char { kNo, kYes };
Error StatusError(const HttpResponse& response, const std::string& what, TokenGiven token);

}  // namespace slm::cli
