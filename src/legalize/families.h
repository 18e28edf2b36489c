// Parts that rewrites of several families are made of. Internal.
#pragma once
#include <string>

#include "legalize/piece.h"

namespace slm::legalize {

// Rotation of pairs: of x [B, H, T, D] with tables [B, 1, T, R / 2], or x [B, T, H, D] with tables [B, T, 1, R / 2].
struct RotationInPieces {
  Dims x;  // its shape; only the last is used, which must be known. Others may be -1
  int64_t rotated = 0;
  bool interleaved = false;
};
std::string RotateInPieces(Builder& b, const std::string& x, const std::string& cos, const std::string& sin, const RotationInPieces& r);

// Attention of q [B, Hq, T, D] over k [B, Hkv, S, D] and v [B, Hkv, S, value_width]. Queries that share a KV head become rows of that head,
// so both sides have one head count and no key is copied.
struct AttentionInPieces {
  std::string q, k, v;
  int64_t batch = 0, q_heads = 0, kv_heads = 0, tokens = 0, keys = 0, value_width = 0;
  ElementType type = ElementType::kFloat;
  double scale = 1, softcap = 0;
  std::string hidden;  // BOOL that broadcasts to [B, Hq, T, S]: true where a key is not seen; ""
  std::string added;   // the same of `type`, added to the scores; ""
};
std::string AttendInPieces(Builder& b, const AttentionInPieces& a);  // [B, Hq, T, value_width]

// The rows `places` [B, T] (INT32 or INT64) of axis `axis` of `buffer` become those of `update`, whose shape is `dims`.
std::string WriteRows(Builder& b, const std::string& buffer, const std::string& update, const std::string& places, const Dims& dims,
                      size_t axis);

// The axes of a reduction, not negative; nullopt where they are not known.
std::optional<Dims> ReducedAxes(const Site& s);

bool IsFloating(ElementType type);  // 16 bits and more

}  // namespace slm::legalize
