// Norms, residual adds, element-wise operators, rotary embedding, cache stores and attention.
#include <cmath>
#include <cstring>

#include "backend/cpu/steps.h"
#include "kv/kv.h"
#include "telemetry/telemetry.h"

namespace slm::backend {
namespace {

// Columns [begin, end) of a row for this thread: all of them when threads split rows.
struct Part {
  RowRange rows;
  Range row_share;  // of rows.count
  Range columns;    // of width
};
Part PartOf(const Frame& f, RowSet set, int64_t width) {
  const RowRange rows = RowsOf(set, f);
  if (rows.count == 1) return {rows, {0, 1}, SplitRange(width, 32, f.thread, f.n_threads)};
  return {rows, SplitRange(rows.count, 1, f.thread, f.n_threads), {0, width}};
}

void RunElements(const ElementStep& s, const float* a, const float* b, int64_t begin, int64_t n, float* y) {
  const bool scalar = s.constant.size() == 1;
  const float* vector = s.constant.size() > 1 ? s.constant.data() + begin : b;
  switch (s.op) {
    case ElementStep::Op::kAdd:
      if (!scalar) return s.kernels.add(a, vector, n, y);
      for (int64_t i = 0; i < n; ++i) y[i] = a[i] + s.constant[0];
      return;
    case ElementStep::Op::kMul: return scalar ? s.kernels.scale(a, s.constant[0], n, y) : s.kernels.mul(a, vector, n, y);
    case ElementStep::Op::kDiv:
      for (int64_t i = 0; i < n; ++i) y[i] = a[i] / (scalar ? s.constant[0] : vector[i]);
      return;
    case ElementStep::Op::kTanh:
      for (int64_t i = 0; i < n; ++i) y[i] = std::tanh(a[i]);
      return;
    case ElementStep::Op::kSigmoid:
      for (int64_t i = 0; i < n; ++i) y[i] = 1.0f / (1.0f + std::exp(-a[i]));
      return;
    case ElementStep::Op::kActivate: return s.kernels.activate(a, s.act, n, y);
    case ElementStep::Op::kGate: return s.kernels.gate(a, vector, s.act, n, y);
  }
}

}  // namespace

void NormStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("norm");
  const auto& s = *static_cast<const NormStep*>(operands);
  const RowRange rows = RowsOf(s.rows, f);
  const int n = static_cast<int>(s.x.width / s.heads);
  const Range r = SplitRange(int64_t{rows.count} * s.heads, 1, f.thread, f.n_threads);
  for (int64_t i = r.begin; i < r.end; ++i) {
    const int64_t token = rows.begin + i / s.heads, at = i % s.heads * n;
    s.kernels.rms_norm(f.At(s.x, token) + at, s.w, s.eps, n, f.At(s.y, token) + at);
  }
}

void AddStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("residual_add");
  const auto& s = *static_cast<const AddStep*>(operands);
  const Part p = PartOf(f, s.rows, s.x.width);
  for (int64_t i = p.row_share.begin; i < p.row_share.end; ++i) {
    const int64_t token = p.rows.begin + i;
    const float* d = f.At(s.d, token);
    if (s.norm_w) {
      s.norm.rms_norm(d, s.norm_w, s.eps, static_cast<int>(s.x.width), f.row);
      d = f.row;
    }
    float* x = f.At(s.x, token) + p.columns.begin;
    s.act.add(x, d + p.columns.begin, p.columns.end - p.columns.begin, x);
  }
}

void ElementStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("element");
  const auto& s = *static_cast<const ElementStep*>(operands);
  const Part p = PartOf(f, s.rows, s.out.width);
  const int64_t b = p.columns.begin, n = p.columns.end - b;
  if (n <= 0) return;
  for (int64_t i = p.row_share.begin; i < p.row_share.end; ++i) {
    const int64_t token = p.rows.begin + i;
    const float* second = s.b.width > 0 ? f.At(s.b, token) + b : nullptr;
    RunElements(s, f.At(s.a, token) + b, second, b, n, f.At(s.out, token) + b);
  }
}

void RotaryStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("rotary");
  const auto& s = *static_cast<const RotaryStep*>(operands);
  const Range r = SplitRange(int64_t{f.m} * s.n_heads, 1, f.thread, f.n_threads);
  for (int64_t i = r.begin; i < r.end; ++i) {
    const int64_t token = i / s.n_heads, at = i % s.n_heads * s.head_dim;
    const int64_t table = (f.position + token) * (s.rotary_dim / 2);
    float* y = f.At(s.out, token) + at;
    const float* x = f.At(s.x, token) + at;
    if (x != y) std::memcpy(y, x, static_cast<size_t>(s.head_dim) * 4);
    s.kernels.rope({y, 1, s.head_dim, s.rotary_dim, s.interleaved, s.cos + table, s.sin + table});
  }
}

namespace {
static_assert(kv::kBlockSlots == kernels::kDecodeChunk);
enum class Role { kKey, kValue };
void StoreHead(const StoreStep& s, const Frame& f, const float* x, Role role, int64_t head, int64_t slot) {
  const int64_t gaps = slot / kv::kBlockSlots;
  std::byte* block = f.kv + (role == Role::kKey ? s.kv.k_offset + gaps * s.kv.k_gap : s.kv.v_offset + gaps * s.kv.v_gap);
  const int64_t at = head * s.kv.head_stride + slot * s.head_dim;
  switch (s.kv.type) {
    case kernels::KvType::kF16: return s.pack.store_f16(x, s.head_dim, reinterpret_cast<uint16_t*>(block) + at);
    case kernels::KvType::kF32: std::memcpy(reinterpret_cast<float*>(block) + at, x, static_cast<size_t>(s.head_dim) * 4); return;
    case kernels::KvType::kInt8: break;
  }
  uint8_t* tiles = reinterpret_cast<uint8_t*>(block);
  if (role == Role::kKey) s.int8.store_key(x, s.head_dim, slot, tiles + head * kernels::KeyHeadBytes(s.kv.head_stride, s.head_dim));
  else s.int8.store_value(x, s.head_dim, slot, tiles + head * kernels::ValueHeadBytes(s.kv.head_stride, s.head_dim));
}
}  // namespace

KvPlace KvPlaceOf(const kv::LayerPlace& place, kernels::KvType type) {
  return {.k_offset = static_cast<int64_t>(place.k_offset),
          .v_offset = static_cast<int64_t>(place.v_offset),
          .head_stride = static_cast<int64_t>(place.head_stride),
          .k_gap = static_cast<int64_t>(place.k_gap),
          .v_gap = static_cast<int64_t>(place.v_gap),
          .type = type};
}

void StoreStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("rope_store");
  const auto& s = *static_cast<const StoreStep*>(operands);
  const int64_t per_token = s.n_heads + 2 * s.n_kv_heads;  // q heads, then k, then v
  const Range r = SplitRange(f.m * per_token, 1, f.thread, f.n_threads);
  for (int64_t i = r.begin; i < r.end; ++i) {
    const int64_t token = i / per_token, slot = f.position + token;
    int64_t head = i % per_token;
    const int64_t table = slot * (s.rotary_dim / 2);
    if (head < s.n_heads) {
      if (s.cos)
        s.rope.rope({f.At(s.q, token) + head * s.head_dim, 1, s.head_dim, s.rotary_dim, s.interleaved, s.cos + table, s.sin + table});
      continue;
    }
    head -= s.n_heads;
    if (head < s.n_kv_heads) {
      float* k = f.At(s.k, token) + head * s.head_dim;
      if (s.cos) s.rope.rope({k, 1, s.head_dim, s.rotary_dim, s.interleaved, s.cos + table, s.sin + table});
      StoreHead(s, f, k, Role::kKey, head, slot);
      continue;
    }
    head -= s.n_kv_heads;
    StoreHead(s, f, f.At(s.v, token) + head * s.head_dim, Role::kValue, head, slot);
  }
}

kernels::AttentionArgs AttentionStep::Args(const Frame& f) const {
  const RowRange r = RowsOf(rows, f);
  kernels::AttentionArgs a;
  a.q = f.At(q, r.begin);
  a.q_stride = q.stride;
  a.k = f.kv + kv.k_offset;
  a.v = f.kv + kv.v_offset;
  a.kv_head_stride = kv.head_stride;
  a.k_gap = kv.k_gap;
  a.v_gap = kv.v_gap;
  a.kv_type = kv.type;
  a.n_heads = n_heads;
  a.n_kv_heads = n_kv_heads;
  a.head_dim = head_dim;
  a.m = r.count;
  a.position = f.position + r.begin;
  a.window = window;
  a.scale = scale;
  a.softcap = softcap;
  a.out = f.At(out, r.begin);
  a.out_stride = out.stride;
  return a;
}

void AttentionStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("attention");
  const auto& s = *static_cast<const AttentionStep*>(operands);
  const kernels::AttentionArgs a = s.Args(f);
  if (a.m == 1) {
    const kernels::DecodeShare r = kernels::DecodeShareOf(a, f.thread, f.n_threads);
    if (r.begin < r.end) s.kernels.decode(a, r.begin, r.end, f.partial, f.scratch);
  } else {
    const Range r = SplitRange(kernels::PrefillItems(a), 1, f.thread, f.n_threads);
    if (r.begin < r.end) s.kernels.prefill(a, r.begin, r.end, f.scratch);
  }
}

void AttentionStep::Merge(const void* operands, const Frame& f) {
  SLM_ZONE("attention_merge");
  const auto& s = *static_cast<const AttentionStep*>(operands);
  const kernels::AttentionArgs a = s.Args(f);
  if (a.m != 1 || kernels::DecodeChunks(a) == 1) return;
  const Range r = SplitRange(s.n_heads, 1, f.thread, f.n_threads);
  if (r.begin < r.end) s.kernels.merge(a, static_cast<int>(r.begin), static_cast<int>(r.end), f.partial);
}

}  // namespace slm::backend
