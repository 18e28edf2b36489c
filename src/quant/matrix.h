// Matrices of f32 in memory and their products, on the kernels that run the model: what calibration computes with.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "base/cpu_features.h"
#include "base/threads.h"

namespace slm::quant {

// [rows, columns] f32, zeros at first; rows start on 64 bytes and are filled up with zeros to `stride`, a multiple of 64 values.
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t columns);
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t stride() const { return stride_; }
  float* Row(int64_t i) { return values_.get() + i * stride_; }
  const float* Row(int64_t i) const { return values_.get() + i * stride_; }
  std::span<const float> Values(int64_t i) const { return {Row(i), static_cast<size_t>(columns_)}; }
  // Forgets rows past `rows` <= rows().
  void Shorten(int64_t rows) { rows_ = rows; }
  static int64_t BytesOf(int64_t rows, int64_t columns) { return rows * ((columns + 63) / 64 * 64) * 4; }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  int64_t rows_ = 0, columns_ = 0, stride_ = 0;
  std::unique_ptr<float[], Free> values_;
};

// Who computes: the threads and the kernels' tier. Products are sums in the order of the inner dimension: the same bits for any number
// of threads.
struct Machine {
  ThreadTeam* team = nullptr;
  Isa isa = Isa::kScalar;
};

// B [n, k], packed for products; holds n * k values of its own.
class Multiplier {
 public:
  Multiplier(const Machine& machine, const Matrix& b);
  enum class Sum : uint8_t { kSet, kAdd };
  enum class Part : uint8_t { kAll, kUpper };  // kUpper: only what lies on or above the diagonal is right afterwards
  // c [m, n] (=, +=) a [m, k] b^T.
  void Multiply(const Matrix& a, Matrix& c, Sum sum = Sum::kSet, Part part = Part::kAll) const;

 private:
  Machine machine_;
  int64_t n_ = 0, k_ = 0;
  Matrix packed_;
};

}  // namespace slm::quant
