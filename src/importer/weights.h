// Initializers of an ONNX graph as tensors of a model: a matrix keeps its bytes, its codes and the way in which they lie.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "model/grouped/grouped.h"
#include "model/model.h"
#include "onnx/onnx.h"

namespace slm::importer {

// A weight that was not read yet: an initializer, perhaps dequantized by DequantizeLinear, perhaps transposed.
struct WeightView {
  const onnx::Tensor* values = nullptr;
  const onnx::Tensor* scales = nullptr;  // of codes
  const onnx::Tensor* zeros = nullptr;
  int64_t axis = 1, block = 0;  // DequantizeLinear's attributes, on `values` as it lies
  bool transposed = false;      // two dimensions, swapped
  std::vector<int64_t> shape;   // of a view in other dimensions; empty: those of `values`
  std::vector<int64_t> dims() const;
};

// Codes in blocks along K: the inputs of MatMulNBits and GatherBlockQuantized.
struct BlockedView {
  const onnx::Tensor *codes = nullptr, *scales = nullptr, *zeros = nullptr;
  int64_t n = 0, k = 0, block = 0, bits = 4;
};

enum class Rows : uint8_t { kFirst, kLast };  // which dimension of a view counts the outputs (N) of the matrix

class Weights {
 public:
  // A matrix [N, K]. The same bytes asked for twice are one tensor. Errors: kUnsupported, kCorrupt; the caller names the node.
  Result<const model::Tensor*> Matrix(const WeightView& v, Rows rows);
  // The same with its rows one behind the other, so that they can be gathered. Where a float file has columns they are copied, and a matrix
  // of the same bytes that is asked for later is this copy: a head that shares its embedding.
  Result<const model::Tensor*> Table(const WeightView& v);
  Result<const model::Tensor*> Blocked(const BlockedView& v);
  // `m`, whose values of group g get offsets[g, row] besides; f32 [groups, N].
  Result<const model::Tensor*> WithOffsets(const model::Tensor& m, const onnx::Tensor& offsets);
  // A vector, of the file's bytes or of computed values.
  Result<const model::Tensor*> Vector(const onnx::Tensor& t);
  const model::Tensor* Vector(const std::string& name, const std::vector<float>& values);

  // All of them, and what they point into besides the file.
  std::deque<model::Tensor> Take() { return std::move(tensors_); }
  std::shared_ptr<const void> bytes() const { return bytes_; }

 private:
  using Bytes = std::deque<std::vector<std::byte>>;
  using Key = std::tuple<const std::byte*, const std::byte*, const std::byte*, std::vector<int64_t>>;
  Result<const model::Tensor*> Codes(const WeightView& v, Rows rows);
  const model::Tensor* Add(model::Tensor t);
  // The copy that Table made of these columns; nullptr. Tensors of a file may share bytes and not their shape.
  const model::Tensor* KnownTable(const model::GroupedMatrix& columns, DType type) const;
  const model::Tensor* AddGrouped(const std::string& name, model::GroupedMatrix g);
  std::span<const std::byte> Keep(const void* data, size_t bytes);
  // The zero points of unsigned codes without any: they begin at 0, not in the middle. The same memory each time, so that a matrix that is
  // asked for twice stays one tensor.
  std::span<const std::byte> NoZeros();

  std::deque<model::Tensor> tensors_;  // addresses stay
  std::map<Key, const model::Tensor*> known_;
  std::map<const std::byte*, const model::Tensor*> tables_;  // copies of columns, by where these lie
  std::span<const std::byte> no_zeros_;
  std::shared_ptr<Bytes> bytes_ = std::make_shared<Bytes>();
};

// The storage type of float tensors. Errors: kUnsupported.
Result<DType> FloatType(const onnx::Tensor& t);
// All values of a float tensor as f32. Errors as FloatType.
Result<std::vector<float>> FloatValues(const onnx::Tensor& t);

}  // namespace slm::importer
