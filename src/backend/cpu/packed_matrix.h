// A weight constant of the graph in the execution layout: which kind each file type becomes, and the parallel packing.
//
// Rows are grouped in segments (q | k | v, gate | up): each segment starts on a panel of 32 rows, so that the padded output
// of one product can be read as separate values without copying.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/mapped_matrix.h"
#include "base/cpu_features.h"
#include "base/result.h"
#include "base/threads.h"
#include "graph/ir.h"
#include "kernels/packed/contract.h"

namespace slm::backend {

struct PackedMatrix {
  kernels::PackedKind kind = kernels::PackedKind::kF32;
  int64_t k = 0;                        // width as the model has it
  std::vector<int64_t> segment_rows;    // rows that exist, by segment
  std::vector<int64_t> segment_offset;  // first padded output row of a segment; last entry: all padded rows
  const uint8_t* data = nullptr;        // first panel; set by PlanMatrix when a package holds it, else by whoever packs
  PackedPlace mapped;                   // of a package: the rows as they lie there, also when another kind is asked for
  std::string note;                     // what was lost, empty: nothing
  int64_t bytes = 0;
  const graph::Constant* source = nullptr;
  const model::Model* file = nullptr;  // set: stays in the file, `data` is null (FloatWeights::kFile)

  int64_t padded_rows() const { return segment_offset.back(); }
  int n_panels() const { return static_cast<int>(padded_rows() / kernels::kPanelRows); }
};

// What a file type becomes, and what that costs.
struct KindChoice {
  kernels::PackedKind kind;
  const char* note;  // "" when every value is kept exactly
};
KindChoice ChooseKind(DType dtype);
// The same for a whole constant with parts; for parts of different kinds, that of the first.
KindChoice ChooseKind(const graph::Constant& c);

// The kernel that multiplies matrices of `kind`, and the one for calls of kWideTokens and more (fn null: there is none). Pure.
kernels::MatMulKernel KernelFor(kernels::PackedKind kind, Isa isa);
kernels::MatMulKernel WideKernelFor(kernels::PackedKind kind, Isa isa);

// Plans the matrix of constant `c` [N, K] of `model`, cut into `segments` (row counts that sum to N); kind kF32 when `keep` says
// so. Errors: kUnsupported (parts of different kinds), and of a package what FindPacked says.
enum class KeepPrecision : uint8_t { kNative, kF32 };
Result<PackedMatrix> PlanMatrix(const model::Model& model, const graph::Constant& c, int64_t k, const std::vector<int64_t>& segments,
                                KeepPrecision keep);

// Packs a matrix without `data` into `dst` (PackedBytes of the padded rows, 64-aligned) on all threads of the team and lets the source
// pages go.
void PackMatrix(const PackedMatrix& m, const model::Model& model, uint8_t* dst, ThreadTeam& team);

// A matrix that stays in the file is packed in pieces: panels that fit a core's L2 with the activations, and what a thread needs for one.
int64_t PiecePanels(const PackedMatrix& m);
int64_t PieceBytes(const PackedMatrix& m);
// Has the matrix no other form than the file's values, so that its pieces can be packed when they are multiplied?
bool CanStayInFile(const graph::Constant& c, const PackedMatrix& m);
// Packs panels [begin, end), at most PiecePanels, to the beginning of `piece` (PieceBytes, 64-aligned). Allocates nothing, thread-safe on
// other pieces.
void PackPiece(const PackedMatrix& m, int64_t begin, int64_t end, uint8_t* piece);
// Lets the source pages of these panels go.
void DropPanels(const PackedMatrix& m, int64_t begin, int64_t end);

}  // namespace slm::backend
