// The steps a plan is made of: operand records and the functions that run them on one thread's share.
//
// Every function takes a pointer to its own operand record and the frame. With several rows, threads split rows (or panels, or
// heads); with one row, cheap element work is done by every thread for itself where the result is private, else by column
// ranges.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/packed_matrix.h"
#include "backend/cpu/plan.h"
#include "kernels/activation/contract.h"
#include "kernels/attention_int8/contract.h"
#include "kernels/norm/contract.h"
#include "kernels/quantize/contract.h"
#include "kernels/rope/contract.h"
#include "kv/kv.h"

namespace slm::backend {

// tokens -> rows of the embedding matrix. Packed when a head shares it, else straight from the file.
struct EmbedStep {
  const PackedMatrix* packed = nullptr;
  const model::Tensor* file = nullptr;
  float scale = 1;
  Place out;
  static void Run(const void* operands, const Frame& f);
};

// How the input of quantized matrices is made for a call of many tokens where the tier has wide products: `tiles` empty: it has none.
struct WideInput {
  kernels::TileKernels tiles;
  kernels::NormKernels norm;
  kernels::ActivationKernels act;
  bool Takes(int n_rows) const { return tiles.store_row != nullptr && n_rows >= kernels::kWideTokens; }
};

// x (+ norm) -> activations of quantized matrices. norm_w null: plain.
struct QuantizeStep {
  kernels::QuantizeKernels kernels;
  WideInput wide;
  Place x;
  const float* norm_w = nullptr;
  float eps = 0;
  RowSet rows;
  static void Run(const void* operands, const Frame& f);
};
// act(gate) * up -> activations of quantized matrices; the two halves are places of one product.
struct GateQuantizeStep {
  kernels::QuantizeKernels kernels;
  WideInput wide;
  Place gate, up;
  int act = 0;
  RowSet rows;
  static void Run(const void* operands, const Frame& f);
};

// out (=, +=) x W^T + bias. Quantized matrices read the activation buffer, float ones the place x (or the padded copy).
struct MatMulStep {
  const PackedMatrix* w = nullptr;
  kernels::MatMulKernel kernel;
  kernels::MatMulKernel wide;  // from kWideTokens rows on; empty: none
  Place x;
  bool from_padded = false;
  Place out;                // stride >= padded rows
  std::vector<float> bias;  // padded like the output, or empty
  bool accumulate = false;
  RowSet rows;
  static void Run(const void* operands, const Frame& f);
};
// Copies rows of x into the padded buffer, zeros past the width.
struct PadStep {
  Place x;
  int64_t padded_k = 0;
  RowSet rows;
  static void Run(const void* operands, const Frame& f);
};

// y = rms_norm(x), `heads` independent pieces of width / heads values in a row; y may be x.
struct NormStep {
  kernels::NormKernels kernels;
  Place x, y;
  const float* w = nullptr;
  float eps = 0;
  int heads = 1;
  RowSet rows;
  static void Run(const void* operands, const Frame& f);
};
// x += d (norm_w null) or x += rms_norm(d).
struct AddStep {
  kernels::NormKernels norm;
  kernels::ActivationKernels act;
  Place x, d;
  const float* norm_w = nullptr;
  float eps = 0;
  RowSet rows;
  static void Run(const void* operands, const Frame& f);
};

// Element-wise: out = op(a, b); b is a place, a constant vector of the row's width, or one number.
struct ElementStep {
  enum class Op : uint8_t { kAdd, kMul, kDiv, kTanh, kSigmoid, kActivate, kGate } op;
  kernels::ActivationKernels kernels;
  Place a, b, out;
  std::vector<float> constant;  // [1] or [width]; empty: b is a place
  int act = 0;
  RowSet rows;
  static void Run(const void* operands, const Frame& f);
};

// Rotates a value in place of `out` (copied first when it is another place).
struct RotaryStep {
  kernels::RopeKernels kernels;
  Place x, out;
  int n_heads = 0, head_dim = 0, rotary_dim = 0;
  bool interleaved = false;
  const float* cos = nullptr;  // [S][rotary_dim / 2]
  const float* sin = nullptr;
  static void Run(const void* operands, const Frame& f);
};

// Byte places of one layer's cache.
struct KvPlace {
  int64_t k_offset = 0, v_offset = 0;  // bytes
  int64_t head_stride = 0;             // values, over whole tiles
  int64_t k_gap = 0, v_gap = 0;        // bytes between blocks of slots (kv/kv.h)
  kernels::KvType type = kernels::KvType::kF16;
};
KvPlace KvPlaceOf(const kv::LayerPlace& place, kernels::KvType type);

// Rotates q and k in place (cos null: not) and stores k and v of every token in the cache.
struct StoreStep {
  kernels::RopeKernels rope;
  kernels::KvPackKernels pack;
  kernels::AttentionInt8Kernels int8;  // of a cache of that type
  Place q, k, v;
  int n_heads = 0, n_kv_heads = 0, head_dim = 0, rotary_dim = 0;
  bool interleaved = false;
  const float* cos = nullptr;
  const float* sin = nullptr;
  KvPlace kv;
  static void Run(const void* operands, const Frame& f);
};
// Attention over the cache; lowering puts the functions of the cache's type into `kernels`. One row: decode by (KV head, chunk of keys),
// merged by Merge when there are several chunks.
struct AttentionStep {
  kernels::AttentionKernels kernels;
  Place q, out;
  int n_heads = 0, n_kv_heads = 0, head_dim = 0, window = 0;
  float scale = 1, softcap = 0;
  KvPlace kv;
  RowSet rows;
  kernels::AttentionArgs Args(const Frame& f) const;
  static void Run(const void* operands, const Frame& f);
  static void Merge(const void* operands, const Frame& f);
};

}  // namespace slm::backend
