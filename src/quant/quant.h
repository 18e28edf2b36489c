// The door of `quant`: a float model in, a GGUF file of four to eight bits out, with or without calibration text.
//
// In two steps, so that what will be done can be shown before it is done: PlanTensors chooses a type per tensor by a recipe,
// WriteGguf streams the tensors through the encoders, a few rows of each thread in memory, or one layer when it calibrates.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_features.h"
#include "base/dtype.h"
#include "base/result.h"
#include "model/gguf/writer.h"
#include "model/model.h"
#include "quant/grid.h"

namespace slm::quant {

// What layers are calibrated on: what the float layers before them compute, or the layers as they will be stored.
enum class LayerInputs : uint8_t { kFloat, kStored };  // kStored: what then differs from the float model is made up for, too (drift.h)

// What the grids of the matrices are: types of GGUF or a folder's scheme, or those of static/static.h, which a GGUF file cannot hold.
enum class WeightGrids : uint8_t { kTypes, kNpu };

// What a recipe decides. The defaults are the recipe `fast`.
struct Recipe {
  std::string name = "fast";
  WeightGrids grids = WeightGrids::kTypes;
  DType body = DType::kQ4_K;  // matrices of the layers
  DType head = DType::kQ8_0;  // embedding and head; stored once when the model ties them
  Search search = Search::kRefit;
  // Bits per weight of the whole file's tensors. What it leaves goes to the value projections, then the down projections of the
  // first and last eighth of the layers, from the outside inwards. 0: no budget, and no such picks.
  double bpw = 0;
  // Bits per weight that the layers' matrices may take, where stand-ins of larger blocks are to be had (Q4_1 for Q4_K): they become Q4_0
  // until the layers keep to it. 0: no limit.
  double body_bpw = 4.7;

  // What follows needs calibration text.
  // Types that each matrix of the layers may have: chosen by sensitivity under bpw and body_bpw (allocation/allocation.h), in place of
  // `body` with its stand-ins and picks. Empty: `body`.
  std::vector<DType> types = {};
  bool measures_vocabulary = false;  // embedding and head have their types chosen with those of the layers, in place of `head`
  bool body_bpw_is_wish = true;      // where no types keep to body_bpw they are the smallest; else that is an error
  std::optional<double> most_kld;    // the smallest types that are expected to keep to it; without: bpw and body_bpw are the budget
  int measured_sequences = 12;       // of the text; nothing is fitted to the last quarter, on which errors are judged
  int measured_rows = 64;            // of each matrix
  int followed_tokens = 128;         // of each judged sequence, on which a change of a layer is followed to the logits
  bool weighted = false;             // the square error of a weight counts as E[x^2] of what it multiplies, where that is better
  bool smooth = false;               // SmoothQuant: factors that make activations fit their integers (smooth.h), where that is better
  bool fold = false;                 // AWQ: factors from inputs into what comes before them (awq.h), where that is better
  bool gptq = false;                 // codes that make up for each other's errors, where that is better (gptq.h)
  bool signround = false;            // codes moved by signed gradients from there, where that is better (signround.h)
  int signround_steps = 200;
  double damping = 0.01;                     // of their second moments
  int fold_points = 20;                      // exponents that are tried
  int fold_rows = 256;                       // rows of the matrices that a fold is judged on
  double most_energy = 10;                   // of a token, in medians of its sequence; more counts less (statistics.h); 0: no limit
  bool every_candidate = false;              // GPTQ without folds, too
  LayerInputs inputs = LayerInputs::kFloat;  // what a layer is calibrated on
  int sequences = 32;                        // of the text, unless the user says how many
  int gate_sequences = 4;                    // on which a layer as rounded is compared with the layer in float
  bool rotate = false;                       // the source was rotated before (rotation/rotation.h); for the record
  bool calibrated() const { return weighted || fold || gptq || smooth || signround; }
  bool allocates() const { return !types.empty(); }
};

// All recipes, `fast` first.
const std::vector<Recipe>& Recipes();

// Text to calibrate on, as the model's tokenizer reads it.
struct CalibrationText {
  std::vector<std::vector<int32_t>> sequences;  // begin token included where the model wants one
  std::string source;                           // "built-in", or the file's name
  std::string sha256;                           // of the text
  uint64_t seed = 0;                            // of the draw
  int64_t tokens() const;
  int64_t longest() const;
};

enum class SourceTypes : uint8_t {
  kFloatOnly,  // a matrix that is already quantized, to another type than it would get, is an error
  kAny,        // it is quantized again
};

struct Choice {
  const model::Tensor* tensor = nullptr;  // of the model
  DType dtype = DType::kF32;
  bool is_body = false;        // a matrix of a layer
  int layer = -1;              // -1: of none
  bool is_vocabulary = false;  // embedding or head
};

struct Plan {
  Recipe recipe;
  std::vector<Choice> choices;     // in the order of writing: the file's, or layer by layer when calibrated
  std::vector<std::string> notes;  // what differs from the recipe, and why
  uint64_t weights() const;
  uint64_t data_bytes() const;
  double bpw() const;       // of all tensors, scales included
  double body_bpw() const;  // of the matrices of the layers
};

// A type for every tensor of `m` (kept by reference); one that has its type already will be copied. A width that the type's blocks do not
// divide takes the nearest type of smaller blocks, or F16 without one; norms and biases become F32. Errors: kUnsupported (a source other
// than a GGUF file, or one that is already quantized), kInvalidArgument (a type that cannot be written), kLimit (a budget below what the
// types take).
Result<Plan> PlanTensors(const model::Model& m, const Recipe& recipe, SourceTypes source);

struct TensorReport {
  std::string name;
  DType from, to;
  double error;  // root mean square of what was lost over that of the source's values, read back from the written bytes
};

// A file that an earlier run may have begun: what it finished is taken over, tensor by tensor. The caller's; called by WriteGguf from its
// own thread.
class Work {
 public:
  virtual ~Work() = default;
  // Keys and table went to the sink; the data of the tensors comes next.
  virtual Status Begun() = 0;
  // The report of the i-th tensor when its bytes are in the file, else nullptr; asked in order, and not again after a nullptr.
  virtual const TensorReport* Finished(size_t i) = 0;
  // The next `bytes` of the file are the data of that tensor: the sink does not get them.
  virtual Status Skip(uint64_t bytes) = 0;
  // The data of a tensor went to the sink, padding included.
  virtual Status Finish(const TensorReport& report) = 0;
};

struct WriteOptions {
  int n_threads = 1;
  std::function<void(uint64_t bytes)> progress;                 // of Plan::data_bytes, those that are written; may be empty
  std::function<void(int layers)> layer_done;                   // of a calibrated recipe, layers that are through; may be empty
  std::function<bool()> cancelled;                              // asked while calibrating; true ends with kCancelled; may be empty
  const CalibrationText* text = nullptr;                        // for recipes that are calibrated
  Isa isa = Isa::kScalar;                                       // of the float forward pass
  Work* work = nullptr;                                         // nullptr: the file is written from its beginning
  std::vector<std::pair<std::string, std::string>> texts = {};  // keys that the file gets besides the source's
};

// The range that the integers of an activation cover.
struct InputRange {
  std::string matrix;            // the first that reads it
  float range = 0, largest = 0;  // the value of the largest code; the largest one that was seen, sinks left out
};

// What calibration chose for a layer. Errors are those of the layer's output, relative to it: mean over tokens of
// |float - rounded|^2 / |float|^2.
struct LayerReport {
  int layer = 0;
  std::vector<std::string> steps;  // "attention_input 0.35 (0.71)": a fold's place, exponent and error relative to none
  std::vector<std::string> ways;   // of rounding, one a matrix: "blk.0.attn_q.weight gptq 0.0012", with the error of its products
  double plain_error = 0;          // without any of them
  double error = 0;                // of what is stored
  int64_t capped_tokens = 0;       // whose weight was lowered, over all inputs of the layer
  std::vector<InputRange> ranges;  // of static activations
};

struct Report {
  uint64_t bytes = 0;  // of the file
  std::vector<TensorReport> tensors;
  std::vector<LayerReport> layers;  // of a calibrated recipe; not those that an earlier run finished
};

// Bytes of memory that WriteGguf needs besides what the process had before: some rows and the keys, whatever the weights take.
uint64_t NeedBytes(const model::Model& m, const Plan& plan, const WriteOptions& options);

// Writes the file to `sink`. The same bytes whatever the number of threads; of a calibrated recipe, on processors of the same tier. Errors:
// kCorrupt (NaN or infinity, tensor and row named), kUnsupported (a scale beyond f16, tensor and row named), and those of the sink
// and the work.
Result<Report> WriteGguf(const model::Model& m, const Plan& plan, const WriteOptions& options, const model::gguf::ByteSink& sink);

}  // namespace slm::quant
