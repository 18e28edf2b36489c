// Causal grouped-query attention over a static KV cache, with sliding window and soft cap.
//
// out[i, h] = sum_j softmax_j(cap(scale * q[i, h] . k[j, h / (Hq / Hkv)])) v[j, ...], j in [max(0, p - window + 1), p],
// p = position + i. Online softmax (FlashAttention, arXiv 2205.14135): memory does not grow with the context, and only keys
// in use are read. The decode split over keys with a merge is "flash-decoding"; chunks are a fixed number of keys, so results
// do not depend on the number of threads.
#pragma once
#include <stdint.h>

#include "kernels/kv_pack/contract.h"

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

struct AttentionArgs {
  const float* q = nullptr;  // [m][q_stride]: Hq heads of D f32, head-major
  int64_t q_stride = 0;
  const void* k = nullptr;                        // this layer's keys   [Hkv][kv_head_stride values]: slots of D each
  const void* v = nullptr;                        // this layer's values, the same shape
  int64_t kv_head_stride = 0;                     // values from one KV head to the next: its slots (int8: whole tiles) times D
  int64_t k_gap = 0, v_gap = 0;                   // bytes between a head's slots [256 i, 256 (i + 1)) and those that follow; 0: none
  KvType kv_type = KvType::kF16;                  // kF16 or kF32 here, kInt8 for kernels/attention_int8
  int n_heads = 0, n_kv_heads = 0, head_dim = 0;  // Hq, Hkv, D (D a multiple of 8, <= 256)
  int m = 0;                                      // query tokens
  int position = 0;                               // cache slot of query 0; its key is already stored
  int window = 0;                                 // keys a query sees, itself included; 0: all
  float scale = 1;
  float softcap = 0;     // 0: none
  float* out = nullptr;  // [m][out_stride]: Hq heads of D f32
  int64_t out_stride = 0;
};

inline constexpr int kDecodeChunk = 256;  // keys a decode work item covers
inline constexpr int kPrefillTile = 16;   // query tokens a prefill work item covers

// Where the cache would begin if the slots from `slot` to the end of its run of kDecodeChunk followed all earlier ones without gaps.
// Neither a decode chunk nor a prefill block passes the end of such a run. Always inlined: ISA objects offer no functions.
[[gnu::always_inline]] inline const uint8_t* KeysAt(const AttentionArgs& a, int64_t slot) {
  return static_cast<const uint8_t*>(a.k) + slot / kDecodeChunk * a.k_gap;
}
[[gnu::always_inline]] inline const uint8_t* ValuesAt(const AttentionArgs& a, int64_t slot) {
  return static_cast<const uint8_t*>(a.v) + slot / kDecodeChunk * a.v_gap;
}

// Non-finite values are never hidden: NaN or Inf in q, or in a visible key or value, makes the outputs that see it NaN or Inf.

// Work items. Prefill: (query head, tile of kPrefillTile tokens). Decode (m == 1): (KV head, chunk of kDecodeChunk keys).
constexpr int64_t PrefillItems(const AttentionArgs& a) { return int64_t{a.n_heads} * ((a.m + kPrefillTile - 1) / kPrefillTile); }
constexpr int FirstKey(const AttentionArgs& a) { return a.window > 0 && a.position + 1 > a.window ? a.position + 1 - a.window : 0; }
constexpr int DecodeChunks(const AttentionArgs& a) { return a.position / kDecodeChunk - FirstKey(a) / kDecodeChunk + 1; }
constexpr int64_t DecodeItems(const AttentionArgs& a) { return int64_t{a.n_kv_heads} * DecodeChunks(a); }
// What a prefill item covers. Head-major, so that equal runs of items cost about the same although later tiles see more keys.
struct PrefillItem {
  int head, token, token_end;  // queries [token, token_end)
};
constexpr PrefillItem PrefillItemAt(const AttentionArgs& a, int64_t item) {
  const int tiles = (a.m + kPrefillTile - 1) / kPrefillTile;
  const int token = static_cast<int>(item % tiles) * kPrefillTile;
  return {static_cast<int>(item / tiles), token, a.m - token < kPrefillTile ? a.m : token + kPrefillTile};
}
// What a decode item covers: chunks lie at multiples of kDecodeChunk of the absolute slot number.
struct DecodeItem {
  int kv_head, chunk, key, key_end;  // keys [key, key_end)
};
constexpr DecodeItem DecodeItemAt(const AttentionArgs& a, int64_t item) {
  const int chunks = DecodeChunks(a), first = FirstKey(a);
  const int chunk = static_cast<int>(item % chunks), begin = (first / kDecodeChunk + chunk) * kDecodeChunk;
  const int end = begin + kDecodeChunk;
  return {static_cast<int>(item / chunks), chunk, begin < first ? first : begin, end > a.position + 1 ? a.position + 1 : end};
}
// The decode items of thread `thread` of `n_threads`: runs that hold about the same number of keys. Chunks at the ends of what a
// query sees are short, so equal numbers of items would not be equal work.
struct DecodeShare {
  int64_t begin, end;
};
// The item whose first key lies nearest to the `keys`-th of all keys, counted over the KV heads.
constexpr int64_t DecodeItemNear(const AttentionArgs& a, int64_t keys) {
  const int first = FirstKey(a), seen = a.position + 1 - first;
  const int key = first + static_cast<int>(keys % seen), chunk = key / kDecodeChunk;
  const int begin = chunk * kDecodeChunk < first ? first : chunk * kDecodeChunk;
  const int end = (chunk + 1) * kDecodeChunk > a.position + 1 ? a.position + 1 : (chunk + 1) * kDecodeChunk;
  return keys / seen * DecodeChunks(a) + chunk - first / kDecodeChunk + (key - begin > end - key ? 1 : 0);
}
constexpr DecodeShare DecodeShareOf(const AttentionArgs& a, int thread, int n_threads) {
  const int64_t keys = int64_t{a.n_kv_heads} * (a.position + 1 - FirstKey(a));
  return {DecodeItemNear(a, keys * thread / n_threads), DecodeItemNear(a, keys * (thread + 1) / n_threads)};
}
// f32 values of the shared array of partial results for a cache of S slots: per query head and chunk {max, sum, pad to 16, acc [D]}.
constexpr int64_t PartialStride(int head_dim) { return 16 + head_dim; }
constexpr int64_t PartialFloats(int n_heads, int head_dim, int s) {
  return int64_t{n_heads} * ((s + kDecodeChunk - 1) / kDecodeChunk + 1) * PartialStride(head_dim);
}
// f32 values of scratch one thread needs, 64-byte aligned. Prefill: queries and accumulators of up to eight tiles [2][D][16] and what else
// is kept of them, scores and weights [keys of a block][32], one block of keys and values with a fixed row stride (kernels bake it into
// addresses).
// Decode: scores [rows][kDecodeChunk] and queries [rows][256] of up to 8 heads that share a KV head; kernels/attention_int8 takes more
// for its codes, and fits into what prefill needs (a static_assert there).
inline constexpr int kBlockKeys = 64, kBlockStride = 272;
constexpr int64_t AttentionScratchFloats(int n_heads, int n_kv_heads, int head_dim) {
  const int64_t prefill = int64_t{14} * kPrefillTile * head_dim + kBlockKeys * (4 * kPrefillTile + kBlockStride) + 1024;
  const int64_t decode = int64_t{n_heads / n_kv_heads > 8 ? n_heads / n_kv_heads : 8} * (kDecodeChunk + 256) + 64;
  return prefill > decode ? prefill : decode;
}

struct AttentionKernels {
  // Items [begin, end) of PrefillItems; any m >= 1. Threads take disjoint item ranges.
  void (*prefill)(const AttentionArgs& args, int64_t begin, int64_t end, float* scratch);
  // m == 1, items [begin, end) of DecodeItems: writes partial[head][chunk]. When DecodeChunks == 1 it writes `out` itself.
  void (*decode)(const AttentionArgs& args, int64_t begin, int64_t end, float* partial, float* scratch);
  // m == 1, DecodeChunks > 1: merges the partial results of query heads [head_begin, head_end) into out, after a barrier.
  void (*merge)(const AttentionArgs& args, int head_begin, int head_end, const float* partial);
  const char* name;
};
AttentionKernels Attention(Isa isa);  // best tier <= isa; pure

}  // namespace slm::kernels
