// See environment.h.
#include "environment.h"

#include <cstdlib>

namespace slm::cli {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string CacheFolder(const std::string& name) {
  std::string cache = Environment("XDG_CACHE_HOME");
  if (cache.empty()) cache = Environment("HOME") + "/.cache";
  return cache + "/slmkit/" + name;
}

}  // namespace slm::cli
