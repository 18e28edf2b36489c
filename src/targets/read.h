// From the text of a description to the structure, strictly: an unknown key, type or source is an error with its place.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "targets/target.h"

namespace slm::targets {

// What "extends" and "fallback" name. Errors: its own.
using Lookup = std::function<Result<std::shared_ptr<const Description>>(std::string_view name)>;

Result<std::shared_ptr<const Description>> ReadDescription(std::string_view text, const std::string& place, const Lookup& lookup);

// "float16" (as ONNX spells it, in lower case) or "q.uint8"; 0: neither.
TypeSet TypeNamed(std::string_view name);
// The reverse, for messages: "float, q.uint8".
std::string TypeNames(TypeSet set);

}  // namespace slm::targets
