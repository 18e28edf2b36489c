// What the axes of an ONNX value mean. A value of our graph is a row of numbers a token; ONNX shows it as [1, T, E], [1, T, H, D],
// [1, H, T, D] and so on. Lengths are known for any call, so shapes can be computed without symbols.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace slm::importer {

// The lengths of a call: tokens in the cache before, new tokens.
struct CallLengths {
  int64_t past = 0, tokens = 1;
};

// What the graph's calls are for: one with fixed shapes may be for one token only, whose axis is then one of the axes of one value.
enum class CallForm : uint8_t { kAnyLength, kOneToken };

struct Axis {
  enum class Kind : uint8_t { kOne, kToken, kPast, kSlot, kFeature, kRepeat };  // kSlot: past and new tokens
  Kind kind = Kind::kOne;
  int64_t n =
      1;  // kFeature: values; kRepeat: times; kToken: parts of a row that follow each other along it, 1 unless heads are joined to it
  int64_t stride = 1;  // kFeature, kToken: distance of two of its values in the row
  int64_t repeat = 1;  // kFeature: each index so many times (keys that query heads share)
  bool operator==(const Axis&) const = default;
};
using Axes = std::vector<Axis>;
using Dims = std::vector<int64_t>;

inline Axis One() { return {}; }
inline Axis OfKind(Axis::Kind kind) { return {kind, 1, 1, 1}; }
// One value is no axis of its own.
inline Axis Feature(int64_t n, int64_t stride = 1) { return n == 1 ? Axis{} : Axis{Axis::Kind::kFeature, n, stride, 1}; }

int64_t Extent(const Axis& a, const CallLengths& call);
Dims ShapeOf(const Axes& axes, const CallLengths& call);

// Of the tokens of a call.
inline Axis TokenAxisOf(CallForm form) { return form == CallForm::kOneToken ? One() : OfKind(Axis::Kind::kToken); }
// [1, T, width]
Axes RowAxes(int64_t width, CallForm form);
// Values a token: the product of the features.
int64_t Width(const Axes& axes);
// The token axis, if there is one, comes first, then the row in its order: nothing is permuted.
bool InOrder(const Axes& axes);
// Index of the token axis, or -1.
int TokenAxis(const Axes& axes);
// The axes without those of one value.
Axes WithoutOnes(const Axes& axes);

// The axes behind an ONNX Reshape to `target` (one shape a call, -1 and 0 resolved). Features split and join; others stay whole.
// Errors: kUnsupported.
Result<Axes> Reshape(const Axes& axes, const std::vector<Dims>& target, const std::vector<CallLengths>& calls);

}  // namespace slm::importer
