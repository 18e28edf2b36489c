// See target_flags.h.
#include "target_flags.h"

#include <charconv>

#include "read_input.h"

namespace slm::cli {

Result<std::map<std::string, int64_t>> ReadDims(const std::vector<std::string>& words) {
  std::map<std::string, int64_t> out;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    int64_t n = -1;
    if (at != std::string::npos) {
      const char *first = word.data() + at + 1, *last = word.data() + word.size();
      if (const auto [end, failed] = std::from_chars(first, last, n); failed != std::errc() || end != last) n = -1;
    }
    constexpr int64_t kLongest = int64_t{1} << 40;
    if (at == 0 || n < 1 || n > kLongest)
      return Error(Code::kInvalidArgument, "--dim " + word + ": not NAME=N with N from 1 on", "e.g. --dim batch_size=1");
    if (!out.emplace(word.substr(0, at), n).second)
      return Error(Code::kInvalidArgument, "--dim " + word + ": the same dimension twice", "give each once");
  }
  return out;
}

Result<targets::Target> ReadTarget(const std::string& name, const Io& io) {
  if (!name.ends_with(".json")) return targets::FindTarget(name);
  SLM_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(io, name));
  return targets::ParseTarget(text, name);
}

}  // namespace slm::cli
