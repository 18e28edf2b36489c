// Range requests after RFC 9110 sections 13.1.5 (If-Range) and 14: a part is continued only with the same strong etag, and every
// byte, old or new, passes through the checksum.
#include "fetch/download.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include "fetch/digest.h"

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

// The unfinished file: its length, and the digests of exactly that many bytes.
class PartFile {
 public:
  PartFile(std::string path, uint64_t total_bytes, bool git_etag) : path_(std::move(path)), total_(total_bytes), git_(git_etag) {}
  ~PartFile() {
    if (fd_ >= 0) close(fd_);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  Status Open() {
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    struct stat info = {};
    if (fd_ < 0 || fstat(fd_, &info) != 0) return SystemError("cannot be opened");
    size_ = static_cast<uint64_t>(info.st_size);
    if (size_ > total_) return Restart();
    ResetDigests();
    SLM_RETURN_IF_ERROR(AddFile(path_, sha256_, size_));
    if (git_) SLM_RETURN_IF_ERROR(AddFile(path_, git_digest_, size_));
    if (lseek(fd_, 0, SEEK_END) < 0) return SystemError("cannot be positioned");
    return Ok();
  }

  Status Restart() {
    if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) < 0) return SystemError("cannot be emptied");
    size_ = 0;
    ResetDigests();
    return Ok();
  }

  Status Append(std::string_view bytes) {
    sha256_.Add(bytes);
    if (git_) git_digest_.Add(bytes);
    while (!bytes.empty()) {
      const ssize_t n = write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return SystemError("cannot be written");
      bytes.remove_prefix(static_cast<size_t>(n));
      size_ += static_cast<uint64_t>(n);
    }
    return Ok();
  }

  Status Sync() { return fsync(fd_) == 0 ? Ok() : Status(SystemError("cannot be written")); }
  uint64_t size() const { return size_; }
  std::string Sha256() { return sha256_.Hex(); }
  std::string GitSha1() { return git_digest_.Hex(); }

 private:
  void ResetDigests() {
    sha256_ = Digest(DigestKind::kSha256);
    git_digest_ = Digest::GitBlob(total_);
  }
  Error SystemError(const char* what) const {
    return Error(Code::kIo, path_ + ": " + what + ": " + strerror(errno), "check permissions and free space; SLM_HOME moves the store");
  }

  std::string path_;
  uint64_t total_;
  bool git_;
  int fd_ = -1;
  uint64_t size_ = 0;
  Digest sha256_{DigestKind::kSha256};
  Digest git_digest_{DigestKind::kSha1};
};

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  std::string text;
  std::getline(in, text);
  return text;
}

bool IsStrongEtag(const std::string& etag) { return etag.size() > 2 && etag.front() == '"' && etag.back() == '"'; }

// "bytes 100-199/200": the first position and the total; nothing when malformed.
struct ContentRange {
  uint64_t first, total;
};
std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) return std::nullopt;
  ContentRange range{};
  const std::string_view first = text.substr(0, dash), total = text.substr(slash + 1);
  const auto a = std::from_chars(first.data(), first.data() + first.size(), range.first);
  const auto b = std::from_chars(total.data(), total.data() + total.size(), range.total);
  const bool good =
      a.ec == std::errc() && a.ptr == first.data() + first.size() && b.ec == std::errc() && b.ptr == total.data() + total.size();
  return good ? std::optional(range) : std::nullopt;
}

// What `begin` decides from the status line and headers, before the first byte is taken.
Status BeginBody(const Download& d, PartFile& part, int status, const std::map<std::string, std::string>& headers) {
  const std::string etag_path = d.part + ".etag";
  const auto etag = headers.find("etag");
  const std::string now = etag != headers.end() && IsStrongEtag(etag->second) ? etag->second : std::string();
  if (status == 206) {
    const auto field = headers.find("content-range");
    const auto range = field == headers.end() ? std::nullopt : ParseContentRange(field->second);
    const std::string before = ReadText(etag_path);
    const bool same = range && range->first == part.size() && range->total == d.bytes && (now.empty() || before.empty() || now == before);
    if (same) return Ok();
    SLM_RETURN_IF_ERROR(part.Restart());
    return Error(Code::kUnavailable, d.label + ": the server answered with another part than asked for");
  }
  if (status != 200) return Error(Code::kCorrupt, d.label + ": unexpected status " + std::to_string(status), "try again later");
  if (part.size() > 0) SLM_RETURN_IF_ERROR(part.Restart());  // no ranges there, or the file has changed: everything comes again
  std::ofstream(etag_path, std::ios::trunc) << now;
  return Ok();
}

HttpRequest MakeRequest(const Download& d, PartFile& part) {
  HttpRequest request;
  request.url = d.url;
  request.bearer = d.bearer;
  request.headers = {"Accept-Encoding: identity"};
  if (part.size() > 0) {
    request.headers.push_back("Range: bytes=" + std::to_string(part.size()) + "-");
    if (const std::string etag = ReadText(d.part + ".etag"); IsStrongEtag(etag)) request.headers.push_back("If-Range: " + etag);
  }
  request.begin = [&d, &part](int status, const std::map<std::string, std::string>& headers) {
    return BeginBody(d, part, status, headers);
  };
  request.body = [&d, &part](std::string_view bytes) -> Status {
    if (bytes.size() > d.bytes - part.size())
      return Error(Code::kCorrupt, d.label + ": more than the announced " + std::to_string(d.bytes) + " bytes",
                   "the server's copy is damaged; try again later");
    SLM_RETURN_IF_ERROR(part.Append(bytes));
    if (d.progress) d.progress(part.size());
    return Ok();
  };
  return request;
}

enum class Outcome : unsigned char { kComplete, kAgain };

// One request. kAgain: worth another try after `pause` seconds.
Result<Outcome> TryOnce(HttpClient& client, const Download& d, PartFile& part, std::string& retry_after, std::string& why) {
  retry_after.clear();
  auto sent = client.Send(MakeRequest(d, part));
  if (!sent.ok()) {
    if (sent.error().code() != Code::kUnavailable) return sent.error();
    why = sent.error().message();
    return Outcome::kAgain;
  }
  const HttpResponse& response = sent.value();
  if (response.status == 416 && part.size() > 0) {
    SLM_RETURN_IF_ERROR(part.Restart());
    why = "the server refuses to continue";
    return Outcome::kAgain;
  }
  if (IsRetryStatus(response.status)) {
    retry_after = response.Header("retry-after");
    why = "status " + std::to_string(response.status);
    return Outcome::kAgain;
  }
  if (response.status / 100 != 2) return StatusError(response, d.label, d.bearer.empty() ? TokenGiven::kNo : TokenGiven::kYes);
  if (part.size() == d.bytes) return Outcome::kComplete;
  why = "the connection ended at byte " + std::to_string(part.size()) + " of " + std::to_string(d.bytes);
  return Outcome::kAgain;
}

Status Transfer(HttpClient& client, const CancelFlag* cancel, const Download& d, PartFile& part) {
  constexpr uint64_t kHeadway = 1u << 20;  // a try that brings so much does not count as failed
  std::string retry_after, why;
  for (int failed = 0; part.size() < d.bytes || d.bytes == 0;) {
    const uint64_t before = part.size();
    SLM_ASSIGN_OR_RETURN(const Outcome outcome, TryOnce(client, d, part, retry_after, why));
    if (outcome == Outcome::kComplete) return Ok();
    failed = part.size() >= before + kHeadway ? 1 : failed + 1;
    if (failed >= d.attempts)
      return Error(Code::kUnavailable, d.label + ": " + why, "what came is kept; run the same command again to go on");
    SLM_ASSIGN_OR_RETURN(const double seconds, RetryPause(failed, retry_after));
    SLM_RETURN_IF_ERROR(Pause(seconds, cancel));
  }
  return Ok();
}

void RemovePart(const Download& d) {
  unlink(d.part.c_str());
  unlink((d.part + ".etag").c_str());
}

}  // namespace

Result<Downloaded> DownloadFile(HttpClient& client, const CancelFlag* cancel, const Download& d) {
  const bool git = IsHex(d.etag, 40), lfs = IsHex(d.etag, 64);
  for (int round = 0;; ++round) {
    Downloaded result;
    PartFile part(d.part, d.bytes, git);
    SLM_RETURN_IF_ERROR(part.Open());
    result.resumed = part.size() > 0;
    const uint64_t kept = part.size();
    if (auto status = Transfer(client, cancel, d, part); !status.ok()) {
      if (status.error().code() == Code::kCorrupt) RemovePart(d);
      return status.error();
    }
    result.sha256 = part.Sha256();
    const bool good = lfs ? result.sha256 == d.etag : !git || part.GitSha1() == d.etag;
    if (good) {
      SLM_RETURN_IF_ERROR(part.Sync());
      if (rename(d.part.c_str(), d.done.c_str()) != 0)
        return Error(Code::kIo, d.done + ": " + strerror(errno), "check the store's permissions");
      unlink((d.part + ".etag").c_str());
      return result;
    }
    RemovePart(d);
    // A wrong sum may come from an old part; a file that came whole in this run is simply wrong.
    if (kept == 0 || round > 0)
      return Error(Code::kCorrupt, d.label + ": checksum is not the one the server announced",
                   "deleted; try again, and if it stays so, the server's copy is damaged");
  }
}

Error StatusError(const HttpResponse& response, const std::string& what, TokenGiven token) {
  const std::string code = response.Header("x-error-code");
  const std::string said = response.Header("x-error-message").substr(0, 200);
  const std::string status = what + ": status " + std::to_string(response.status) + (said.empty() ? "" : " (" + said + ")");
  const char* give = token == TokenGiven::kYes ? "the token does not grant it: ask for access on the model's page or use another token"
                                               : "set HF_TOKEN to a token that may read it";
  if (code == "GatedRepo")
    return Error(Code::kUnavailable, what + ": gated, its publisher asks readers to accept terms first",
                 token == TokenGiven::kYes ? give : "accept them on the model's page, then set HF_TOKEN");
  if (code == "RevisionNotFound") return Error(Code::kNotFound, what + ": no such revision", "check the branch, tag or commit after '@'");
  if (code == "EntryNotFound") return Error(Code::kNotFound, what + ": no such file on the server", "check the pattern");
  if (code == "RepoNotFound")
    return Error(Code::kNotFound, what + ": no such repository, or a private one",
                 token == TokenGiven::kYes ? "check the name and the token" : "check the name; for a private one set HF_TOKEN");
  if (response.status == 401) return Error(Code::kUnavailable, status, token == TokenGiven::kYes ? "the token is not valid" : give);
  if (response.status == 403) return Error(Code::kUnavailable, status, give);
  if (response.status == 404) return Error(Code::kNotFound, status, "check the name and the revision");
  if (response.status == 429) return Error(Code::kUnavailable, status, "too many requests; wait a while, a token raises the limit");
  return Error(Code::kUnavailable, status, "try again later");
}

}  // namespace slm::cli
