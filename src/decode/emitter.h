// From token ids to the text a reader may see: whole characters only, nothing of a stop string, nothing twice.
//
// Why here: the loop should not know that a character may span tokens and a stop string may span characters. The knowledge
// itself is the text room's (StreamDecoder, StopStrings); this joins the two to a TokenSink.
#pragma once
#include <string>

#include "base/result.h"
#include "decode/decode.h"
#include "text/text.h"

namespace slm::decode {

class Emitter {
 public:
  // `tokenizer` and `sink` must outlive the emitter. Errors: kInvalidArgument for an empty stop string.
  static Result<Emitter> Create(const text::Tokenizer& tokenizer, const GenerateOptions& options, TokenSink& sink);

  enum class State : uint8_t { kGoesOn, kStopped };
  // Decodes one token and sends what has become certain. kStopped: a stop string is complete, the answer ends before it.
  // No allocation once the text room's buffers have their working size.
  State Push(int32_t token);
  // Sends what was held back; half a character becomes U+FFFD. Call once, at the end.
  void Finish();
  // The stop string that ended the answer, empty if none did.
  const std::string& stop_string() const { return stop_string_; }

 private:
  Emitter(text::StreamDecoder decoder, text::StopStrings stops, TokenSink& sink)
      : decoder_(std::move(decoder)), stops_(std::move(stops)), sink_(&sink) {}
  State Send(std::string_view text);

  text::StreamDecoder decoder_;
  text::StopStrings stops_;
  TokenSink* sink_;
  std::string stop_string_;
};

}  // namespace slm::decode
