// What an accelerator of fixed shapes and integers needs of a float model: codes for every matrix, the range of every activation. A door.
//
// Both walk the layers one by one in float (backend/cpu/block_runner.h), so that one is in memory in f32.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "model/calibrated.h"
#include "quant/matrix.h"
#include "quant/quant.h"
#include "quant/schemes.h"

namespace slm::quant {

// How the matrices are rounded: symmetric grids of 4 or 8 bits, one scale a row or LPBQ.
struct StaticRecipe {
  WeightScheme body;  // matrices of the layers
  WeightScheme down;  // their down projections
  WeightScheme head;
  Recipe how;  // search and calibration; types and budgets are of GGUF files, folds are not used
};

struct StaticMatrices {
  std::map<const model::Tensor*, model::CodedMatrix> matrices;
  std::vector<LayerReport> layers;  // of a calibrated recipe
  std::vector<std::string> notes;
};

struct StaticWork {
  Machine machine;
  std::function<bool()> cancelled;             // may be empty
  std::function<void(int layers)> layer_done;  // may be empty
};

// Codes of every matrix that `m` multiplies by. `text`: of a calibrated recipe. The same bits whatever the number of threads. Errors:
// kUnsupported (a width that no group divides), kCorrupt (NaN or infinity), kCancelled, those of calibration.
Result<StaticMatrices> QuantizeMatrices(const model::Model& m, const StaticRecipe& recipe, const CalibrationText* text,
                                        const StaticWork& work);

struct ActivationSpans {
  std::map<std::string, model::ValueRange> values;  // by node of the plain graph; "<attention>.scores": scaled products of queries and keys
  std::vector<model::PrefixCache> prefix;           // by layer
};

// Least and most of every activation while the float model reads `text`, whose sequences all begin with the same `prefix` tokens: what
// these make counts nowhere but in the cache. `decoder`: the plain graph, with tables for the longest sequence. Errors: kInvalidArgument
// (no tokens beside the prefix, another beginning), kCorrupt (NaN or infinity), kCancelled.
Result<ActivationSpans> ObserveActivations(const graph::Graph& decoder, const CalibrationText& text, int prefix, const StaticWork& work);

}  // namespace slm::quant
