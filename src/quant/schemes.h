// Weight schemes that writers of other formats ask for by name: bits, the kind of grid, the length of a group.
//
// Names: w<bits>-<kind>-g<length> or -channel; kinds: sym (scale only), full (scale of either sign), zp (whole zero point), min (float
// minimum). Examples: w4-zp-g32, w8-sym-channel. Beside them lpbq-g<length>, mxfp4 and nvfp4.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/threads.h"
#include "quant/gptq.h"
#include "quant/stored_form.h"

namespace slm::quant {

struct WeightScheme {
  Storage storage = Storage::kGrid;
  Scheme grid = Scheme::kSymmetric;
  int bits = 4;    // 2 to 8
  int group = 32;  // 0: a whole row
};

// Errors: kInvalidArgument, with the names that there are.
Result<WeightScheme> ParseScheme(std::string_view name);
std::string SchemeName(const WeightScheme& scheme);

// The longest group of at most `wanted` (0: the whole row) weights, a power of two from 16 on, that divides `width`. Where that is not
// `wanted`, `note` says so ("width 576 is no multiple of 128: groups of 64"). Error: kUnsupported, when not even 16 divides it.
struct GroupChoice {
  int group = 0;
  std::string note;
};
Result<GroupChoice> ChooseGroup(int64_t width, int wanted);

// Bits per weight, scales and offsets included as the formats store them (f16 scales, offsets of `bits` bits, f16 minimums).
double BitsPerWeight(const WeightScheme& scheme, int64_t width);

// The form of a group for QuantizeGrid and SolveGptq; `store`: how the writer keeps scales.
BlockForm FormOf(const WeightScheme& scheme, int64_t width, Store store);

// Rows of codes with what a writer of the storage needs: as QuantizeGrid, FP4 as codes of 8 bits (128 + twice the E2M1 value, half scales)
// with `shared`[0].d the scale of the tensor. `form` has a grid.
CodedRows QuantizeStored(const StoredForm& form, Search search, const float* w, int64_t rows, int64_t width, const float* u,
                         ThreadTeam& team);

// Each group of w [rows][width] for itself. `u` [width] or nullptr: what a square error counts. The same for any number of threads.
CodedRows QuantizeGrid(const BlockForm& form, Search search, const float* w, int64_t rows, int64_t width, const float* u, ThreadTeam& team);

// One row of that: codes, grids and shared numbers of row `i` of `out`, whose form it has. `w`, `u` [width]. Thread-safe for other rows.
void QuantizeRow(Search search, std::span<const float> w, const float* u, int64_t i, CodedRows* out);

}  // namespace slm::quant
