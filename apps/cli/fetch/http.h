// One HTTP exchange through libcurl, with the rules a downloader needs: http and https only, redirects followed here and not by
// curl, credentials never given to another host, bodies bounded, Ctrl-C heard.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

enum class HttpMethod : unsigned char { kGet, kHead };
struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;         // names in lower case
  std::string body;                                   // kept bodies, and the first 64 KiB of any answer that is not 2xx
  std::string Header(const std::string& name) const;  // empty when absent
};

struct HttpRequest {
  std::string url;
  HttpMethod method = HttpMethod::kGet;
  std::function<bool(const HttpResponse&)> follow;  // is this redirect to be followed? without it: all are
  std::vector<std::string> headers;                 // "Name: value"
  std::string bearer;                               // token; sent to the host of `url` only, empty: none
  // Where the body of a 2xx answer goes, piece by piece; `begin` is called first with its status and headers. A failed Status
  // stops the transfer and is returned. Without a body function the body is kept in HttpResponse::body, at most 64 MiB.
  std::function<Status(int status, const std::map<std::string, std::string>& headers)> begin;
  std::function<Status(std::string_view)> body;
};

struct HttpOptions {
  int stall_seconds = 30;  // give up on a connection that moves nothing for so long
  std::string user_agent;
};

class HttpClient {
 public:
  HttpClient(HttpOptions options, const CancelFlag* cancel);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends and follows at most 10 redirects. Any status is a value. Errors: kUnavailable when the connection failed or broke
  // (worth a retry), kCancelled, kInvalidArgument for a bad URL, kUnsupported for a refused redirect, or the body's own error.
  Result<HttpResponse> Send(const HttpRequest& request);

  // Send, repeated after kUnavailable, 408, 429 and 5xx with growing pauses (or what Retry-After says). For small bodies.
  Result<HttpResponse> SendRetrying(const HttpRequest& request, int attempts);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

bool IsRetryStatus(int status);

// Seconds to wait before attempt `n` (1 is the first repeat): Retry-After in seconds if given, else 0.5, 1, 2, 4, 8.
// Errors: kUnavailable when the server asks for more than 120 s.
Result<double> RetryPause(int n, const std::string& retry_after);

// Sleeps; kCancelled when Ctrl-C came.
Status Pause(double seconds, const CancelFlag* cancel);

// Percent-encodes everything but unreserved characters; '/' is kept where `keep` says so.
enum class Slash : unsigned char { kKeep, kEncode };
std::string UrlEncode(std::string_view text, Slash slash);

struct UrlParts {
  std::string scheme, host, port;  // port as a number, the scheme's own where none is written
};
// Errors: kInvalidArgument when `url` is no absolute http or https URL or carries credentials.
Result<UrlParts> ParseHttpUrl(const std::string& url);

// Is UrlParts::host this machine: localhost (RFC 6761 section 6.3), an address of 127.0.0.0/8, or [::1]? A name that merely
// begins like such an address is not.
bool IsLoopbackHost(const std::string& host);

}  // namespace slm::cli
