// See package.h.
#include "verify/package.h"

#include <algorithm>
#include <filesystem>

#include "onnx/genai/genai.h"
#include "onnx/static_folder/static_folder.h"
#include "store.h"
#include "verify/golden_file.h"

namespace slm::cli {
namespace {

namespace fs = std::filesystem;

bool IsModel(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) return (path.extension() == ".gguf" && !IsLaterShard(path.string())) || path.extension() == ".slm";
  return onnx::IsGenAiFolder(path.string()) || onnx::IsStaticFolder(path.string()) || fs::exists(path / "config.json", failed);
}

}  // namespace

Result<Package> FindPackage(const VerifyOptions& o, const Io& io) {
  SLM_ASSIGN_OR_RETURN(std::string name, ResolveModel(io, o.package));
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  const fs::path path(name);
  std::error_code failed;
  Package p;
  if (IsModel(path) || !fs::is_directory(path, failed)) {
    p.folder = path.has_parent_path() ? path.parent_path().string() : ".";
    p.models = {path.filename().string()};
    p.one_model = true;
    p.file = name + ".golden.json";
  } else {
    p.folder = name;
    p.file = name + "/golden.json";
    for (fs::directory_iterator it(path, failed), end; !failed && it != end; it.increment(failed))
      if (IsModel(it->path())) p.models.push_back(it->path().filename().string());
    if (failed) return Error(Code::kIo, name + ": " + failed.message(), "check the folder");
    std::sort(p.models.begin(), p.models.end());
  }
  if (!o.golden.empty()) p.file = o.golden;
  return p;
}

}  // namespace slm::cli
