// Matrices of codes in groups (model/grouped/grouped.h: AWQ, GPTQ, compressed-tensors) as a packed kind: which one keeps their values, and
// the codes of one panel in it.
#pragma once
#include "backend/cpu/codes.h"
#include "backend/cpu/packed_matrix.h"
#include "graph/ir.h"
#include "model/grouped/grouped.h"

namespace slm::backend {

// For a constant whose parts are all grouped. Exact for codes of 2 to 4 bits (less their zero points they fit kQ4 or kQ5) and symmetric
// ones of 8 bits with f16 scales, in groups that blocks of 32 columns divide.
KindChoice ChooseGroupedKind(const graph::Constant& c);

// Rows [begin, end) of a matrix, at most a panel, in `choice`; `out` as for ReadRowCodes, rows one after another.
void ReadGroupedPanel(const model::GroupedMatrix& m, int64_t begin, int64_t end, const KindChoice& choice, RowCodes out);

}  // namespace slm::backend
