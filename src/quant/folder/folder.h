// A Hugging Face folder written again with packed integer weights: AWQ, GPTQ or compressed-tensors, from float weights or, without loss,
// from another of these formats.
//
// As for GGUF files in two steps: PlanFolder says what becomes of every tensor, WriteFolder streams them, one matrix in memory, or one
// layer when it calibrates.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/grouped/pack.h"
#include "model/hf/packed/writing.h"
#include "model/model.h"
#include "model/safetensors/writer.h"
#include "quant/activation_range.h"
#include "quant/grid.h"
#include "quant/quant.h"
#include "quant/stored_form.h"

namespace slm::quant {

struct FolderRecipe {
  model::hf::PackedFormat format = model::hf::PackedFormat::kAwq;
  int bits = 0;        // of a float source; 0: 4
  int64_t group = 32;  // columns, of a float source; less where it does not divide every width; 0: one group a row
  bool symmetric = false;
  int down_bits = 0;                 // of down projections, symmetric with a scale a row, compressed-tensors only; 0: as the other matrices
  Storage storage = Storage::kGrid;  // the others: compressed-tensors only; bits and group are those of the storage
  model::hf::PackedInputs inputs = model::hf::PackedInputs::kFloat;  // compressed-tensors; kStatic needs calibration
  std::optional<RangeRule> range = {};                               // of kStatic; none: of each layer the one with the least error
  Recipe how;  // of rounding: its search and its calibration; types and budgets are of GGUF files
};

// Bits, groups, grid and storage of a scheme by its name (schemes.h: w4-zp-g32, w8-sym-channel, lpbq-g32, mxfp4, nvfp4), and back. Errors:
// kInvalidArgument (no scheme, or one whose grid no folder has).
Status SetScheme(std::string_view name, FolderRecipe* recipe);
std::string SchemeOf(const FolderRecipe& recipe);

struct FolderChoice {
  const model::Tensor* tensor = nullptr;
  bool packed = false;   // else it goes as it is, but for what a fold changes
  int layer = -1;        // -1: of none
  bool is_down = false;  // has the recipe's down_bits
};

struct FolderPlan {
  FolderRecipe recipe;
  model::hf::PackedSpec spec;
  bool lossless = false;              // every packed matrix was in groups already and keeps its values
  std::vector<FolderChoice> choices;  // in file order, or layer by layer when calibrated
  std::vector<std::string> notes;
  uint64_t data_bytes() const;  // of the weights' file
  double bpw() const;           // of all tensors
  double body_bpw() const;      // of the packed matrices
};

// What becomes of every tensor of `m` (kept by reference), a folder. Embedding, head, norms and biases stay as they are. A source in groups
// keeps its bits, groups and zero points when the format has room for them, else kUnsupported unless `source` is kAny: then its values are
// quantized again. Errors: kUnsupported (named: the matrix whose shape the format cannot hold, a source that is no folder, or one in groups
// and a recipe that is calibrated).
Result<FolderPlan> PlanFolder(const model::Model& m, const FolderRecipe& recipe, SourceTypes source);

struct FolderTensorReport {
  std::string name, scheme, from;
  uint64_t bytes;  // with scales and zero points
  double error;    // as TensorReport
};
struct FolderReport {
  uint64_t bytes = 0;  // of the weights' file
  std::vector<FolderTensorReport> tensors;
  std::vector<LayerReport> layers;  // of a calibrated recipe
};

// Bytes of memory that WriteFolder needs besides what the process had before.
uint64_t FolderNeedBytes(const model::Model& m, const FolderPlan& plan, const WriteOptions& options);

// Writes model.safetensors to `sink`. The same bytes whatever the number of threads; of a calibrated recipe, which needs `options.text`, on
// processors of the same tier. `options.work` is not used. Errors: kCorrupt (NaN or infinity; tensor and row
// named), kUnsupported (a zero point of 0 in GPTQ's first version, a scale beyond f16), those of
// calibration, and the sink's.
Result<FolderReport> WriteFolder(const model::Model& m, const FolderPlan& plan, const WriteOptions& options,
                                 const model::safetensors::ByteSink& sink);

}  // namespace slm::quant
