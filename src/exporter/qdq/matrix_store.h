// The matrices of the static graphs as initializers [K, N], made once for both graphs. Not a door.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exporter/qdq/static_graph.h"

namespace slm::exporter {

class MatrixStore {
 public:
  // A matrix as codes: DequantizeLinear's inputs and attributes.
  struct Coded {
    onnx::Tensor codes, scales, zeros;
    int64_t group = 0;  // rows that share a scale; 0: all
  };

  explicit MatrixStore(const graph::Graph& g) : g_(g) {}

  // In f32, scaled and reordered as its use says. The tensor's bytes are the store's.
  const onnx::Tensor& Floats(const std::string& name, const MatrixUse& use);
  // A vector as it is.
  const onnx::Tensor& Vector(const std::string& name, const VectorUse& use);
  // A matrix as codes of the tensor that the constant is rows of. Errors: kInvalidArgument (no codes for it, or of another shape).
  Result<const Coded*> Codes(const std::string& name, const MatrixUse& use,
                             const std::map<const model::Tensor*, model::CodedMatrix>& matrices);

  std::shared_ptr<const void> bytes() const { return bytes_; }

 private:
  onnx::Tensor Keep(const std::string& name, onnx::ElementType type, std::vector<int64_t> dims, std::vector<std::byte> bytes);

  const graph::Graph& g_;
  std::shared_ptr<std::deque<std::vector<std::byte>>> bytes_ = std::make_shared<std::deque<std::vector<std::byte>>>();
  std::map<std::string, onnx::Tensor> floats_;
  std::map<std::string, Coded> coded_;
};

}  // namespace slm::exporter
