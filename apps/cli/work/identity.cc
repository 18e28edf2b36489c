// What decides the bytes of a quantized file, as one sum; see work_file.h.
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "fetch/digest.h"
#include "work/work_file.h"

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

// A file as it lies: who changes its bytes changes one of these.
Result<std::string> FileState(const std::string& path) {
  struct stat s = {};
  if (stat(path.c_str(), &s) != 0) return Error(Code::kIo, path + ": " + strerror(errno), "check the path and its permissions");
  return fmt::format("{}\n{} {} {}.{:09} {}\n", path, s.st_dev, s.st_ino, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_size);
}

// The files of a model: all of a folder; of a single file, it and those that may be its shards.
std::vector<std::string> FilesOf(const std::string& model) {
  std::vector<std::string> files;
  std::error_code failed;
  const fs::path path = fs::absolute(model, failed);
  const bool folder = fs::is_directory(path, failed), shards = path.stem().string().find("-of-") != std::string::npos;
  if (!folder) files.push_back(path.string());
  if (folder || shards)
    for (const fs::directory_entry& e : fs::directory_iterator(folder ? path : path.parent_path(), failed))
      if (std::error_code unknown; e.is_regular_file(unknown) && (folder || e.path().extension() == path.extension()))
        files.push_back(e.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<std::string> WorkIdentity(const model::Model& m, const quant::Plan& plan, const std::string& recipe) {
  Digest digest(DigestKind::kSha256);
  SLM_ASSIGN_OR_RETURN(const std::string program, FileState("/proc/self/exe"));
  digest.Add(program);
  for (const std::string& file : FilesOf(m.path)) {
    SLM_ASSIGN_OR_RETURN(const std::string state, FileState(file));
    digest.Add(state);
  }
  digest.Add(recipe);
  for (const quant::Choice& c : plan.choices)
    digest.Add(fmt::format("\n{} {} {}", c.tensor->name, Info(c.tensor->dtype).name, Info(c.dtype).name));
  return digest.Hex();
}

}  // namespace slm::cli
