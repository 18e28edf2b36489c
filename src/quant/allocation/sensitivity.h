// What rounding each matrix to each type costs in KLD, measured on text: what types are allocated by.
//
// Two measurements, multiplied. The error of the matrix's products with each type, tr(D E[x x^T] D^T) over tr(W E[x x^T] W^T), on some
// rows, rounded and judged on different sequences. And the KLD that an error of that matrix causes: each layer in turn is rounded
// coarsely, the layers behind it stay in float, and the KLD at the end is shared out to the layer's matrices as the errors of the layer's
// output are that each of them causes alone. To first order such KLDs add up (`together` says how far they did). Embedding and head are
// measured likewise where their types are chosen (vocabulary_sensitivity.h).
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "model/model.h"
#include "quant/quant.h"

namespace slm::quant {

struct MatrixSensitivity {
  const model::Tensor* tensor = nullptr;
  int layer = 0;               // -1: embedding or head
  double kld = 0;              // nats for a relative error of its products of 1, as if that were small
  std::vector<double> errors;  // relative, of its products, by type; < 0: the type does not fit the width
  double Loss(size_t type) const { return kld * errors[type]; }
};

struct Sensitivities {
  std::vector<DType> types;
  std::vector<MatrixSensitivity> matrices;  // embedding and head if they are measured, then layer by layer
  double together = 1;                      // KLD of everything rounded coarsely at once over the sum of the parts' own
  int64_t tokens = 0;                       // that the errors were measured on
};

// Of the matrices of `plan` that IsAllocated names, measured on a part of `options.text`; tells `options.layer_done`. The same for any
// number of threads. Errors: those of Calibration.
Result<Sensitivities> MeasureSensitivities(const model::Model& m, const Plan& plan, const WriteOptions& options);

// True for matrices whose type may be chosen: of the layers, and embedding and head where the recipe says so; rounded at all, and of a
// width that whole blocks of 32 fill.
bool IsAllocated(const Choice& c, const Recipe& recipe);

// The error that needs no measurement: 0 as blocks that the source itself has, below 0 where blocks do not fit the width.
std::optional<double> KnownError(const model::Tensor& t, DType dtype);

// Bytes of memory that measuring takes at most.
uint64_t SensitivityBytes(const model::Model& m, const Recipe& recipe, const CalibrationText& text, int n_threads);

}  // namespace slm::quant
