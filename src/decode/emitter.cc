// Token → characters → text that cannot become a stop string any more → sink.
#include "decode/emitter.h"

namespace slm::decode {

Result<Emitter> Emitter::Create(const text::Tokenizer& tokenizer, const GenerateOptions& options, TokenSink& sink) {
  SLM_ASSIGN_OR_RETURN(text::StopStrings stops, text::StopStrings::Create(options.stop));
  const auto show = options.show_special ? text::ShowSpecial::kYes : text::ShowSpecial::kNo;
  return Emitter(text::StreamDecoder(tokenizer, show, options.first_space), std::move(stops), sink);
}

Emitter::State Emitter::Send(std::string_view text) {
  if (text.empty()) return State::kGoesOn;
  const text::StopStrings::Output out = stops_.Push(text);
  if (!out.text.empty()) sink_->OnText(out.text);
  if (out.stop < 0) return State::kGoesOn;
  stop_string_ = stops_.stops()[static_cast<size_t>(out.stop)];
  return State::kStopped;
}

Emitter::State Emitter::Push(int32_t token) { return Send(decoder_.Push(token)); }

void Emitter::Finish() {
  if (!stop_string_.empty()) return;
  if (Send(decoder_.Flush()) == State::kStopped) return;
  const std::string_view held = stops_.Flush();
  if (!held.empty()) sink_->OnText(held);
}

}  // namespace slm::decode
