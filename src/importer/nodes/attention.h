// What the operators of attention and rotation, and the steps that exporters spell them in, have in common. Internal to nodes/.
#pragma once
#include <functional>

#include "importer/walk.h"

namespace slm::importer {

// [1, H, T, D] (or without the ones): heads, then the token or slot axis, then the width. heads 1: there is no axis of heads.
struct HeadAxes {
  int64_t heads = 1, repeat = 1, width = 0;
  int64_t shared = 0;  // of one token: the heads lie under so many key heads, each of which its rows share; 0: they do not
};
enum class LastAxis : uint8_t { kWidth, kLength };
// Errors: kUnsupported.
Result<HeadAxes> HeadsFirst(const Call& c, const Axes& axes, Axis::Kind length, LastAxis last = LastAxis::kWidth);

// Are there as many query heads as the cache shows, or do they lie under its heads?
inline bool Fit(const HeadAxes& queries, const HeadAxes& cached) {
  return queries.heads == cached.heads * cached.repeat || (queries.shared == cached.heads && cached.repeat == 1);
}

// The cache of `past` with the new rows `id` behind it.
ValuePtr Present(const Value& past, graph::ValueId id);

// What a mask says of the keys that a token sees.
enum class Seen : uint8_t { kYes, kNo, kPartly };
using SeenAt = std::function<Seen(size_t probe, int64_t token, int64_t slot)>;
enum class Length : uint8_t { kWhole, kMayBeShorter };  // of a mask's last dimension; what is missing is not seen
// `mask` of the calls, [.., T or 1, slots]: truth, whole numbers, or what is added to the scores; it outlives the result. Errors:
// kUnsupported.
Result<SeenAt> SeenThrough(const Call& c, const Value& mask, Length length);
// In every probed call each token must see itself and what came before it, perhaps of a window, whose width is returned; 0: of everything.
// Errors: kUnsupported.
Result<int> CausalWindow(const Call& c, const SeenAt& seen);
// Does this added number hide a score?
bool Hides(double added);

// Cosines and sines of a rotation: tables of the file [positions, half].
Result<const RopeTable*> FileTables(const Call& c, size_t cos_at, size_t sin_at, int64_t most_half);
Pairs PairsOf(const Call& c, const char* attribute);
// Does the value hold the positions of the call's tokens? The length of the sequence, less `less`?
bool IsPositions(const Call& c, const Value& v);
bool HoldsTotal(const Call& c, const Value& v, int64_t less);

}  // namespace slm::importer
