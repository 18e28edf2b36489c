// From protobuf's messages to the structures of onnx.h. Strings are moved out of the messages; tensors point into them.
// Internal: sees protobuf.
#pragma once
#include "base/result.h"
#include "onnx/external.h"
#include "onnx/onnx.h"
#include "onnx/storage.h"

namespace slm::onnx {

struct Conversion {
  Storage& storage;
  ExternalFiles& external;
};

Result<Tensor> ConvertTensor(::onnx::TensorProto& proto, Conversion c);
Result<SparseTensor> ConvertSparseTensor(::onnx::SparseTensorProto& proto, Conversion c);
Result<ValueType> ConvertType(::onnx::TypeProto& proto);
Result<Graph> ConvertGraph(::onnx::GraphProto& proto, Conversion c);
Result<Function> ConvertFunction(::onnx::FunctionProto& proto, Conversion c);
std::vector<Opset> ConvertOpsets(::google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto>& list);

}  // namespace slm::onnx
