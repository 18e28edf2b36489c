// StreamDecoder: token ids to text as they come, never half a character.
//
// Why here: a character may span tokens (byte fallback, byte-level BPE), control tokens are not output, and SentencePiece puts
// a space before the first word. Nothing is allocated after construction.
#pragma once
#include <string>
#include <string_view>

#include "text/token.h"

namespace slm::text {

class Tokenizer;

enum class ShowSpecial : uint8_t { kNo, kYes };
// kStrip: the text stands alone, SentencePiece's added space goes. kKeep: the text continues a prompt.
enum class FirstSpace : uint8_t { kStrip, kKeep };

class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder. One decoder a stream, one thread at a time.
  explicit StreamDecoder(const Tokenizer& tokenizer, ShowSpecial show = ShowSpecial::kNo, FirstSpace first = FirstSpace::kStrip);
  // Text that has become complete with this token, often empty. Valid until the next call. Ill-formed bytes: U+FFFD for each
  // maximal ill-formed part. An id outside the vocabulary gives nothing.
  std::string_view Push(TokenId id);
  // The end of the stream: a character that stayed incomplete becomes one U+FFFD. Valid until the next call.
  std::string_view Flush();
  // Back to the start of a text.
  void Reset();

 private:
  void Append(std::string_view bytes);

  const Tokenizer* tokenizer_;
  ShowSpecial show_;
  FirstSpace first_;
  size_t strip_ = 0;     // spaces still to be taken off
  std::string pending_;  // at most 3 bytes of an incomplete character
  std::string work_, out_;
};

}  // namespace slm::text
