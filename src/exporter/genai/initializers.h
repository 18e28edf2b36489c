// Constants of a graph as ONNX initializers: matrices as codes in blocks where the source is quantized, else as f32.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx/onnx.h"

namespace slm::exporter {

// A matrix [n, k] as com.microsoft's operators take it: value = scale * (code - zero), codes of 4 or 8 bits, lowest first. What a type's
// minimum adds to all values of a block stands beside it. Zero points in f32 would say the same in one operator, but ONNX Runtime's CPU
// kernel then widens the whole matrix at every call: 28 ms against 0.1 for 1536 x 1536 and one token.
struct BlockMatrix {
  int bits = 4;
  int64_t block = 32;          // columns that share a scale; a power of two from 16 on
  int64_t n = 0, k = 0;        // block divides k
  std::vector<uint8_t> codes;  // [n, k / block, block * bits / 8]
  std::vector<float> scales;   // [n, k / block]
  std::vector<uint8_t> zeros;  // [n, ceil(k / block * bits / 8)], or empty: every zero is 2^(bits - 1)
  std::vector<float> offsets;  // [n, k / block] that a block's values get besides, or empty
};

// How a constant's matrix is stored in the file.
enum class Stored : uint8_t {
  kBlocks,  // BlockMatrix holds it
  kFloat,   // it is float, or in a form that BlockMatrix cannot hold
};
Stored FormOf(const graph::Constant& c);
bool HasOffsets(const graph::Constant& c);   // of kBlocks: offsets will not be empty
bool IsQuantized(const graph::Constant& c);  // in the source
// Of kBlocks. Values are the source's exactly, those of types with a minimum (Q4_1, Q4_K …) up to the rounding of an offset.
BlockMatrix ReadBlocks(const graph::Constant& c);

// Adds initializers to a graph and owns their bytes. A constant that is asked for twice is stored once.
class Initializers {
 public:
  Initializers(const graph::Graph& source, onnx::Graph* out) : g_(source), out_(out), bytes_(std::make_shared<Bytes>()) {}

  std::string Floats(const std::string& name, std::vector<int64_t> dims, const std::vector<float>& values);
  std::string Integers(const std::string& name, std::vector<int64_t> dims, const std::vector<int64_t>& values);

  // A fixed value as it is, f32; a matrix [n, k] as [k, n].
  std::string Fixed(graph::ValueId v);
  std::string Transposed(graph::ValueId v);

  struct Blocks {
    int bits = 4;
    int64_t block = 32, n = 0, k = 0;
    std::string codes, scales, zeros, offsets;  // the last two "": none; offsets [k / block, n]
  };
  const Blocks& BlocksOf(graph::ValueId v);
  // The same codes seen as [n, k * bits / 8], for GatherBlockQuantized.
  std::string FlatCodes(graph::ValueId v);

  std::shared_ptr<const void> bytes() const { return bytes_; }

 private:
  using Bytes = std::deque<std::vector<std::byte>>;
  std::string Add(const std::string& name, onnx::ElementType type, std::vector<int64_t> dims, const void* data, size_t n_bytes);

  const graph::Graph& g_;
  onnx::Graph* out_;
  std::shared_ptr<Bytes> bytes_;
  std::map<std::string, size_t> known_;  // index in out_->initializers
  std::map<graph::ValueId, Blocks> blocks_;
};

}  // namespace slm::exporter
