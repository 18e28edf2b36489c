// Checkpoints with packed integer weights: what `quantization_config` says, and the tensors of a matrix joined to one. Internal to hf/.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/hf/folder.h"
#include "model/hf/packed/code_type.h"
#include "model/model.h"

namespace slm::model::hf {

enum class QuantMethod : uint8_t { kNone, kAwq, kGptq, kCompressed, kBitNet, kOther };

// A scheme that the config allows for a matrix. `group` 0: one group a row, or one scale in all.
struct QuantScheme {
  int bits = 0;
  int64_t group = 0;
  CodeType codes = CodeType::kInt;
};

struct Quantization {
  QuantMethod method = QuantMethod::kNone;
  std::string name;                  // as the file has it
  std::vector<QuantScheme> schemes;  // compressed-tensors: of every group of the config; the others: one
  bool any_scheme = false;           // GPTQModel's `dynamic`: some modules have other bits and groups, which their shapes tell
  int zero_offset = 0;               // GPTQ
  bool scale_divides = false;        // BitNet
};

// Reads `quantization_config` out of config.json, or the older files quantize_config.json (GPTQ) and quant_config.json (AWQ); kNone
// without any. Errors: kCorrupt, kUnsupported (a layout of a known method that is not read; an unknown method is kOther).
Result<Quantization> ReadQuantization(const Folder& folder);

// Replaces the parts of every packed matrix in m->tensors by one tensor "….weight" [N, K] with `grouped` set; other tensors stay.
// Errors: kCorrupt (tensor named), kUnsupported.
Status JoinGrouped(const Quantization& q, Model* m);

}  // namespace slm::model::hf
