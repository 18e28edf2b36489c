// A KV cache that is kept as codes, as GroupQueryAttention of com.microsoft may have it.
#pragma once
#include "reference/call.h"

namespace slm::reference {

// Keys are side 0, values side 1. Codes are INT8, or UINT8 with two of 4 bits a byte, the first in the low half, 8 standing for nothing.
struct CodedCache {
  int64_t bits = 0;  // 0: the cache is floating
  const Array* scales[2] = {nullptr, nullptr};
};
// From kv_cache_bit_width, k_quant_type and the inputs `k_scale`, `v_scale`. Errors: kUnsupported for other codes than these.
Result<CodedCache> CodedCacheOf(const Call& c, size_t k_scale, size_t v_scale);
// [B, H, S, bytes] as what the codes stand for, [B, H, S, D] in double, and back.
Result<Array> CacheValues(const CodedCache& cache, size_t side, const Array& codes);
Result<Array> CacheCodes(const CodedCache& cache, size_t side, const Array& values);

}  // namespace slm::reference
