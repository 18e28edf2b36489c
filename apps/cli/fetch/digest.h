// Checksums of files as they stream by: SHA-256, and git's blob SHA-1 (which the hub uses as the etag of small files). OpenSSL EVP.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace slm::cli {

enum class DigestKind : unsigned char { kSha256, kSha1 };

class Digest {
 public:
  explicit Digest(DigestKind kind);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  void Add(std::string_view bytes);
  std::string Hex();  // ends the digest; lower-case

  // A digest that has taken git's blob header ("blob <size>\0") already.
  static Digest GitBlob(uint64_t size_bytes);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Feeds the first `bytes` bytes of `path` (all of it by default) to `digest`. Errors: kIo.
Status AddFile(const std::string& path, Digest& digest, uint64_t bytes = UINT64_MAX);

// SHA-256 in hexadecimal; of a file, errors: kIo.
std::string Sha256Of(std::string_view bytes);
Result<std::string> Sha256OfFile(const std::string& path);

// Is `text` `digits` lower-case hexadecimal digits?
bool IsHex(std::string_view text, size_t digits);

}  // namespace slm::cli
