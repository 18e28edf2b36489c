// What rounding each matrix of the layers to each type costs in KLD, measured on text: what types are allocated by.
//
// Two measurements, multiplied. The error of the matrix's products with each type, tr(D E[x x^T] D^T) over tr(W E[x x^T] W^T), on some
// rows, rounded and judged on different sequences. And the KLD that an error of that matrix causes: each layer in turn is rounded
// coarsely, the layers behind it stay in float, and the KLD at the end is shared out to the layer's matrices as the errors of the layer's
// output are that each of them causes alone. To first order such KLDs add up (`together` says how far they did).
#pragma once
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "model/model.h"
#include "quant/quant.h"

namespace slm::quant {

struct MatrixSensitivity {
  const model::Tensor* tensor = nullptr;
  int layer = 0;
  double kld = 0;              // nats for a relative error of its products of 1, as if that were small
  std::vector<double> errors;  // relative, of its products, by type; < 0: the type does not fit the width
  double Loss(size_t type) const { return kld * errors[type]; }
};

struct Sensitivities {
  std::vector<DType> types;
  std::vector<MatrixSensitivity> matrices;  // layer by layer, as the plan has them
  double together = 1;                      // KLD of all layers rounded coarsely at once over the sum of the layers' own
  int64_t tokens = 0;                       // that the errors were measured on
};

// Of the matrices of `plan` that IsAllocated names, measured on a part of `options.text`; tells `options.layer_done`. The same for any
// number of threads. Errors: those of Calibration.
Result<Sensitivities> MeasureSensitivities(const model::Model& m, const Plan& plan, const WriteOptions& options);

// True for matrices of the layers whose type may be chosen: rounded at all, and whose width whole blocks of 32 fill.
bool IsAllocated(const Choice& c);

// Bytes of memory that measuring takes at most.
uint64_t SensitivityBytes(const model::Model& m, const Recipe& recipe, const CalibrationText& text, int n_threads);

}  // namespace slm::quant
