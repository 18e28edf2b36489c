// Writes a safetensors file front to back: the header, then the tensors in the order of their declaration.
//
// Source: the format description of the safetensors project. The header is padded with spaces, so that data begins on 8 bytes.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace slm::model::safetensors {

using ByteSink = std::function<Status(std::span<const std::byte>)>;

// Owned by one thread. Order of calls: Tensor for each, Begin, Data until all bytes are there, Finish.
class FileWriter {
 public:
  // `dtype`: a name of the format ("F16", "I32"). `bytes` of data will follow. A name must not come twice.
  void Tensor(const std::string& name, std::string_view dtype, const std::vector<int64_t>& dims, uint64_t bytes);
  // The header. Errors: the sink's.
  Status Begin(ByteSink sink);
  // The next bytes, in any pieces. Errors: the sink's, kInternal (more than was declared).
  Status Data(std::span<const std::byte> bytes);
  // Errors: kInternal when data is missing.
  Status Finish();
  uint64_t bytes_written() const { return written_; }

 private:
  std::string header_;  // rows of JSON
  uint64_t end_ = 0;    // of the data declared so far
  uint64_t filled_ = 0, written_ = 0;
  ByteSink sink_;
};

}  // namespace slm::model::safetensors
