// See package.h.
#include "backend/cpu/package.h"

#include <algorithm>
#include <set>

#include "backend/cpu/lower.h"
#include "backend/cpu/mapped_matrix.h"
#include "base/mmap.h"
#include "model/gguf/package.h"

namespace slm::backend {
namespace {
using model::PackedWeights;

constexpr uint32_t kPageAlignment = 4096;

// A file type that becomes `kind`, for tensors whose own type has no number in the container.
DType TypeLike(kernels::PackedKind kind) {
  switch (kind) {
    case kernels::PackedKind::kQ4: return DType::kQ4_0;
    case kernels::PackedKind::kQ5: return DType::kQ5_0;
    case kernels::PackedKind::kF32: return DType::kF32;
    default: return DType::kQ8_0;
  }
}

// What the package holds: the plan's matrices, then the other tensors that have a role. (The loader has refused every other one that
// would matter; a head that repeats a tied embedding has none.)
Result<model::gguf::PackageContent> ContentOf(const LoweredPlan& plan, const model::Model& m) {
  model::gguf::PackageContent content{.layout = kernels::kPackedLayoutId, .packed = {}, .bytes = {}, .types = {}, .whole = {}};
  std::set<std::string> packed_names;
  for (const PackedMatrix& p : plan.matrices) {
    PackedWeights w{.kind = static_cast<int64_t>(p.kind), .k = p.k, .segments = {}, .data = {}};
    SLM_ASSIGN_OR_RETURN(w.segments, RowsOfSegments(*p.source, p.segment_rows));
    for (const model::PackedSegment& s : w.segments) packed_names.insert(s.tensor);
    content.packed.push_back(std::move(w));
    content.bytes.push_back(static_cast<uint64_t>(p.bytes));
    content.types.push_back(TypeLike(p.kind));
  }
  for (const model::Tensor& t : m.tensors)
    if (t.grouped && !packed_names.contains(t.name))
      return Error(Code::kUnsupported, t.name + ": codes in groups that no product reads cannot be written", "run the folder itself");
  const std::set<int32_t> read(m.role_index.begin(), m.role_index.end());
  for (size_t i = 0; i < m.tensors.size(); ++i)
    if (read.contains(static_cast<int32_t>(i)) && !packed_names.contains(m.tensors[i].name)) content.whole.push_back(&m.tensors[i]);
  return content;
}

// The report, but for the bytes of the file.
PackageReport ReportOf(const LoweredPlan& plan) {
  PackageReport report;
  std::set<std::string> notes;
  for (const PackedMatrix& p : plan.matrices)
    if (!p.note.empty()) notes.insert(p.note);
  report.matrices = static_cast<int64_t>(plan.matrices.size());
  report.weights_bytes = plan.weights_bytes;
  report.notes.assign(notes.begin(), notes.end());
  return report;
}

}  // namespace

Result<PackageReport> WritePackage(const graph::Graph& g, int n_threads, const model::gguf::ByteSink& sink) {
  const model::Model& m = *g.model;
  SLM_ASSIGN_OR_RETURN(const auto plan, Lower(g, {.n_threads = 1, .context = 1, .chunk = 1}));
  SLM_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create(n_threads));
  SLM_ASSIGN_OR_RETURN(const model::gguf::PackageContent content, ContentOf(*plan, m));
  model::gguf::FileWriter out(kPageAlignment);
  SLM_RETURN_IF_ERROR(model::gguf::DeclarePackage(m, content, &out));
  SLM_RETURN_IF_ERROR(out.Begin(sink));
  int64_t largest = 0;
  for (const PackedMatrix& p : plan->matrices) largest = std::max(largest, p.bytes);
  SLM_ASSIGN_OR_RETURN(const Buffer buffer, Buffer::Allocate(static_cast<size_t>(largest)));
  for (const PackedMatrix& p : plan->matrices) {
    PackMatrix(p, m, buffer.as<uint8_t>(), *team);
    SLM_RETURN_IF_ERROR(out.Data({buffer.data(), static_cast<size_t>(p.bytes)}));
  }
  for (const model::Tensor* t : content.whole) SLM_RETURN_IF_ERROR(out.Data(t->data));
  SLM_RETURN_IF_ERROR(out.Finish());
  PackageReport report = ReportOf(*plan);
  report.bytes = static_cast<int64_t>(out.bytes_written());
  return report;
}

}  // namespace slm::backend
