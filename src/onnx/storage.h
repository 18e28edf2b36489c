// What the tensors of a Model point into: the parsed message, repacked values. Internal: sees protobuf.
#pragma once
#include <deque>
#include <vector>

#include "onnx-ml.pb.h"

namespace slm::onnx {

struct Storage {
  ::onnx::ModelProto model;
  ::onnx::TensorProto tensor;                   // of ReadTensor
  std::deque<std::vector<std::byte>> repacked;  // values that the message holds as numbers of another width
};

}  // namespace slm::onnx
