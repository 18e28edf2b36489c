// Any bytes as the parts of a GGUF vocabulary: the first three bytes choose kind, pre-tokenizer and flags, the rest is lines,
// each a kind byte and a token, then after an empty line merges, then after another the text to encode.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/text.h"

using slm::text::AddBosEos;
using slm::text::SpecialTokens;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  constexpr std::string_view kModels[] = {"gpt2", "llama", "gemma4", "bert", "t5"};
  constexpr std::string_view kPres[] = {"", "gpt-2", "llama-bpe", "qwen2", "falcon", "deepseek-llm", "nonesuch"};
  std::vector<std::string_view> tokens, merges;
  std::vector<int32_t> kinds;
  std::vector<float> scores;
  std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  for (int section = 0; section < 2 && !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) {
      ++section;
    } else if (section == 0) {
      kinds.push_back(line[0] & 7);
      scores.push_back(static_cast<float>(line[0]));
      tokens.push_back(line.substr(1));
    } else {
      merges.push_back(line);
    }
  }
  slm::text::TokenizerParts parts;
  parts.model = kModels[data[0] % 5];
  parts.pre = kPres[data[1] % 7];
  parts.tokens = tokens;
  parts.kinds = kinds;
  parts.scores = scores;
  parts.merges = merges;
  parts.charsmap = (data[2] & 4) != 0 ? rest : std::string_view();
  if (data[2] & 1) parts.add_space_prefix = false;
  parts.bos = static_cast<int8_t>(data[2]) >> 3;
  parts.unk = 0;
  auto made = slm::text::Tokenizer::FromParts(parts);
  if (!made.ok()) return 0;
  for (const auto special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
    auto ids = made.value().Encode(rest.substr(0, 256), special, AddBosEos::kYes);
    if (ids.ok()) (void)made.value().Decode(ids.value());
  }
  return 0;
}
