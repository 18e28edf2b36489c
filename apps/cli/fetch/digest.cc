// Thin ownership around EVP_MD_CTX; an allocation failure in OpenSSL is a broken process, hence the asserts.
#include "fetch/digest.h"

#include <openssl/evp.h>
#include <stdio.h>

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace slm::cli {

struct Digest::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Digest::Digest(DigestKind kind) : context_(std::make_unique<Context>()) {
  const EVP_MD* type = kind == DigestKind::kSha256 ? EVP_sha256() : EVP_sha1();
  SLM_ASSERT(context_->evp && EVP_DigestInit_ex(context_->evp, type, nullptr) == 1);
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::Add(std::string_view bytes) { SLM_ASSERT(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1); }

std::string Digest::Hex() {
  unsigned char raw[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  SLM_ASSERT(EVP_DigestFinal_ex(context_->evp, raw, &size) == 1);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[raw[i] >> 4];
    hex += kDigits[raw[i] & 15];
  }
  return hex;
}

Digest Digest::GitBlob(uint64_t size_bytes) {
  Digest digest(DigestKind::kSha1);
  std::string header = "blob " + std::to_string(size_bytes);
  header.push_back('\0');
  digest.Add(header);
  return digest;
}

Status AddFile(const std::string& path, Digest& digest, uint64_t bytes) {
  FILE* file = fopen(path.c_str(), "rbe");
  if (!file) return Error(Code::kIo, path + ": cannot be opened", "check its permissions");
  std::vector<char> buffer(1u << 20);
  bool failed = false;
  while (bytes > 0) {
    const size_t want = static_cast<size_t>(std::min<uint64_t>(bytes, buffer.size()));
    const size_t got = fread(buffer.data(), 1, want, file);
    digest.Add({buffer.data(), got});
    bytes -= got;
    if (got < want) {
      failed = ferror(file) != 0;
      break;
    }
  }
  fclose(file);
  if (failed) return Error(Code::kIo, path + ": cannot be read", "check the disk");
  return Ok();
}

std::string Sha256Of(std::string_view bytes) {
  Digest digest(DigestKind::kSha256);
  digest.Add(bytes);
  return digest.Hex();
}

Result<std::string> Sha256OfFile(const std::string& path) {
  Digest digest(DigestKind::kSha256);
  SLM_RETURN_IF_ERROR(AddFile(path, digest));
  return digest.Hex();
}

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace slm::cli
