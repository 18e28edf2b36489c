// The file of golden answers: what an artefact said when it was recorded, and what it may differ by. JSON; made by slm verify --record.
//
// {"slm_golden": 1, "program", "reference": {path, compute}, "vocab_size", "answers": [{prompt: [id], answer: [id], steps: [{ids,
// log_probs}]}],
//  "artefacts": [{path, sha256, bytes, max_kld, least_same_top, kld, same_top, p95_ms, cpu, isa, threads}]}. Paths are relative to the
// file's folder.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/golden.h"

namespace slm::cli {

struct GoldenArtefact {
  std::string path, sha256;                  // sha256: of the file; of a folder, of its files' names and sums
  uint64_t bytes = 0;                        // all files
  double max_kld = 0;                        // most mean KLD that passes, nats a step
  double least_same_top = 0;                 // least share of steps whose most probable token is the recorded one
  double kld = 0, same_top = 0, p95_ms = 0;  // measured when recorded; p95_ms: one step of decoding
  std::string cpu, isa;
  int n_threads = 0;
};

struct GoldenFile {
  std::string program, reference, compute;  // reference: the model that gave the answers
  int vocab_size = 0;
  std::vector<eval::GoldenAnswer> answers;
  std::vector<GoldenArtefact> artefacts;
};

std::string GoldenText(const GoldenFile& file);
// Errors: kCorrupt, naming the place in the document.
Result<GoldenFile> ParseGolden(std::string_view text);

// Is `path` a shard besides the first, "NAME-00002-of-00003.gguf"?
bool IsLaterShard(const std::string& path);

struct Identity {
  std::string sha256;
  uint64_t bytes = 0;
};
// Sum and size of a file; of a shard, an ONNX file or a folder those of all shards, its external data, or all files in it: of "name\0sum\n"
// of each, by name. Links to files count as what they point to, links to folders not at all. Errors: kNotFound (also a folder without
// files), kInvalidArgument (a pipe or device), kIo.
Result<Identity> IdentityOf(const std::string& path);

}  // namespace slm::cli
