// FP4 as a storage format: E2M1 codes (0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign) under a scale of their group.
//
// Sources: OCP Microscaling Formats 1.0 (MXFP4: groups of 32, power-of-two scales E8M0); NVFP4 (groups of 16, scales E4M3 under one f32 of
// the tensor). ONNX: FLOAT4E2M1, FLOAT8E8M0, FLOAT8E4M3FN.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/small_floats.h"
#include "base/threads.h"
#include "quant/grid.h"

namespace slm::quant {

enum class Fp4 : uint8_t { kMx, kNv };
constexpr int GroupOf(Fp4 kind) { return kind == Fp4::kMx ? 32 : 16; }

using slm::E2M1Value;
using slm::E4M3Value;
using slm::E8M0Value;
uint8_t NearestE2M1(float v);  // ties to the even code; beyond 6: 6
uint8_t NearestE4M3(float v);  // v >= 0; ties to even; beyond 448: 448

// The scale of a tensor whose largest size is `most` (NVFP4; of MXFP4: 1).
float SharedScale(Fp4 kind, float most);
// One group: sets its codes [w.size()] and returns the code of its scale. Thread-safe.
uint8_t QuantizeFp4Group(Fp4 kind, Search search, std::span<const float> w, const float* u, float shared, uint8_t* codes);
// What is read back of one row of such groups, as a tensor of its own; `values` [w.size()]. Thread-safe.
void StoreFp4Row(Fp4 kind, Search search, std::span<const float> w, const float* u, float* values);

struct Fp4Rows {
  Fp4 kind = Fp4::kMx;
  int64_t rows = 0, width = 0;
  float shared = 1;             // of the tensor (NVFP4)
  std::vector<uint8_t> scales;  // [rows][width / group], E8M0 or E4M3
  std::vector<uint8_t> codes;   // [rows][width], 0 to 15

  void Values(int64_t i, float* out) const;  // out [width]
};

// w [rows][width], finite; the group divides the width; `u` [width] or nullptr. kNearest: scales as the formats say (MXFP4: exponent of the
// largest value less 2; NVFP4: largest value / 6, rounded). kRefit: the scales nearby with the least weighted error. The same for any
// number of threads.
Fp4Rows QuantizeFp4(Fp4 kind, Search search, const float* w, int64_t rows, int64_t width, const float* u, ThreadTeam& team);

}  // namespace slm::quant
