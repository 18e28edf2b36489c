// Finds libonnxruntime, opens it and agrees on the version of its interface.
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backend/ort/api.h"
#include "backend/ort/ort.h"
#include "model/quoted.h"

namespace slm::backend::ort {
namespace {

namespace fs = std::filesystem;
constexpr const char* kHint = "./dev ort fetches it; or name the library with --ort PATH or the environment variable SLM_ORT";

// "1.31.1" as numbers; what is no number ends it.
std::vector<int> VersionNumbers(std::string_view text) {
  std::vector<int> out;
  const char *at = text.data(), *end = at + text.size();
  for (int n = 0; at < end;) {
    const auto [next, failed] = std::from_chars(at, end, n);
    if (failed != std::errc()) break;
    out.push_back(n);
    at = next < end && *next == '.' ? next + 1 : end;
  }
  return out;
}

// The newest libonnxruntime.so* of a folder, of its lib/ or of a Python package's capi/.
std::string NewestIn(const fs::path& folder) {
  constexpr std::string_view kName = "libonnxruntime.so";
  fs::path best;
  std::vector<int> best_version;
  for (const char* below : {"", "lib", "capi"}) {
    std::error_code failed;
    for (fs::directory_iterator i(folder / below, failed), end; !failed && i != end; i.increment(failed)) {
      const std::string name = i->path().filename().string();
      if (!name.starts_with(kName)) continue;
      const auto version = VersionNumbers(std::string_view(name).substr(std::min(name.size(), kName.size() + 1)));
      std::error_code broken;
      if (!fs::is_regular_file(i->path(), broken) || (!best.empty() && version <= best_version)) continue;
      best = i->path();
      best_version = version;
    }
  }
  return best.string();
}

Result<Library> Negotiate(void* handle, const std::string& path) {
  using GetBase = const OrtApiBase* (*)();
  const auto get = reinterpret_cast<GetBase>(dlsym(handle, "OrtGetApiBase"));
  const OrtApiBase* base = get ? get() : nullptr;
  if (!base) return Error(Code::kUnavailable, path + ": not ONNX Runtime: it has no OrtGetApiBase", kHint);
  Library lib;
  lib.path = path;
  lib.version = model::PrintableUtf8(base->GetVersionString(), 40);
  // The minor version is the newest interface of a library. Asking for a newer one makes the library write to stderr.
  const std::vector<int> numbers = VersionNumbers(lib.version);
  lib.api_version = numbers.size() < 2 ? 0 : numbers[0] > 1 ? kNewestApi : std::min(numbers[1], kNewestApi);
  if (lib.api_version >= kOldestApi) lib.api = base->GetApi(static_cast<uint32_t>(lib.api_version));
  if (!lib.api)
    return Error(Code::kUnsupported,
                 path + ": ONNX Runtime " + lib.version + " is too old; 1." + std::to_string(kOldestApi) + " or newer is needed", kHint);
  return lib;
}

// Does the file end before the section table that its ELF header names? The loader maps such a file and dies of it.
bool IsCutOff(const std::string& path) {
  Elf64_Ehdr head = {};
  std::error_code failed;
  const uint64_t size = fs::file_size(path, failed);
  std::ifstream in(path, std::ios::binary);
  if (failed || !in.read(reinterpret_cast<char*>(&head), sizeof head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return false;
  const uint64_t table = uint64_t{head.e_shnum} * head.e_shentsize;
  return head.e_ident[EI_CLASS] == ELFCLASS64 && (head.e_shoff > size || table > size - head.e_shoff);
}

}  // namespace

Result<Library> OpenLibrary(const std::vector<std::string>& places) {
  std::string tried;
  for (const std::string& place : places) {
    std::string path = place;
    std::error_code failed;
    if (fs::is_directory(place, failed)) path = NewestIn(place);
    if (path.empty()) {
      tried += "; " + place + ": no libonnxruntime.so in it";
      continue;
    }
    if (IsCutOff(path)) {
      tried += "; " + path + ": the library is cut off";
      continue;
    }
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return Negotiate(handle, path);
    const char* why = dlerror();
    tried += "; " + OneLine(why ? why : path);
  }
  return Error(Code::kUnavailable, "ONNX Runtime is not here" + tried, kHint);
}

std::string OneLine(const std::string& text) {
  std::string line = model::PrintableUtf8(text, 600);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' '; }, ' ');
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

Status Check(const OrtApi& api, OrtStatus* status) {
  if (!status) return Ok();
  const std::unique_ptr<OrtStatus, Release<OrtStatus, &OrtApi::ReleaseStatus>> owner(status, {&api});
  Code code = Code::kUnsupported;
  switch (api.GetErrorCode(status)) {
    case ORT_NO_SUCHFILE: code = Code::kNotFound; break;
    case ORT_INVALID_PROTOBUF:
    case ORT_INVALID_GRAPH:
    case ORT_NO_MODEL: code = Code::kCorrupt; break;
    case ORT_EP_FAIL: code = Code::kUnavailable; break;
    case ORT_RUNTIME_EXCEPTION: code = Code::kInternal; break;
    default: break;
  }
  return Error(code, "ONNX Runtime: " + OneLine(api.GetErrorMessage(status)));
}

}  // namespace slm::backend::ort
