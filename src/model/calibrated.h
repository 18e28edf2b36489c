// What calibration finds for graphs of fixed shapes: codes of matrices, ranges of values, the cache of a prefix. A door: quant makes them,
// exporter writes them, and neither may include the other.
#pragma once
#include <cstdint>
#include <vector>

namespace slm::model {

struct ValueRange {
  float low = 0, high = 0;
};

// A matrix as codes: value = scale * (code - 2^(bits - 1)).
struct CodedMatrix {
  int bits = 8;  // 4 or 8
  int64_t rows = 0, width = 0;
  int64_t group = 0;           // columns that share a scale; 0: a whole row
  std::vector<uint8_t> codes;  // [rows][width]
  std::vector<float> scales;   // [rows][width / group], or [rows]
};

// Keys, rotated, and values that a prefix leaves in the cache of one layer, in the graph's order: [prefix tokens][Hkv * D].
struct PrefixCache {
  std::vector<float> keys, values;
};

}  // namespace slm::model
