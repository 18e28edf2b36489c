// What a value of the ONNX graph means to the importer: something known (a weight, a number that the call's lengths decide), a row of
// numbers a token, or a step on the way to an operator that ONNX spells in several nodes (a norm, a rotation, an attention).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir.h"
#include "importer/axes.h"
#include "importer/weights.h"
#include "reference/reference.h"

namespace slm::importer {

// A product that is not in the graph yet: a bias may follow, or a split into parts (q | k | v, gate | up), which then are products of
// row ranges.
struct Linear {
  graph::ValueId x = graph::kNoValue;
  const model::Tensor* w = nullptr;
  int64_t begin = 0, end = 0;  // rows of w
  const model::Tensor* bias = nullptr;
  int64_t bias_begin = 0;
  graph::ValueId id = graph::kNoValue;  // in the graph, once it is there
};

enum class Kind : uint8_t {
  kFixed,       // known without the call: `array` or `weight`
  kCall,        // known from the call's lengths: `at`, one array a probed call
  kIds,         // the tokens
  kPast,        // the cache of one layer, `layer` and `is_key`
  kRows,        // a row a token: `id` or `linear`, times `scale`
  kPart,        // columns [begin, end) of the last axis of the rows `of`; `negated`
  kHalfTurn,    // -second | first half of the columns [0, end) of `of`
  kTimesTable,  // `of` (kRows, kPart from 0 on, or kHalfTurn) times a value of the call, `table`
  kTurned,      // the columns [0, end) of `of` rotated by `table` and `sines`
  kCached,      // past and new rows of keys or values, times `scale`
  kSigmoid,     // of the rows `of`
  kSquare,
  kMean,       // of the squares of a row, plus eps
  kRoot,       // of kMean
  kInverse,    // 1 / kRoot
  kNormed,     // rows over their root mean square
  kBlockSums,  // sums of `end` columns each
  kOffsets,    // kBlockSums times `weight`
  kScores,     // queries `of` times keys `with`
  kProbabilities,
  kCodes,  // `of`, rounded to whole numbers by the scale and zero point of `quantized_by`: only turned back, which gives `of`
  kNever,  // a condition that never holds: a probability is no NaN
};

struct Value {
  Kind kind = Kind::kFixed;
  std::string name;  // of the ONNX value
  std::optional<WeightView> weight;
  std::shared_ptr<const reference::Array> array;
  std::vector<reference::Array> at;
  Axes axes;
  graph::ValueId id = graph::kNoValue;  // without `scale`; kNoValue where it is `linear`
  graph::ValueId scaled = graph::kNoValue;
  std::shared_ptr<Linear> linear;  // shared by all views of the product
  float scale = 1;
  bool last_token = false;  // of the last token only; our graph computes all, the back end the one that is asked for
  std::shared_ptr<Value> of, with;
  int64_t begin = 0, end = 0;
  bool negated = false;
  std::string table, sines;
  std::vector<std::shared_ptr<Value>> quantized_by;
  float eps = 0;
  int layer = -1;
  bool is_key = false;
  // kScores
  float softcap = 0;
  bool squashed = false;  // tanh was applied
  bool masked = false;
  int window = 0;
};
using ValuePtr = std::shared_ptr<Value>;

}  // namespace slm::importer
