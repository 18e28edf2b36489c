// safetensors container: a JSON header with the table, then the data. Views only; nothing is copied.
//
// Source: the format description of the safetensors project. As its own reader does, the data must cover the rest of the file
// exactly, without gaps or overlaps; beyond it, names and fields that occur twice are refused.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace slm::model::safetensors {

struct File {
  std::vector<Tensor> tensors;  // header order
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Parses a whole file. Errors: kCorrupt (place named). Storage types outside the DType table are listed with foreign_type.
Result<File> Parse(std::span<const std::byte> bytes);

}  // namespace slm::model::safetensors
