// The flat plan: a list of steps (kernel pointer + operand places) that every thread walks in lock step.
//
// What a step touches is declared once (Access), and the barriers follow from it by arithmetic: a barrier stands before a step
// only if it would read what another thread wrote, or overwrite what another thread may still read.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "kernels/packed/contract.h"
#include "kernels/quantize/contract.h"

namespace slm::backend {

// Rows of f32: in the activation arena (one row a token of the call) or in the logits buffer (one row an output row).
struct Place {
  enum class Base : uint8_t { kArena, kLogits } base = Base::kArena;
  int64_t offset = 0;  // values from the base to row 0
  int64_t stride = 0;  // values from row to row
  int64_t width = 0;   // values that count
};

// Activations of up to `rows` tokens for quantized matrices: int8, rows back to back at the width in use, or, in the same memory,
// bf16 tiles where a product of many tokens takes those (kernels/packed/tiles.h).
struct ActivationBuffer {
  int8_t* q = nullptr;
  float* scale = nullptr;
  int32_t* sum = nullptr;
  kernels::ResidualBlock* residual = nullptr;
  int32_t* residual_count = nullptr;  // [rows]
  uint16_t* Tiles() const { return reinterpret_cast<uint16_t*>(q); }
  kernels::Q8Row Row(int64_t i, int64_t padded_k) const {
    const int64_t block = i * padded_k / kernels::kBlockK;
    return {q + i * padded_k, scale + block, sum + block, residual + block, residual_count + i};
  }
};

// What a step function sees of one Forward on one thread.
struct Frame {
  const int32_t* tokens = nullptr;
  int m = 0;           // tokens of the call
  int position = 0;    // cache slot of token 0
  int tail_begin = 0;  // first token whose logits are wanted: steps after the last attention work on [tail_begin, m)
  int thread = 0, n_threads = 1;
  float* arena = nullptr;
  float* logits = nullptr;
  ActivationBuffer shared;    // written by all threads together when a step works on several rows
  ActivationBuffer mine;      // one row, this thread's own: every thread quantizes the row again instead of waiting
  float* padded = nullptr;    // [chunk][widest padded K] f32 input of float matrices whose width is no multiple of 64
  float* partial = nullptr;   // attention's partial results
  float* scratch = nullptr;   // this thread's attention scratch
  float* row = nullptr;       // this thread's own f32 row
  uint8_t* unpack = nullptr;  // this thread's matmul scratch
  uint8_t* piece = nullptr;   // this thread's panels of a matrix that stays in the file
  std::byte* kv = nullptr;

  float* At(const Place& p, int64_t token) const {
    return p.base == Place::Base::kArena ? arena + p.offset + token * p.stride : logits + p.offset + (token - tail_begin) * p.stride;
  }
};

// Which tokens a step works on: all, or from tail_begin on.
enum class RowSet : uint8_t { kAll, kTail };
struct RowRange {
  int begin, count;
};
inline RowRange RowsOf(RowSet set, const Frame& f) {
  const int b = set == RowSet::kTail ? f.tail_begin : 0;
  return {b, f.m - b};
}

// The three ways a plan is walked; barriers differ.
enum class Mode : uint8_t { kDecode, kPrefillLast, kPrefillAll, kCount };

// Something that steps share. Arena ranges are bytes per row, so places with different strides never compare: the whole value
// is one range.
struct Resource {
  enum class Kind : uint8_t { kArena, kLogits, kActivations, kPadded, kPartial, kKv } kind;
  int64_t begin = 0, end = 0;  // kArena: bytes of the arena; kKv: layer
};
struct Access {
  std::vector<Resource> reads, writes;
};

struct Step {
  void (*fn)(const void* operands, const Frame& frame) = nullptr;
  std::shared_ptr<const void> operands;
  RowSet rows = RowSet::kAll;
  bool barrier[static_cast<int>(Mode::kCount)] = {};  // before the step
  // Decides with one row only (decode, or the tail of a prefill): private activation rows are not shared accesses.
  Access one_row, many_rows;
  // For reports and diagnosis.
  std::string name;  // the node's
  const char* kernel = "";
  Place out;  // where its f32 result is, width 0: none
  int layer = -1;
};

// Sets Step::barrier for every mode.
void PlaceBarriers(std::vector<Step>& steps);

}  // namespace slm::backend
