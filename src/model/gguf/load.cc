// See load.h. Shards: llama.cpp's gguf-split (keys split.no, split.count, split.tensors.count; names by llama_split_path).
#include "model/gguf/load.h"

#include <fmt/format.h>

#include <unordered_set>

#include "model/gguf/config.h"
#include "model/gguf/package.h"
#include "model/gguf/reader.h"
#include "model/hf/load.h"
#include "model/quoted.h"
#include "model/roles.h"

namespace slm::model::gguf {
namespace {

constexpr int64_t kMaxShards = 10000;

Error Corrupt(std::string what) { return Error(Code::kCorrupt, std::move(what), "fetch all shards of one model into one folder"); }

struct Split {
  int64_t number = 0, count = 1, n_tensors = -1;
};

Result<Split> ReadSplit(const File& file) {
  Split s;
  SLM_ASSIGN_OR_RETURN(const auto count, GetInteger(file, "split.count"));
  SLM_ASSIGN_OR_RETURN(const auto number, GetInteger(file, "split.no"));
  SLM_ASSIGN_OR_RETURN(const auto n_tensors, GetInteger(file, "split.tensors.count"));
  s.count = count.value_or(0) == 0 ? 1 : *count;
  s.number = number.value_or(0);
  s.n_tensors = n_tensors.value_or(-1);
  if (s.count < 1 || s.count > kMaxShards || s.number < 0 || s.number >= s.count)
    return Corrupt(fmt::format("shard {} of {} cannot be", s.number, s.count));
  return s;
}

// The path of shard `number` when `path` is one of the set, else empty.
std::string ShardPath(const std::string& path, const Split& own, int64_t number) {
  const std::string tail = fmt::format("-{:05}-of-{:05}.gguf", own.number + 1, own.count);
  if (path.size() <= tail.size() || path.compare(path.size() - tail.size(), tail.size(), tail) != 0) return {};
  return path.substr(0, path.size() - tail.size()) + fmt::format("-{:05}-of-{:05}.gguf", number + 1, own.count);
}

struct Mapped {
  MappedFile map;
  File file;
};

Result<Mapped> OpenOne(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(MappedFile map, MappedFile::Open(path));
  auto file = Parse(map.bytes());
  if (!file.ok()) return file.error().At(path);
  return Mapped{std::move(map), file.Take()};
}

// Opens all files of the set in order. The first one carries the keys.
Result<std::vector<Mapped>> OpenAll(const std::string& path) {
  std::vector<Mapped> all;
  SLM_ASSIGN_OR_RETURN(Mapped given, OpenOne(path));
  auto split = ReadSplit(given.file);
  if (!split.ok()) return split.error().At(path);
  const Split own = split.Take();
  if (own.count > 1 && ShardPath(path, own, own.number).empty())
    return Corrupt(fmt::format("{}: it is shard {} of {}, but its name does not end in -{:05}-of-{:05}.gguf", path, own.number + 1,
                               own.count, own.number + 1, own.count));
  for (int64_t i = 0; i < own.count; ++i) {
    if (i == own.number) {
      all.push_back(std::move(given));
      continue;
    }
    const std::string shard_path = ShardPath(path, own, i);
    SLM_ASSIGN_OR_RETURN(Mapped shard, OpenOne(shard_path));
    SLM_ASSIGN_OR_RETURN(const Split s, ReadSplit(shard.file));
    if (s.number != i || s.count != own.count || s.n_tensors != own.n_tensors)
      return Corrupt(
          fmt::format("{}: it says shard {} of {}, its name says {} of {}", shard_path, s.number + 1, s.count, i + 1, own.count));
    all.push_back(std::move(shard));
  }
  return all;
}

// Puts the tables of all shards into one; the first shard's record keeps the keys. The maps go to `maps`.
Result<File> Merge(const std::string& path, std::vector<Mapped>* all, std::vector<MappedFile>* maps) {
  File merged = std::move(all->front().file);
  for (size_t i = 0; i < all->size(); ++i) {
    if (i > 0)
      for (Tensor& t : (*all)[i].file.tensors) merged.tensors.push_back(std::move(t));
    maps->push_back(std::move((*all)[i].map));
  }
  if (all->size() == 1) return merged;
  std::unordered_set<std::string_view> seen;
  for (const Tensor& t : merged.tensors)
    if (!seen.insert(t.name).second) return Corrupt(fmt::format("{}: tensor {} occurs in two shards", path, Quoted(t.name)));
  SLM_ASSIGN_OR_RETURN(const auto total, GetInteger(merged, "split.tensors.count"));
  if (total && static_cast<uint64_t>(*total) != merged.tensors.size())
    return Corrupt(fmt::format("{}: the shards hold {} tensors, not {} as they say", path, merged.tensors.size(), *total));
  return merged;
}

Status FillModel(const File& file, LoadWhat what, Model* m) {
  for (const Key& k : file.keys) m->metadata.emplace_back(PrintableUtf8(k.name, 200), ValueText(k.value));
  auto tokenizer = ReadTokenizer(file);
  if (tokenizer.ok()) m->tokenizer = tokenizer.Take();
  else if (what != LoadWhat::kContainer) return tokenizer.error();
  if (what == LoadWhat::kContainer) return Ok();
  if (what == LoadWhat::kTokenizerOnly) {
    if (m->tokenizer.kind.empty()) return Error(Code::kNotFound, "the file has no tokenizer", "name a model file with a vocabulary");
    if (auto config = ReadConfig(file); config.ok()) m->config = config.Take();
    FindStopTokens(m->tokenizer, &m->config);
    return Ok();
  }
  SLM_ASSIGN_OR_RETURN(m->config, ReadConfig(file));
  if (!m->tokenizer.kind.empty() && m->tokenizer.tokens.size() != static_cast<size_t>(m->config.vocab_size))
    return Error(Code::kCorrupt, fmt::format("{} tokens, but the embedding has {} rows", m->tokenizer.tokens.size(), m->config.vocab_size),
                 "convert the model again with its own tokenizer");
  FindStopTokens(m->tokenizer, &m->config);
  return Ok();
}

}  // namespace

Result<std::shared_ptr<Model>> MakeModel(File file, const std::string& path, LoadWhat what) {
  auto m = std::make_shared<Model>();
  m->path = path;
  m->format = "gguf";
  if (IsPackage(file)) {
    if (Status s = ReadPackage(&file, m.get()); !s.ok()) return s.error().At(path);
    if (HoldsFolder(file)) {
      m->tensors = std::move(file.tensors);
      if (Status s = hf::FillModel(FolderOf(file), what, m.get()); !s.ok()) return s.error().At(path);
      return m;
    }
  }
  if (Status s = FillModel(file, what, m.get()); !s.ok()) return s.error().At(path);
  m->tensors = std::move(file.tensors);
  if (what == LoadWhat::kAll)
    if (Status s = BindRoles(Naming::kGguf, "", m.get()); !s.ok()) return s.error().At(path);
  return m;
}

Result<std::shared_ptr<Model>> Load(const std::string& path, LoadWhat what) {
  SLM_ASSIGN_OR_RETURN(std::vector<Mapped> all, OpenAll(path));
  std::vector<MappedFile> maps;
  SLM_ASSIGN_OR_RETURN(File file, Merge(path, &all, &maps));
  SLM_ASSIGN_OR_RETURN(std::shared_ptr<Model> m, MakeModel(std::move(file), path, what));
  for (const MappedFile& map : maps) m->file_bytes += map.bytes().size();
  m->files = std::move(maps);
  return std::shared_ptr<Model>(std::move(m));
}

}  // namespace slm::model::gguf
