// Scalar law of attention over an int8 cache: plain loops over the codes, in the arithmetic that the contract states.
#include <cmath>

#include "base/float16.h"
#include "kernels/attention_int8/codes.h"

namespace slm::kernels {
namespace {

void StoreKey(const float* x, int dim, int64_t slot, uint8_t* head) { StoreKeyWith(x, dim, slot, head, FloatToHalf, HalfToFloat); }
void StoreValue(const float* x, int dim, int64_t slot, uint8_t* head) { StoreValueCodes(x, dim, slot, head); }

// One KV head's cache, slot by slot.
struct Cache {
  const AttentionArgs& a;
  int kv_head, dim;
  Cache(const AttentionArgs& args, int head) : a(args), kv_head(head), dim(args.head_dim) {}
  const uint8_t* KeyTile(int slot) const { return KeyTileOf(a, kv_head, slot); }
  const uint8_t* ValueTile(int slot) const { return ValueTileOf(a, kv_head, slot); }
  float KeyScale(int slot, int group) const {
    uint16_t half;
    __builtin_memcpy(&half, KeyTile(slot) + (group * kTileSlots + slot % kTileSlots) * 2, 2);
    return HalfToFloat(half);
  }
  float ValueScale(int slot) const {
    float scale;
    __builtin_memcpy(&scale, ValueTile(slot) + slot % kTileSlots * 4, 4);
    return scale;
  }
  int KeyByte(int slot, int d) const { return (KeyTile(slot) + KeyScaleBytes(dim))[(d / 4 * kTileSlots + slot % kTileSlots) * 4 + d % 4]; }
  int ValueCode(int slot, int d) const {
    const int s = slot % kTileSlots;
    return static_cast<int8_t>((ValueTile(slot) + kValueScaleBytes)[(s / 4 * dim + d) * 4 + s % 4]);
  }
};

// A score that is not finite becomes NaN before the soft cap or the softmax could hide it.
float Finished(const AttentionArgs& a, float s) {
  s += s - s;
  return a.softcap > 0 ? a.softcap * std::tanh(s / a.softcap) : s;
}

void Prefill(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  const int group = a.n_heads / a.n_kv_heads, dim = a.head_dim;
  float *acc = scratch, *q = acc + dim;
  for (int64_t item = begin; item < end; ++item) {
    const PrefillItem it = PrefillItemAt(a, item);
    const Cache cache(a, it.head / group);
    for (int i = it.token; i < it.token_end; ++i) {
      for (int d = 0; d < dim; ++d) q[d] = a.q[i * a.q_stride + int64_t{it.head} * dim + d] / static_cast<float>(RotationSize(dim));
      Rotate(q, dim);
      const int last = a.position + i;
      float max = -INFINITY, sum = 0;
      for (int d = 0; d < dim; ++d) acc[d] = 0;
      for (int j = a.window > 0 && last + 1 > a.window ? last + 1 - a.window : 0; j <= last; ++j) {
        float dot = 0;
        for (int d = 0; d < dim; ++d) dot += q[d] * (static_cast<float>(cache.KeyByte(j, d) - 128) * cache.KeyScale(j, d / kKeyGroup));
        const float s = Finished(a, dot * a.scale);
        const float top = s > max ? s : max, old = std::exp(max - top), p = std::exp(s - top), scale = cache.ValueScale(j);
        for (int d = 0; d < dim; ++d) acc[d] = acc[d] * old + p * (static_cast<float>(cache.ValueCode(j, d)) * scale);
        sum = sum * old + p;
        max = top;
      }
      float* out = a.out + i * a.out_stride + int64_t{it.head} * dim;
      for (int d = 0; d < dim; ++d) out[d] = acc[d] / sum;
    }
  }
}

struct Softmax {
  float max, sum;
};

// Slots [it.key, it.key_end) for one query head; weights: scratch of kDecodeChunk values.
Softmax Accumulate(const AttentionArgs& a, const Cache& cache, const DecodeItem& it, const float* q, float* acc, float* weights) {
  int16_t codes[256];
  int32_t sums[8];
  const float q_scale = QueryCodes(q, a.head_dim, codes, sums) * a.scale;
  Softmax r = {-INFINITY, 0};
  for (int j = it.key; j < it.key_end; ++j) {
    float dot = 0;
    for (int g = 0; g < KeyGroups(a.head_dim); ++g) {
      int32_t exact = sums[g];
      for (int d = g * kKeyGroup; d < (g + 1) * kKeyGroup && d < a.head_dim; ++d) exact += cache.KeyByte(j, d) * codes[d];
      dot += static_cast<float>(exact) * cache.KeyScale(j, g);
    }
    const float s = Finished(a, dot * q_scale);
    weights[j - it.key] = s;
    r.max = s > r.max ? s : r.max;
  }
  float most = 0, shown = 0;  // shown: NaN when a weight is
  for (int j = it.key; j < it.key_end; ++j) {
    const float p = std::exp(weights[j - it.key] - r.max), w = p * cache.ValueScale(j);
    r.sum += p;
    shown += w * 0;
    weights[j - it.key] = w;
    most = w > most ? w : most;
  }
  const float inverse = Inverse(most * (1.0f / kWeightSteps)), scale = most * (1.0f / kWeightSteps) + shown;
  for (int d = 0; d < a.head_dim; ++d) {
    int32_t exact = 0;
    for (int j = it.key; j < it.key_end; ++j) exact += WeightCode(weights[j - it.key], inverse) * cache.ValueCode(j, d);
    acc[d] = static_cast<float>(exact) * scale;
  }
  return r;
}

void Decode(const AttentionArgs& a, int64_t begin, int64_t end, float* partial, float* scratch) {
  const int group = a.n_heads / a.n_kv_heads, dim = a.head_dim, chunks = DecodeChunks(a);
  for (int64_t item = begin; item < end; ++item) {
    const DecodeItem it = DecodeItemAt(a, item);
    const Cache cache(a, it.kv_head);
    for (int h = it.kv_head * group; h < (it.kv_head + 1) * group; ++h) {
      float *p = partial + (int64_t{h} * chunks + it.chunk) * PartialStride(dim), *out = a.out + int64_t{h} * dim;
      const Softmax r = Accumulate(a, cache, it, a.q + int64_t{h} * dim, chunks == 1 ? out : p + 16, scratch);
      if (chunks == 1) {
        for (int d = 0; d < dim; ++d) out[d] /= r.sum;
      } else {
        p[0] = r.max;
        p[1] = r.sum;
      }
    }
  }
}

}  // namespace

extern const AttentionInt8Kernels kAttentionInt8Ref;
const AttentionInt8Kernels kAttentionInt8Ref = {StoreKey, StoreValue, Prefill, Decode, "attention_int8_scalar"};

}  // namespace slm::kernels
