// Streaming decode. The tokenizer gives bytes; this file knows about characters.
#include "text/stream_decoder.h"

#include <algorithm>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace slm::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, ShowSpecial show, FirstSpace first)
    : tokenizer_(&tokenizer), show_(show), first_(first) {
  // The longest token after three pending bytes; each byte can become a U+FFFD of three.
  const size_t bytes = tokenizer.MaxTokenBytes() + 4;
  pending_.reserve(4);
  work_.reserve(bytes);
  out_.reserve(3 * bytes);
  Reset();
}

void StreamDecoder::Reset() {
  strip_ = first_ == FirstSpace::kStrip ? tokenizer_->StripLeading() : 0;
  pending_.clear();
  out_.clear();
}

void StreamDecoder::Append(std::string_view bytes) {
  work_.assign(pending_);
  work_.append(bytes);
  pending_.clear();
  std::string_view rest = work_;
  while (!rest.empty()) {
    const Utf8Step step = NextUtf8(rest);
    if (step.part == Utf8Part::kIncomplete) {
      pending_.assign(rest);
      return;
    }
    out_ += step.part == Utf8Part::kCharacter ? rest.substr(0, step.size) : kReplacement;
    rest.remove_prefix(step.size);
  }
}

std::string_view StreamDecoder::Push(TokenId id) {
  out_.clear();
  const bool special = tokenizer_->IsSpecial(id);
  if (special && show_ == ShowSpecial::kNo) return {};
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (strip_ > 0 && !bytes.empty()) {
    const size_t spaces = std::min(std::min(bytes.find_first_not_of(' '), bytes.size()), strip_);
    bytes.remove_prefix(spaces);
    strip_ = bytes.empty() ? strip_ - spaces : 0;
  }
  Append(bytes);
  return out_;
}

std::string_view StreamDecoder::Flush() {
  out_.clear();
  if (!pending_.empty()) out_ += kReplacement;
  pending_.clear();
  return out_;
}

}  // namespace slm::text
