// Scalar law of attention: plain dot products, two-pass softmax per query (prefill) or per chunk of keys (decode).
//
// A score that is not finite becomes NaN (s + (s - s)) before the soft cap and the softmax could hide it.
#include <cmath>

#include "base/float16.h"
#include "kernels/attention/contract.h"

namespace slm::kernels {
namespace {

float At(const void* base, KvType type, int64_t i) {
  return type == KvType::kF16 ? HalfToFloat(static_cast<const uint16_t*>(base)[i]) : static_cast<const float*>(base)[i];
}

float Score(const AttentionArgs& a, const float* q, int kv_head, int key) {
  const int64_t row = kv_head * a.kv_head_stride + int64_t{key} * a.head_dim;
  float dot = 0;
  for (int d = 0; d < a.head_dim; ++d) dot += q[d] * At(KeysAt(a, key), a.kv_type, row + d);
  float s = dot * a.scale;
  s += s - s;
  return a.softcap > 0 ? a.softcap * std::tanh(s / a.softcap) : s;
}

struct Softmax {
  float max, sum;
};

// acc[d] = sum_j exp(s_j - max) v_j over keys [first, last]; scores: scratch of last - first + 1 values.
Softmax Accumulate(const AttentionArgs& a, const float* q, int kv_head, int first, int last, float* acc, float* scores) {
  Softmax r = {-INFINITY, 0};
  for (int j = first; j <= last; ++j) {
    scores[j - first] = Score(a, q, kv_head, j);
    if (scores[j - first] > r.max) r.max = scores[j - first];
  }
  for (int d = 0; d < a.head_dim; ++d) acc[d] = 0;
  for (int j = first; j <= last; ++j) {
    const int64_t row = kv_head * a.kv_head_stride + int64_t{j} * a.head_dim;
    const float p = std::exp(scores[j - first] - r.max);
    r.sum += p;
    for (int d = 0; d < a.head_dim; ++d) acc[d] += p * At(ValuesAt(a, j), a.kv_type, row + d);
  }
  return r;
}

// Adds a part (max, sum, acc) to a running one: the online softmax step.
void Join(Softmax& r, float* acc, Softmax part, const float* part_acc, int head_dim) {
  const float max = r.max > part.max ? r.max : part.max;
  const float wr = std::exp(r.max - max), wp = std::exp(part.max - max);
  for (int d = 0; d < head_dim; ++d) acc[d] = acc[d] * wr + part_acc[d] * wp;
  r = {max, r.sum * wr + part.sum * wp};
}

void Prefill(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  const int group = a.n_heads / a.n_kv_heads, dim = a.head_dim;
  float *acc = scratch, *part = acc + dim, *scores = part + dim;
  for (int64_t item = begin; item < end; ++item) {
    const PrefillItem it = PrefillItemAt(a, item);
    for (int i = it.token; i < it.token_end; ++i) {
      const float* q = a.q + i * a.q_stride + int64_t{it.head} * dim;
      const int last = a.position + i;
      const int first = a.window > 0 && last + 1 > a.window ? last + 1 - a.window : 0;
      Softmax r = {-INFINITY, 0};
      for (int j = first; j <= last; j += kDecodeChunk) {
        const int stop = j + kDecodeChunk - 1 < last ? j + kDecodeChunk - 1 : last;
        const Softmax p = Accumulate(a, q, it.head / group, j, stop, j == first ? acc : part, scores);
        if (j == first) r = p;
        else Join(r, acc, p, part, dim);
      }
      float* out = a.out + i * a.out_stride + int64_t{it.head} * dim;
      for (int d = 0; d < dim; ++d) out[d] = acc[d] / r.sum;
    }
  }
}

void Decode(const AttentionArgs& a, int64_t begin, int64_t end, float* partial, float* scratch) {
  const int group = a.n_heads / a.n_kv_heads, dim = a.head_dim, chunks = DecodeChunks(a);
  for (int64_t item = begin; item < end; ++item) {
    const DecodeItem it = DecodeItemAt(a, item);
    for (int h = it.kv_head * group; h < (it.kv_head + 1) * group; ++h) {
      const float* q = a.q + int64_t{h} * dim;
      float* p = partial + (int64_t{h} * chunks + it.chunk) * PartialStride(dim);
      if (chunks == 1) {
        float* out = a.out + int64_t{h} * dim;
        const Softmax r = Accumulate(a, q, it.kv_head, it.key, it.key_end - 1, out, scratch);
        for (int d = 0; d < dim; ++d) out[d] /= r.sum;
      } else {
        const Softmax r = Accumulate(a, q, it.kv_head, it.key, it.key_end - 1, p + 16, scratch);
        p[0] = r.max;
        p[1] = r.sum;
      }
    }
  }
}

void Merge(const AttentionArgs& a, int head_begin, int head_end, const float* partial) {
  const int dim = a.head_dim, chunks = DecodeChunks(a);
  for (int h = head_begin; h < head_end; ++h) {
    const float* p = partial + int64_t{h} * chunks * PartialStride(dim);
    float* out = a.out + int64_t{h} * dim;
    Softmax r = {p[0], p[1]};
    for (int d = 0; d < dim; ++d) out[d] = p[16 + d];
    for (int c = 1; c < chunks; ++c) {
      p += PartialStride(dim);
      Join(r, out, {p[0], p[1]}, p + 16, dim);
    }
    for (int d = 0; d < dim; ++d) out[d] /= r.sum;
  }
}

}  // namespace

extern const AttentionKernels kAttentionRef;
const AttentionKernels kAttentionRef = {Prefill, Decode, Merge, "attention_scalar"};

}  // namespace slm::kernels
