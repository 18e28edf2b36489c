// file:PATH; see local.h.
#include "fetch/local.h"

#include <algorithm>
#include <filesystem>

#include "fetch/digest.h"
#include "fetch/source.h"
#include "progress.h"

namespace slm::cli {
namespace fs = std::filesystem;
namespace {

struct Item {
  fs::path from;     // with links resolved
  std::string name;  // in the model's folder
  uint64_t bytes;
};

Result<Item> MakeItem(const fs::path& file, const std::string& name) {
  std::error_code ec;
  const fs::path real = fs::canonical(file, ec);
  if (ec) return Error(Code::kNotFound, file.string() + ": " + ec.message(), "a link that leads nowhere?");
  const uint64_t bytes = fs::file_size(real, ec);
  if (ec || !IsSafeRelativePath(name))
    return Error(Code::kInvalidArgument, file.string() + ": not a plain file, or its name has odd characters", "rename or remove it");
  return Item{real, name, bytes};
}

Result<std::vector<Item>> ListItems(const fs::path& path) {
  std::error_code ec;
  std::vector<Item> items;
  if (fs::is_regular_file(path, ec)) {
    SLM_ASSIGN_OR_RETURN(Item item, MakeItem(path, path.filename().string()));
    items.push_back(std::move(item));
    return items;
  }
  if (!fs::exists(path, ec)) return Error(Code::kNotFound, path.string() + ": no such file or folder", "check the path after file:");
  if (!fs::is_directory(path, ec))
    return Error(Code::kInvalidArgument, path.string() + ": neither a file nor a folder", "give a GGUF file or a model folder");
  for (fs::recursive_directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec)) {
    const bool hidden = it->path().filename().string().starts_with(".");
    std::error_code entry_ec;
    if (hidden && it->is_directory(entry_ec)) it.disable_recursion_pending();
    if (hidden || !it->is_regular_file(entry_ec) || it->path().filename() == "slm.json") continue;
    SLM_ASSIGN_OR_RETURN(Item item, MakeItem(it->path(), it->path().lexically_relative(path).generic_string()));
    items.push_back(std::move(item));
  }
  if (ec) return Error(Code::kIo, path.string() + ": " + ec.message(), "check its permissions");
  if (items.empty()) return Error(Code::kInvalidArgument, path.string() + ": an empty folder", "give a GGUF file or a model folder");
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.name < b.name; });
  return items;
}

}  // namespace

Result<Fetched> FetchFromFile(Io& io, const std::string& path, const std::string& name, Sharing sharing) {
  SLM_ASSIGN_OR_RETURN(const auto items, ListItems(path));
  uint64_t total = 0;
  for (const Item& item : items) total += item.bytes;
  // External data of ONNX files may not have names outside its folder: linked, neither side could be read.
  if (std::any_of(items.begin(), items.end(), [](const Item& item) { return item.name.ends_with(".onnx"); })) sharing = Sharing::kCopy;
  const std::string ready = ReadyFolder(io.store, name);
  SLM_RETURN_IF_ERROR(EmptyFolder(ready));
  if (sharing == Sharing::kCopy) SLM_RETURN_IF_ERROR(CheckFreeSpace(ready, total));
  Fetched fetched;
  fetched.model = {name, "", SourceText(FileSource{path}), "", "", total, {}};
  Progress progress(io, name, total);
  uint64_t done = 0;
  for (const Item& item : items) {
    if (io.cancelled()) return Error(Code::kCancelled, "interrupted", "run the same command again");
    const std::string to = ready + "/" + item.name;
    SLM_RETURN_IF_ERROR(PlaceFile(item.from.string(), to, sharing));
    SLM_ASSIGN_OR_RETURN(std::string sum, Sha256OfFile(to));
    fetched.model.files.push_back({item.name, item.bytes, std::move(sum)});
    progress.Update(done += item.bytes);
  }
  progress.Finish();
  SLM_ASSIGN_OR_RETURN(fetched.model, FinishModel(io.store, fetched.model));
  return fetched;
}

}  // namespace slm::cli
