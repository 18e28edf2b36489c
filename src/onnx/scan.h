// A walk over the bytes of an ONNX message before protobuf makes objects of them: an object takes a hundred times the two bytes of
// an empty message, so a small file could ask for all memory.
#pragma once
#include <cstddef>
#include <span>

#include "base/result.h"

namespace slm::onnx {

enum class Root : unsigned char { kModel, kTensor };

// Errors: kLimit for more messages or fields than any model has. Damage is left for protobuf to find.
Status CheckExpansion(std::span<const std::byte> bytes, Root root);

}  // namespace slm::onnx
