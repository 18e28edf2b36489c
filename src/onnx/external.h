// Files beside a model that hold its large tensors. A model is a stranger's file: none of its words may open a file outside its
// own folder.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mmap.h"
#include "base/result.h"
#include "onnx/onnx.h"

namespace slm::onnx {

// What an external_data entry says, still as text; lists the keys that matter.
struct ExternalEntry {
  std::string location, offset, length;
  bool has_location = false, has_length = false;
};

class ExternalFiles {
 public:
  // `folder`: where the model file lies; "": nothing is opened.
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}

  // The `needed_bytes` of a tensor; `file` becomes the index in list(). Errors: kCorrupt (a location that is not a plain relative
  // path, a link out of the folder, numbers that contradict the file or the tensor), kNotFound, kIo.
  Result<std::span<const std::byte>> Part(const ExternalEntry& entry, uint64_t needed_bytes, int& file);

  const std::vector<ExternalFile>& list() const { return list_; }
  std::vector<MappedFile> TakeMaps() { return std::move(maps_); }

 private:
  Result<int> Open(const std::string& location);
  std::string folder_, root_;
  std::map<std::string, int, std::less<>> known_;
  std::vector<ExternalFile> list_;
  std::vector<MappedFile> maps_;
};

// A path of plain names with '/' between them: not absolute, no "..", no drive, URL or backslash, no control characters.
bool IsPlainLocation(std::string_view location);

}  // namespace slm::onnx
