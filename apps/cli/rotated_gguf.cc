// See rotated_gguf.h.
#include "rotated_gguf.h"

#include "base/threads.h"
#include "output_file.h"
#include "quant/rotation/rotation.h"

namespace slm::cli {
namespace {

constexpr uint64_t kSeed = 1;

}  // namespace

Result<std::shared_ptr<model::Model>> RotatedGguf(const model::Model& m, const std::string& out, Isa isa, int n_threads, const Io& io) {
  SLM_ASSIGN_OR_RETURN(const PassingFile passing, PassingFile::Create(out));  // mapped below, so it may go
  const std::string& path = passing.path();
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  SLM_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create(n_threads));
  const auto sink = [&](std::span<const std::byte> bytes) { return WriteUnlessCancelled(file, bytes, path, io); };
  SLM_RETURN_IF_ERROR(quant::WriteRotated(m, kSeed, isa, *team, sink));
  SLM_RETURN_IF_ERROR(file.Commit());
  auto turned = model::LoadModel(path);
  if (turned.ok()) turned.value()->path = m.path;  // what it is, for notes and for work that is gone on with
  return turned;
}

}  // namespace slm::cli
