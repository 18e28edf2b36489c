// Checks of option values whose messages a person can read; CLI11's own print the limits of double.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace slm::cli {

// A whole number from 0 to the largest int.
inline CLI::Validator FromZero() {
  return CLI::Validator(
      [](const std::string& s) -> std::string {
        constexpr int kMost = std::numeric_limits<int>::max();
        int n = -1;
        const auto [at, failed] = std::from_chars(s.data(), s.data() + s.size(), n);
        if (failed == std::errc() && at == s.data() + s.size() && n >= 0) return {};
        return "'" + s + "' is not a whole number from 0 to " + std::to_string(kMost);
      },
      "");
}

// The name of a file: an empty one comes from a variable that is not set, and would stand for the default.
inline CLI::Validator FileName() {
  return CLI::Validator([](const std::string& s) -> std::string { return s.empty() ? "names no file" : ""; }, "");
}

// A finite number from 0 on.
inline CLI::Validator NumberFromZero() {
  return CLI::Validator(
      [](const std::string& s) -> std::string {
        double x = -1;
        const auto [at, failed] = std::from_chars(s.data(), s.data() + s.size(), x);
        if (failed == std::errc() && at == s.data() + s.size() && std::isfinite(x) && x >= 0) return {};
        return "'" + s + "' is not a number from 0 on";
      },
      "");
}

// A number from `least` to `most`; NaN is none.
inline CLI::Validator NumberIn(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& s) -> std::string {
        double x = 0;
        const auto [at, failed] = std::from_chars(s.data(), s.data() + s.size(), x);
        if (failed == std::errc() && at == s.data() + s.size() && x >= least && x <= most) return {};
        return "'" + s + "' is not a number from " + fmt::format("{} to {}", least, most);
      },
      "");
}

// A whole number of 64 bits from 0 on.
inline CLI::Validator Seed() {
  return CLI::Validator(
      [](const std::string& s) -> std::string {
        uint64_t n = 0;
        const auto [at, failed] = std::from_chars(s.data(), s.data() + s.size(), n);
        if (failed == std::errc() && at == s.data() + s.size()) return {};
        return "'" + s + "' is not a whole number from 0 to 2^64 - 1";
      },
      "");
}

}  // namespace slm::cli
