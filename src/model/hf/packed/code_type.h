// What the codes of a packed matrix are.
#pragma once
#include <cstdint>

namespace slm::model::hf {

enum class CodeType : uint8_t { kInt, kMxFp4, kNvFp4 };

}  // namespace slm::model::hf
