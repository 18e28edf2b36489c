// What the environment says.
#pragma once
#include <string>

namespace slm::cli {

std::string Environment(const char* name);  // empty when it is not set
// Where `./dev` puts what it fetches under that name: in slmkit/ of XDG_CACHE_HOME, else of ~/.cache.
std::string CacheFolder(const std::string& name);

}  // namespace slm::cli
