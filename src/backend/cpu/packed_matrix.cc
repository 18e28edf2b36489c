#include "backend/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/codes.h"
#include "backend/cpu/grouped_codes.h"
#include "kernels/embed/contract.h"
#include "kernels/matmul_float/contract.h"
#include "kernels/matmul_planes/contract.h"
#include "kernels/matmul_q4/contract.h"
#include "kernels/matmul_q8/contract.h"

namespace slm::backend {
namespace {
using kernels::kPanelRows;
using kernels::PackedKind;

// A row of the stacked constant, and how many follow it in the same tensor.
struct SourceRow {
  const model::Tensor* tensor;
  int64_t row;   // of the tensor
  int64_t left;  // rows from it on
  const std::byte* data(int64_t k) const {
    return tensor->data.data() + static_cast<uint64_t>(row) * RowBytes(tensor->dtype, static_cast<uint64_t>(k));
  }
};

SourceRow RowOf(const graph::Constant& c, int64_t r) {
  for (const auto& p : c.parts) {
    const int64_t n = p.row_end - p.row_begin;
    if (r < n) return {p.tensor, p.row_begin + r, n - r};
    r -= n;
  }
  SLM_ASSERT(false);
}

// Lets the source pages of rows [begin, end) go: the file and its packed copy are never both in memory whole.
void DropRows(const graph::Constant& c, const model::Model& model, int64_t begin, int64_t end, int64_t k) {
  int64_t first = 0;  // of the part, in rows of the constant
  for (const auto& p : c.parts) {
    const int64_t n = p.row_end - p.row_begin;
    const int64_t b = std::max<int64_t>(begin - first, 0), e = std::min(end - first, n);
    first += n;
    if (b >= e || p.tensor->packed_bytes > 0 || p.tensor->grouped) continue;  // rows of grouped ones lie all over their tensors
    const uint64_t bytes = RowBytes(p.tensor->dtype, static_cast<uint64_t>(k));
    model.DropPages(p.tensor->data.subspan(static_cast<uint64_t>(p.row_begin + b) * bytes, static_cast<uint64_t>(e - b) * bytes));
  }
}
constexpr int64_t kDropBytes = int64_t{4} << 20;  // of packed output between two drops: a system call each

// One panel's rows in the form that the pack functions take.
struct PanelScratch {
  std::vector<uint8_t> q, sub_min;
  std::vector<int8_t> sub_scale;
  std::vector<float> scale, min, values;
  std::vector<std::byte> raw;
  explicit PanelScratch(int64_t k)
      : q(static_cast<size_t>(k * kPanelRows)),
        sub_min(static_cast<size_t>((k + 31) / 32 * kPanelRows)),
        sub_scale(sub_min.size() * 2),
        scale(sub_min.size()),
        min(sub_min.size()),
        values(static_cast<size_t>(k * kPanelRows)),
        raw(static_cast<size_t>(k * kPanelRows * 4)) {}
};

struct PanelJob {
  const PackedMatrix* m;
  int64_t first_source;  // row of the constant that the panel's first row is
  int64_t rows;          // that exist, <= 32
  int64_t padded_row;    // first padded row
  uint8_t* dst;
};

void PackQuantizedPanel(const PanelJob& j, PanelScratch& s) {
  const PackedKind kind = j.m->kind;
  const int64_t k = j.m->k, nb = (k + 31) / 32;
  const int64_t n_scales = kernels::LinesOf(kind).super > 0 ? kernels::SuperBlocks(k) : nb;
  const int64_t n_sub = kind == PackedKind::kQ6K ? 2 * nb : nb;
  for (int64_t r = 0, n = 1; r < j.rows; r += n) {
    const SourceRow from = RowOf(*j.m->source, j.first_source + r);
    const RowCodes to{s.q.data() + r * k,          s.scale.data() + r * n_scales,
                      s.min.data() + r * n_scales, s.sub_scale.data() + r * n_sub,
                      s.sub_min.data() + r * nb,   s.values.data()};
    n = from.tensor->grouped ? std::min(from.left, j.rows - r) : 1;
    if (from.tensor->grouped) ReadGroupedPanel(*from.tensor->grouped, from.row, from.row + n, ChooseKind(*j.m->source), to);
    else ReadRowCodes(from.tensor->dtype, from.data(k), k, to);
  }
  const float* min = kernels::HasMin(kind) ? s.min.data() : nullptr;
  const int64_t begin = j.padded_row, end = begin + j.rows;
  if (kernels::InPlanes(kind))
    kernels::PackPlanes({kind, k, begin, end, s.q.data(), s.scale.data(), min, s.sub_scale.data(), s.sub_min.data(), j.dst});
  else if (kernels::LinesOf(kind).codes == 8) kernels::PackQ4({kind, k, begin, end, s.q.data(), s.scale.data(), min, j.dst});
  else kernels::PackQ8({kind, k, begin, end, reinterpret_cast<const int8_t*>(s.q.data()), s.scale.data(), min, j.dst});
}

constexpr int64_t ElementBytes(PackedKind kind) { return kernels::UnitBytes(kind) / (kernels::kUnitK * kPanelRows); }
bool IsStoredAs(const model::Tensor& t, PackedKind kind) {
  return !t.grouped && t.dtype == (kind == PackedKind::kF32 ? DType::kF32 : kind == PackedKind::kF16 ? DType::kF16 : DType::kBF16);
}

// The panel's rows in the kind's own elements: where they lie in the file when they lie there so, else made in `raw`.
const void* FloatRows(const PanelJob& j, std::byte* raw) {
  const int64_t k = j.m->k, bytes = k * ElementBytes(j.m->kind);
  if (j.m->mapped.data == nullptr) {
    const SourceRow first = RowOf(*j.m->source, j.first_source);
    if (first.left >= j.rows && IsStoredAs(*first.tensor, j.m->kind)) return first.data(k);
  }
  for (int64_t r = 0, n = 1; r < j.rows; r += n) {
    n = 1;
    std::byte* to = raw + r * bytes;
    if (j.m->mapped.data != nullptr) {  // kept as F32
      kernels::EmbedRow(j.m->mapped.kind, j.m->mapped.data, k, j.padded_row + r, 1.0f, reinterpret_cast<float*>(to));
      continue;
    }
    const SourceRow from = RowOf(*j.m->source, j.first_source + r);
    n = std::min(from.left, j.rows - r);  // a matrix by columns is read a panel at a time
    if (j.m->kind == PackedKind::kF32) {
      model::ReadRows(*from.tensor, from.row, from.row + n, reinterpret_cast<float*>(to));
    } else if (from.tensor->grouped) {
      model::ReadColumnRows(*from.tensor->grouped, from.row, from.row + n, to);
    } else {
      n = 1;
      std::memcpy(to, from.data(k), static_cast<size_t>(bytes));
    }
  }
  return raw;
}

// `dst`: where panel 0 is, or would be.
void PackFloatPanel(const PanelJob& j, std::byte* raw) {
  const int64_t panel_bytes = kernels::PanelBytes(j.m->kind, j.m->k);
  kernels::PackFloat(j.m->kind, j.m->k, 0, j.rows, FloatRows(j, raw), j.dst + j.padded_row / kPanelRows * panel_bytes);
}

// Panel `p` of the matrix.
PanelJob JobOf(const PackedMatrix& m, int64_t p, uint8_t* dst) {
  const int64_t padded = p * kPanelRows;
  int64_t source = 0;
  size_t segment = 0;
  while (padded >= m.segment_offset[segment + 1]) source += m.segment_rows[segment++];
  const int64_t in_segment = padded - m.segment_offset[segment];
  return {&m, source + in_segment, std::min<int64_t>(kPanelRows, m.segment_rows[segment] - in_segment), padded, dst};
}

}  // namespace

kernels::MatMulKernel KernelFor(PackedKind kind, Isa isa) {
  if (kernels::InPlanes(kind)) return kernels::MatMulPlanes(kind, isa);
  if (kind == PackedKind::kQ4 || kind == PackedKind::kQ4Min) return kernels::MatMulQ4(kind, isa);
  if (kernels::IsQuantized(kind)) return kernels::MatMulQ8(kind, isa);
  return kernels::MatMulFloat(kind, isa);
}

kernels::MatMulKernel WideKernelFor(PackedKind kind, Isa isa) {
  if (!kernels::IsQuantized(kind)) return {};
  if (kernels::InPlanes(kind)) return kernels::MatMulPlanesWide(kind, isa);
  return kind == PackedKind::kQ4 || kind == PackedKind::kQ4Min ? kernels::MatMulQ4Wide(kind, isa) : kernels::MatMulQ8Wide(kind, isa);
}

KindChoice ChooseKind(DType dtype) {
  switch (dtype) {
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ4_0: return {PackedKind::kQ4, ""};
    case DType::kQ4_1: return {PackedKind::kQ4Min, ""};
    case DType::kQ5_0: return {PackedKind::kQ5, ""};
    case DType::kQ5_1: return {PackedKind::kQ5Min, ""};
    case DType::kQ4_K: return {PackedKind::kQ4K, ""};
    case DType::kQ5_K: return {PackedKind::kQ5K, ""};
    case DType::kQ6_K: return {PackedKind::kQ6K, ""};
    case DType::kQ8_0:
    case DType::kIQ4_NL: return {PackedKind::kQ8, ""};
    case DType::kF16: return {PackedKind::kF16, ""};
    case DType::kBF16: return {PackedKind::kBF16, ""};
    case DType::kF32: return {PackedKind::kF32, ""};
    default: return {PackedKind::kQ8, "rounded again to 8 bits per block of 32"};
  }
}

KindChoice ChooseKind(const graph::Constant& c) {
  return c.parts[0].tensor->grouped ? ChooseGroupedKind(c) : ChooseKind(c.parts[0].tensor->dtype);
}

Result<PackedMatrix> PlanMatrix(const model::Model& model, const graph::Constant& c, int64_t k, const std::vector<int64_t>& segments,
                                KeepPrecision keep) {
  PackedMatrix m;
  m.k = k;
  m.source = &c;
  if (c.parts.empty()) return Error(Code::kUnsupported, "a matrix computed by folding", "switch the folding pass off");
  const bool grouped = c.parts[0].tensor->grouped != nullptr;
  for (const auto& p : c.parts)
    if ((p.tensor->grouped != nullptr) != grouped)
      return Error(Code::kUnsupported, p.tensor->name + ": stacked with rows of another kind", "switch the pass that fused them off");
  const KindChoice first = ChooseKind(c);
  m.kind = first.kind;
  m.note = first.note;
  for (const auto& p : c.parts) {
    const KindChoice choice = grouped ? first : ChooseKind(p.tensor->dtype);
    if (choice.kind != m.kind && keep == KeepPrecision::kNative)
      return Error(Code::kUnsupported, p.tensor->name + ": stacked with rows of another kind", "switch the pass that fused them off");
    if (*choice.note) m.note = choice.note;
  }
  if (IsPackedOnly(c)) {
    SLM_ASSIGN_OR_RETURN(m.mapped, FindPacked(model, c, k, segments));
    m.kind = m.mapped.kind;
    if (keep == KeepPrecision::kNative) m.data = m.mapped.data;
  }
  if (keep == KeepPrecision::kF32) {
    m.kind = PackedKind::kF32;
    m.note.clear();
  }
  int64_t at = 0;
  for (int64_t rows : segments) {
    m.segment_rows.push_back(rows);
    m.segment_offset.push_back(at);
    at += kernels::PaddedRows(rows);
  }
  m.segment_offset.push_back(at);
  m.bytes = kernels::PackedBytes(m.kind, at, k);
  return m;
}

void PackMatrix(const PackedMatrix& m, const model::Model& model, uint8_t* dst, ThreadTeam& team) {
  auto work = [&](int t, int n) {
    PanelScratch scratch(m.k);
    const Range panels = SplitRange(m.n_panels(), 1, t, n);
    int64_t kept_from = -1, packed_bytes = 0;
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      const PanelJob job = JobOf(m, p, dst);
      if (kernels::IsQuantized(m.kind)) PackQuantizedPanel(job, scratch);
      else PackFloatPanel(job, scratch.raw.data());
      if (kept_from < 0) kept_from = job.first_source;
      packed_bytes += kernels::PanelBytes(m.kind, m.k);
      if (packed_bytes < kDropBytes && p + 1 < panels.end) continue;
      DropRows(*m.source, model, kept_from, job.first_source + job.rows, m.k);
      kept_from = -1;
      packed_bytes = 0;
    }
  };
  team.Run(work);
  for (const auto& p : m.source->parts)
    if (p.tensor->grouped) model.DropPages(*p.tensor);
}

int64_t PiecePanels(const PackedMatrix& m) {
  constexpr int64_t kBytes = int64_t{256} << 10;
  return std::max<int64_t>(1, kBytes / kernels::PanelBytes(m.kind, m.k));
}

bool CanStayInFile(const graph::Constant& c, const PackedMatrix& m) {
  return !kernels::IsQuantized(m.kind) && m.mapped.data == nullptr &&
         std::all_of(c.parts.begin(), c.parts.end(), [](const graph::ConstantPart& p) { return !p.tensor->grouped; });
}

int64_t PieceBytes(const PackedMatrix& m) {
  return PiecePanels(m) * kernels::PanelBytes(m.kind, m.k) + kPanelRows * m.k * ElementBytes(m.kind);
}

void PackPiece(const PackedMatrix& m, int64_t begin, int64_t end, uint8_t* piece) {
  const int64_t panel_bytes = kernels::PanelBytes(m.kind, m.k);
  auto* raw = reinterpret_cast<std::byte*>(piece + PiecePanels(m) * panel_bytes);
  for (int64_t p = begin; p < end; ++p) {
    const PanelJob j = JobOf(m, p, nullptr);
    kernels::PackFloat(m.kind, m.k, 0, j.rows, FloatRows(j, raw), piece + (p - begin) * panel_bytes);
  }
}

void DropPanels(const PackedMatrix& m, int64_t begin, int64_t end) {
  if (begin >= end) return;
  const PanelJob last = JobOf(m, end - 1, nullptr);
  DropRows(*m.source, *m.file, JobOf(m, begin, nullptr).first_source, last.first_source + last.rows, m.k);
}

}  // namespace slm::backend
