// What a model folder needs beside its weights: the small files of another folder, and a config that says how weights are packed.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/hf/packed/code_type.h"

namespace slm::model::hf {

// The small files that a folder's model is read from (config, tokenizer, templates), those that are there: (name, content).
// Errors: as Folder::Open and Folder::Text.
Result<std::vector<std::pair<std::string, std::string>>> SmallFiles(const std::string& folder);

enum class PackedFormat : uint8_t { kAwq, kGptq, kGptqV2, kCompressed };
// What the layers do with their inputs, compressed-tensors only: leave them float, round each token to 8 bits, or all by one scale.
enum class PackedInputs : uint8_t { kFloat, kDynamic, kStatic };

struct PackedSpec {
  PackedFormat format = PackedFormat::kAwq;
  int bits = 4;
  int64_t group = 0;  // columns; 0: one group a row
  bool symmetric = false;
  bool act_order = false;           // columns of a group lie apart
  CodeType codes = CodeType::kInt;  // the others: compressed-tensors only
  PackedInputs inputs = PackedInputs::kFloat;
  int row_bits = 0;  // of row_modules, symmetric with a scale a row; compressed-tensors with integer codes and float inputs only
  std::vector<std::string> row_modules;
  std::vector<std::string> left_float;  // modules of linear layers that are not packed
};

// `config_json` with the `quantization_config` of `spec` in place of its own. Errors: kCorrupt (not an object).
Result<std::string> PackedConfig(const std::string& config_json, const PackedSpec& spec);

}  // namespace slm::model::hf
