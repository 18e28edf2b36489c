// Files of tasks as they are published: plain, or packed by gzip (RFC 1952).
#include <archive.h>
#include <archive_entry.h>

#include <memory>

#include "eval_options.h"

namespace slm::cli {
namespace {

struct Closer {
  void operator()(archive* a) const { archive_read_free(a); }
};

bool IsGzip(std::string_view bytes) { return bytes.size() > 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b'; }

Result<std::string> Unpack(std::string_view bytes, const std::string& path) {
  constexpr size_t kMost = size_t{256} << 20;
  const std::unique_ptr<archive, Closer> a(archive_read_new());
  archive_entry* entry = nullptr;
  const auto corrupt = [&] {
    const char* why = archive_error_string(a.get());
    return Error(Code::kCorrupt, path + ": gzip: " + (why ? why : "nothing in it"), "fetch the file again");
  };
  archive_read_support_filter_gzip(a.get());
  archive_read_support_format_raw(a.get());
  if (archive_read_open_memory(a.get(), bytes.data(), bytes.size()) != ARCHIVE_OK ||
      archive_read_next_header(a.get(), &entry) != ARCHIVE_OK)
    return corrupt();
  std::string text;
  std::string part(size_t{1} << 16, '\0');
  for (;;) {
    const la_ssize_t n = archive_read_data(a.get(), part.data(), part.size());
    if (n < 0) return corrupt();
    if (n == 0) break;
    text.append(part, 0, static_cast<size_t>(n));
    if (text.size() > kMost) return Error(Code::kLimit, path + ": unpacks to more than 256 MiB", "give a part of it");
  }
  if (text.empty()) return corrupt();
  return text;
}

}  // namespace

Result<TaskFile> OpenTaskFile(const std::string& path, const char* option) {
  TaskFile task;
  SLM_ASSIGN_OR_RETURN(task.file, OpenText(path, option));
  if (IsGzip(task.file.view())) {
    SLM_ASSIGN_OR_RETURN(task.unpacked, Unpack(task.file.view(), path));
  }
  return task;
}

}  // namespace slm::cli
