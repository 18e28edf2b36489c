// The descriptions that the executable holds.
#pragma once
#include <span>
#include <string_view>

namespace slm::targets {

struct BuiltIn {
  std::string_view name, text;
};
std::span<const BuiltIn> BuiltInFiles();  // sorted by name

}  // namespace slm::targets
