// The tensors of one decoder layer in f32, and the folds that move factors from a matrix's input channels into what comes before.
#pragma once
#include <span>
#include <vector>

#include "model/model.h"

namespace slm::quant {

// One tensor of the layer, row-major; a vector is one row.
struct LayerTensor {
  model::Role role = model::Role::kCount;
  const model::Tensor* tensor = nullptr;
  int64_t rows = 0, width = 0;
  std::vector<float> values;
  bool is_changed = false;  // by a fold: no longer what the file holds
  std::vector<float> fold;  // [width] factors that its input channels were multiplied by; empty: none
  bool is_matrix() const { return tensor->dims.size() == 2; }
};

// `n` of the `rows` rows of `values` [rows, width], spread evenly; all where there are no more.
std::vector<float> SomeRows(std::span<const float> values, int64_t rows, int64_t width, int64_t n);
// The same of `t`.
LayerTensor SomeRows(const LayerTensor& t, int64_t n);

// Places where factors can go. Every one leaves what the layer computes as it is.
enum class FoldPlace : uint8_t {
  kAttentionInput,  // attention norm -> q, k, v
  kValueOutput,     // rows of v (and its bias) -> columns of o
  kMlpInput,        // MLP norm -> gate, up
  kUpOutput,        // rows of up (and its bias) -> columns of down
  kCount,
};

// The type that vectors will be stored in.
enum class VectorTypes : uint8_t {
  kF32,  // as GGUF files have them
  kOwn,  // the source's: norms may be of two bytes
};

class LayerWeights {
 public:
  // All tensors of the layer that have a role. Errors: kCorrupt (NaN or infinity, tensor and row named).
  static Result<LayerWeights> Read(const model::Model& m, int layer, VectorTypes vectors = VectorTypes::kF32);

  const std::vector<LayerTensor>& tensors() const { return tensors_; }
  std::vector<LayerTensor>& tensors() { return tensors_; }
  const LayerTensor* Find(model::Role role) const;

  // The matrices whose input channels a place scales; empty when the layer does not have the place (value heads that the kernels cannot
  // reach, a missing norm).
  std::vector<const LayerTensor*> Members(FoldPlace place) const;
  // The matrix whose rows Apply divides; nullptr when it is a norm.
  const LayerTensor* Source(FoldPlace place) const;
  // For kValueOutput, [columns of o]: columns that read one row of v share a number. Empty elsewhere.
  std::vector<int32_t> Tied(FoldPlace place) const;
  // Multiplies the members' columns by `factors` and divides what comes before. Where a norm cannot hold the quotient, the columns get
  // the factor that it does hold, so that the layer stays what it was.
  void Apply(FoldPlace place, std::span<const float> factors);

 private:
  LayerTensor* Find(model::Role role);
  void ScaleColumns(LayerTensor& t, std::span<const float> scale);
  DType StoredType(const LayerTensor& vector) const { return vectors_ == VectorTypes::kOwn ? vector.tensor->dtype : DType::kF32; }
  void DivideNorm(LayerTensor& norm, std::span<float> scale) const;
  void DivideRows(LayerTensor& matrix, LayerTensor* bias, int64_t first_row, std::span<const float> by_row) const;

  const model::ModelConfig* config_ = nullptr;
  VectorTypes vectors_ = VectorTypes::kF32;
  std::vector<LayerTensor> tensors_;
};

}  // namespace slm::quant
