// libcurl easy interface; see http.h. Redirect rules follow RFC 9110 section 15.4 and the Fetch standard's rule on credentials.
#include "fetch/http.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

namespace slm::cli {
namespace {

constexpr size_t kKeptBody = 64u << 20, kErrorBody = 64u << 10, kHeaderBytes = 256u << 10;
constexpr int kMaxRedirects = 10;

struct UrlHandle {
  CURLU* url = curl_url();
  ~UrlHandle() { curl_url_cleanup(url); }
  std::string Get(CURLUPart part, unsigned flags = 0) const {
    char* text = nullptr;
    if (curl_url_get(url, part, &text, flags) != CURLUE_OK || !text) return {};
    std::string copy = text;
    curl_free(text);
    return copy;
  }
};

// What the callbacks of one exchange share.
struct Exchange {
  CURL* easy;
  const HttpRequest* request;
  const CancelFlag* cancel;
  HttpResponse response;
  size_t header_bytes = 0;
  bool begun = false;
  Status failure;  // of the caller's body function
};

size_t OnHeader(char* data, size_t, size_t n, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  std::string_view line(data, n);
  if (line.starts_with("HTTP/")) exchange.response.headers.clear();  // an interim answer came before
  exchange.header_bytes += n;
  if (exchange.header_bytes > kHeaderBytes) return 0;
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return n;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  line.remove_prefix(colon + 1);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  exchange.response.headers[name] = std::string(line);
  return n;
}

size_t OnBody(char* data, size_t, size_t n, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const HttpRequest& request = *exchange.request;
  HttpResponse& response = exchange.response;
  if (!exchange.begun) {
    exchange.begun = true;
    long status = 0;
    curl_easy_getinfo(exchange.easy, CURLINFO_RESPONSE_CODE, &status);
    response.status = static_cast<int>(status);
    if (response.status / 100 == 2 && request.begin) exchange.failure = request.begin(response.status, response.headers);
    if (!exchange.failure.ok()) return 0;
  }
  if (response.status / 100 == 2 && request.body) {
    exchange.failure = request.body({data, n});
    return exchange.failure.ok() ? n : 0;
  }
  const bool success = response.status / 100 == 2;
  if (!success) {
    response.body.append(data, std::min(n, kErrorBody - std::min(kErrorBody, response.body.size())));
    return n;
  }
  if (response.body.size() + n > kKeptBody) {
    exchange.failure = Error(Code::kCorrupt, "answer is larger than 64 MiB");
    return 0;
  }
  response.body.append(data, n);
  return n;
}

int OnProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Exchange*>(user)->cancel->load(std::memory_order_relaxed) ? 1 : 0;
}

Result<std::string> ResolveRedirect(const std::string& from, const std::string& location) {
  UrlHandle url;
  if (location.empty() || curl_url_set(url.url, CURLUPART_URL, from.c_str(), 0) != CURLUE_OK ||
      curl_url_set(url.url, CURLUPART_URL, location.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
    return Error(Code::kCorrupt, "redirect to an address that cannot be read");
  const std::string scheme = url.Get(CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https")
    return Error(Code::kUnsupported, "redirect to '" + scheme + ":' refused", "only http and https are followed");
  if (scheme == "http" && from.starts_with("https:"))
    return Error(Code::kUnsupported, "redirect from https to http refused", "the server or a proxy is misconfigured");
  return url.Get(CURLUPART_URL);
}

bool SameOrigin(const std::string& a, const std::string& b) {
  const auto x = ParseHttpUrl(a), y = ParseHttpUrl(b);
  return x.ok() && y.ok() && x.value().scheme == y.value().scheme && x.value().host == y.value().host && x.value().port == y.value().port;
}

}  // namespace

std::string HttpResponse::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? std::string() : it->second;
}

struct HttpClient::State {
  HttpOptions options;
  const CancelFlag* cancel;
  CURL* easy = nullptr;
  ~State() { curl_easy_cleanup(easy); }
  Result<HttpResponse> Once(const HttpRequest& request, const std::string& url, const std::string& bearer);
};

HttpClient::HttpClient(HttpOptions options, const CancelFlag* cancel) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->cancel = cancel;
  state_->easy = curl_easy_init();
}
HttpClient::~HttpClient() = default;

Result<HttpResponse> HttpClient::State::Once(const HttpRequest& request, const std::string& url, const std::string& bearer) {
  if (!easy) return Error(Code::kInternal, "libcurl cannot be started");
  curl_easy_reset(easy);  // keeps connections
  Exchange exchange{easy, &request, cancel, {}, 0, false, {}};
  curl_slist* headers = nullptr;
  for (const std::string& header : request.headers) headers = curl_slist_append(headers, header.c_str());
  if (!bearer.empty()) headers = curl_slist_append(headers, ("Authorization: Bearer " + bearer).c_str());
  char reason[CURL_ERROR_SIZE] = {};
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_NOBODY, request.method == HttpMethod::kHead ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, options.user_agent.c_str());
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 20L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, OnProgress);
  curl_easy_setopt(easy, CURLOPT_XFERINFODATA, &exchange);
  const CURLcode code = curl_easy_perform(easy);
  curl_slist_free_all(headers);
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  exchange.response.status = static_cast<int>(status);
  if (code == CURLE_ABORTED_BY_CALLBACK)
    return Error(Code::kCancelled, "interrupted", "run the same command again to go on where it stopped");
  if (!exchange.failure.ok()) return exchange.failure.error();
  if (code != CURLE_OK) {
    const std::string why = reason[0] ? reason : curl_easy_strerror(code);
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL)
      return Error(Code::kInvalidArgument, why, "an endpoint looks like https://host");
    return Error(Code::kUnavailable, why, "check the network connection and proxy settings");
  }
  // An answer without a body (a file of 0 bytes) has begun all the same.
  if (!exchange.begun && exchange.response.status / 100 == 2 && request.begin && request.method == HttpMethod::kGet)
    SLM_RETURN_IF_ERROR(request.begin(exchange.response.status, exchange.response.headers));
  return std::move(exchange.response);
}

Result<HttpResponse> HttpClient::Send(const HttpRequest& request) {
  std::string url = request.url, bearer = request.bearer;
  SLM_ASSIGN_OR_RETURN([[maybe_unused]] const UrlParts checked, ParseHttpUrl(url));
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    SLM_ASSIGN_OR_RETURN(HttpResponse response, state_->Once(request, url, bearer));
    const bool redirect =
        response.status == 301 || response.status == 302 || response.status == 303 || response.status == 307 || response.status == 308;
    if (!redirect || (request.follow && !request.follow(response))) return response;
    SLM_ASSIGN_OR_RETURN(std::string next, ResolveRedirect(url, response.Header("location")));
    if (!SameOrigin(url, next)) bearer.clear();  // and it never comes back, even if a later hop returns to the first host
    url = std::move(next);
  }
  return Error(Code::kUnsupported, "more than 10 redirects", "the server sends requests in a circle");
}

Result<HttpResponse> HttpClient::SendRetrying(const HttpRequest& request, int attempts) {
  for (int n = 1;; ++n) {
    auto response = Send(request);
    const bool retry = response.ok() ? IsRetryStatus(response.value().status) : response.error().code() == Code::kUnavailable;
    if (!retry || n >= attempts) return response;
    SLM_ASSIGN_OR_RETURN(const double seconds, RetryPause(n, response.ok() ? response.value().Header("retry-after") : std::string()));
    SLM_RETURN_IF_ERROR(Pause(seconds, state_->cancel));
  }
}

bool IsRetryStatus(int status) {
  return status == 408 || status == 429 || (status >= 500 && status <= 599 && status != 501 && status != 505);
}

Result<double> RetryPause(int n, const std::string& retry_after) {
  constexpr double kLongest = 120;
  double seconds = 0;
  const auto [end, error] = std::from_chars(retry_after.data(), retry_after.data() + retry_after.size(), seconds);
  if (error == std::errc() && end == retry_after.data() + retry_after.size() && seconds >= 0) {
    if (seconds > kLongest)
      return Error(Code::kUnavailable, "the server asks to wait " + retry_after + " s", "try again then; what is here is kept");
    return seconds;
  }
  return std::min(8.0, 0.25 * static_cast<double>(1u << std::min(n, 10)));
}

Status Pause(double seconds, const CancelFlag* cancel) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (cancel->load(std::memory_order_relaxed))
      return Error(Code::kCancelled, "interrupted", "run the same command again to go on where it stopped");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return Ok();
}

std::string UrlEncode(std::string_view text, Slash slash) {
  std::string encoded;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~';
    if (plain || (c == '/' && slash == Slash::kKeep)) {
      encoded += c;
    } else {
      constexpr char kDigits[] = "0123456789ABCDEF";
      encoded += {'%', kDigits[static_cast<unsigned char>(c) >> 4], kDigits[static_cast<unsigned char>(c) & 15]};
    }
  }
  return encoded;
}

Result<UrlParts> ParseHttpUrl(const std::string& url) {
  UrlHandle handle;
  const Error bad(Code::kInvalidArgument, url + ": not an http or https address", "write it as https://host or http://host:port");
  if (!(url.starts_with("http://") || url.starts_with("https://"))) return bad;
  if (curl_url_set(handle.url, CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return bad;
  if (!handle.Get(CURLUPART_USER).empty() || !handle.Get(CURLUPART_PASSWORD).empty())
    return Error(Code::kInvalidArgument, "an address with a name or password in it", "give a token by HF_TOKEN instead");
  UrlParts parts{handle.Get(CURLUPART_SCHEME), handle.Get(CURLUPART_HOST), handle.Get(CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  if (parts.host.empty()) return bad;
  std::transform(parts.host.begin(), parts.host.end(), parts.host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return parts;
}

bool IsLoopbackHost(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  if (!host.starts_with('[') || !host.ends_with(']')) return false;
  in6_addr v6;
  return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace slm::cli
