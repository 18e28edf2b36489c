// Softmax attention over heads: what the attention operators of com.microsoft share.
#pragma once
#include <functional>

#include "reference/call.h"
#include "reference/heads.h"

namespace slm::reference {

// Reads row (b, t) of queries against keys s < n_keys. Heads of keys and values may be fewer than those of queries, by a whole factor.
struct Attending {
  const Array *q = nullptr, *k = nullptr, *v = nullptr;
  Heads hq, hk, hv, hy;  // hy: of the result; the tokens of hk and hv are the rows of their arrays, of which n_keys count
  int64_t n_keys = 0;
  double scale = 1, softcap = 0;
  std::function<double(int64_t b, int64_t head, int64_t t, int64_t s)> bias;  // added to a score; -infinity: the key is not seen
  std::function<double(int64_t head)> sink;                                   // a score more, which takes weight and gives nothing
  enum class Show : uint8_t { kNothing, kScores, kWeights } show = Show::kNothing;
};
struct Attended {
  Array y;      // of `dims`
  Array shown;  // [B, H, T, S] where asked for
};
Result<Attended> Attend(const Call& c, const Attending& a, ElementType type, Dims dims);

// x as [B, H, rows, D] behind the first `before` rows of `past`, in a buffer as long as that of the past, or as long as is needed.
Result<Array> JoinPast(const Array& x, const Heads& h, const Array* past, int64_t before);

// Part `at` of `parts` in the last dimension but one of [B, T, H, parts, D], as [B, T, H * D].
Result<Array> UnpackHeads(const Array& x, int64_t at, int64_t parts);
// Columns [begin, begin + width) of the last dimension.
Result<Array> Columns(const Array& x, int64_t begin, int64_t width);
// x plus a vector of its last dimension that begins at place `begin` of `bias`, rounded to its type.
Status AddColumns(Array& x, const Array& bias, int64_t begin);

// Masks of MultiHeadAttention and Attention: lengths [B], ends and starts [2 B], lengths and their sums [3 B + 2], or 1 where a key is
// seen: [B, S], [B, T, S], [B, 1, M, M]. A hidden key's score is raised by `filter`, which is -10000 and not -infinity.
struct KeyMask {
  const Array* mask = nullptr;
  const Array* added = nullptr;  // [B or 1, H or 1, T, S]
  double filter = -10000;
  int64_t batch = 0, heads = 0, tokens = 0, keys = 0, past = 0;
  bool causal = false;
};
Status CheckKeyMask(const KeyMask& m);
// What is added to a score.
double KeyBias(const KeyMask& m, int64_t b, int64_t head, int64_t t, int64_t s);

}  // namespace slm::reference
