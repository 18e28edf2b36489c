// Taking a model that is on this machine already into the store: file:PATH.
#pragma once
#include <string>

#include "base/result.h"
#include "fetch/place.h"
#include "verb.h"

namespace slm::cli {

// `path` is a file or a model folder; hidden files are left out, links to files are followed. With Sharing::kLink no space is
// used when the store is on the same file system (the store then shares the file's bytes: do not edit it in place).
// Errors: kNotFound, kInvalidArgument for an empty folder or something that is neither, kIo.
Result<Fetched> FetchFromFile(Io& io, const std::string& path, const std::string& name, Sharing sharing);

}  // namespace slm::cli
