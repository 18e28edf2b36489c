// The bytes of a matrix in a packed folder. Internal to quant.
#pragma once
#include "model/grouped/pack.h"
#include "model/safetensors/writer.h"
#include "quant/folder/parts.h"
#include "quant/gptq.h"

namespace slm::quant {

// A matrix as the packers take it.
struct PackedCodes {
  model::GroupedCodes codes;
  float shared = 1;      // scale of an NVFP4 tensor
  float input_most = 0;  // of static activations, the value of the largest code
};
// What calibration or a search of whole matrices chose.
PackedCodes CodesOf(CodedRows coded);

// The bytes of one part, all but kWhole. Errors: the sink's.
Status WritePart(const FolderPart& p, const FolderPlan& plan, const PackedCodes& packed, model::safetensors::FileWriter& out);

}  // namespace slm::quant
