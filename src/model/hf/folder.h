// A model folder as files that may safely be opened: a name out of the folder's own JSON must not lead anywhere else.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/mmap.h"
#include "base/result.h"

namespace slm::model::hf {

class Folder {
 public:
  // Errors: kNotFound, kInvalidArgument (not a folder).
  static Result<Folder> Open(const std::string& path);
  // A folder of small files that are in memory: Text finds them, Map finds nothing.
  static Folder OfTexts(std::map<std::string, std::string, std::less<>> texts);

  bool Has(std::string_view name) const;  // a file or link of that name is there
  // Maps a file of the folder. The name must be plain (no separators, no dots alone); links may lead within the folder, or
  // into the blob store beside it when the folder is a snapshot of the hub's cache ("snapshots/<rev>" next to "blobs").
  // Errors: kCorrupt (a name or link that leads outside), kNotFound, kIo, kInvalidArgument (not a regular file).
  Result<MappedFile> Map(std::string_view name) const;
  // A small file as text; an absent one is empty. Errors as Map; kCorrupt above `limit` bytes.
  Result<std::string> Text(std::string_view name, size_t limit) const;
  const std::string& path() const { return path_; }

 private:
  Result<std::string> Resolve(std::string_view name) const;
  std::string path_;   // as given
  std::string root_;   // canonical
  std::string blobs_;  // canonical path of the cache's blob store, or empty
  std::map<std::string, std::string, std::less<>> texts_;
};

}  // namespace slm::model::hf
