// See copies.h. The runtime writes profiles to files only.
#include "backend/ort/copies.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "model/json.h"

namespace slm::backend::ort {
namespace {

int64_t NumberIn(const nlohmann::json& object, const char* key) {
  int64_t n = 0;
  if (!object.contains(key) || !object[key].is_string()) return n;  // numbers are written as strings
  const std::string& text = object[key].get_ref<const std::string&>();
  std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

}  // namespace

Result<Copies> CopiesIn(std::string_view profile) {
  constexpr size_t kMostBytes = size_t{256} << 20;
  SLM_ASSIGN_OR_RETURN(const nlohmann::json events, model::ParseJson(profile, {.bytes = kMostBytes}));
  if (!events.is_array()) return Error(Code::kCorrupt, "the profile is not a list of events");
  Copies out;
  for (const nlohmann::json& e : events) {
    if (!e.is_object() || !e.contains("args") || !e["args"].is_object() || e.value("cat", nlohmann::json()) != "Node") continue;
    const nlohmann::json op = e["args"].value("op_name", nlohmann::json());
    if (op != "MemcpyFromHost" && op != "MemcpyToHost") continue;
    ++out.count;
    out.bytes += NumberIn(e["args"], "output_size");
  }
  return out;
}

ProfileFolder::ProfileFolder() {
  std::error_code failed;
  const auto folder = std::filesystem::temp_directory_path(failed);
  if (failed) return;
  std::string name = (folder / "slm-ort-XXXXXX").string();
  if (mkdtemp(name.data()) != nullptr) path_ = name;
}

ProfileFolder::~ProfileFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<Copies> EndProfile(const OrtApi& api, OrtSession* session) {
  OrtAllocator* allocator = nullptr;  // the default one, not ours
  char* text = nullptr;
  SLM_RETURN_IF_ERROR(Check(api, api.GetAllocatorWithDefaultOptions(&allocator)));
  SLM_RETURN_IF_ERROR(Check(api, api.SessionEndProfiling(session, allocator, &text)));
  const std::string path = text;
  SLM_RETURN_IF_ERROR(Check(api, api.AllocatorFree(allocator, text)));
  std::ifstream in(path, std::ios::binary);
  const std::string profile(std::istreambuf_iterator<char>(in), {});
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (!in) return Error(Code::kIo, path + ": the profile cannot be read");
  return CopiesIn(profile);
}

}  // namespace slm::backend::ort
