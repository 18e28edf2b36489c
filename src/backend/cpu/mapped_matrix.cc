// See mapped_matrix.h.
#include "backend/cpu/mapped_matrix.h"

#include <fmt/format.h>

#include <algorithm>

namespace slm::backend {
namespace {
using kernels::PackedKind;
using model::PackedSegment;
using model::PackedWeights;

bool SameRows(const PackedSegment& a, const PackedSegment& b) {
  return a.tensor == b.tensor && a.row_begin == b.row_begin && a.row_end == b.row_end;
}

int64_t PaddedRowsOf(const PackedWeights& w) {
  int64_t n = 0;
  for (const PackedSegment& s : w.segments) n += kernels::PaddedRows(s.row_end - s.row_begin);
  return n;
}

Status CheckWeights(const PackedWeights& w) {
  if (w.kind < 0 || w.kind >= static_cast<int64_t>(PackedKind::kCount))
    return Error(Code::kCorrupt, fmt::format("packed kind {} of {}", w.kind, w.segments.front().tensor), "export the package again");
  const int64_t need = kernels::PackedBytes(static_cast<PackedKind>(w.kind), PaddedRowsOf(w), w.k);
  if (static_cast<uint64_t>(need) != w.data.size() || reinterpret_cast<uintptr_t>(w.data.data()) % kernels::kLine != 0)
    return Error(Code::kCorrupt,
                 fmt::format("the packed rows of {}: {} bytes, {} are needed", w.segments.front().tensor, w.data.size(), need),
                 "export the package again");
  return Ok();
}

}  // namespace

Result<std::vector<PackedSegment>> RowsOfSegments(const graph::Constant& c, const std::vector<int64_t>& segments) {
  std::vector<PackedSegment> out;
  auto part = c.parts.begin();
  int64_t used = 0;  // rows of the part
  for (const int64_t rows : segments) {
    if (part == c.parts.end() || rows > part->row_end - part->row_begin - used)
      return Error(Code::kUnsupported, "a segment of rows from two tensors", "switch the pass that fused them off");
    out.push_back({part->tensor->name, part->row_begin + used, part->row_begin + used + rows});
    used += rows;
    if (used < part->row_end - part->row_begin) continue;
    ++part;
    used = 0;
  }
  return out;
}

bool IsPackedOnly(const graph::Constant& c) {
  return std::any_of(c.parts.begin(), c.parts.end(), [](const auto& p) { return p.tensor->packed_bytes > 0; });
}

Result<PackedPlace> FindPacked(const model::Model& m, const graph::Constant& c, int64_t k, const std::vector<int64_t>& segments) {
  if (m.packed_layout != kernels::kPackedLayoutId)
    return Error(Code::kUnsupported,
                 fmt::format("{}: the package has layout {}; this build reads {}", m.path, m.packed_layout, kernels::kPackedLayoutId),
                 "export the package again with this build");
  SLM_ASSIGN_OR_RETURN(const std::vector<PackedSegment> wanted, RowsOfSegments(c, segments));
  for (const PackedWeights& w : m.packed) {
    const auto first = std::find_if(w.segments.begin(), w.segments.end(), [&](const auto& s) { return SameRows(s, wanted[0]); });
    if (first == w.segments.end()) continue;
    if (static_cast<size_t>(w.segments.end() - first) < wanted.size() || !std::equal(wanted.begin(), wanted.end(), first, SameRows)) break;
    if (const Status right = CheckWeights(w); !right.ok()) return right.error().At(m.path);
    if (w.k != k) break;
    int64_t before = 0;
    for (auto s = w.segments.begin(); s != first; ++s) before += kernels::PaddedRows(s->row_end - s->row_begin);
    const auto kind = static_cast<PackedKind>(w.kind);
    return PackedPlace{kind, reinterpret_cast<const uint8_t*>(w.data.data()) + before / kernels::kPanelRows * kernels::PanelBytes(kind, k)};
  }
  return Error(Code::kUnsupported, "the package does not hold the rows of " + wanted[0].tensor + " in this order",
               "run it with all passes, or use the model that it was made from");
}

}  // namespace slm::backend
