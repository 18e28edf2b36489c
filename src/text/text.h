// The door of `text`: strings to token ids and back, chat templates, streaming output, stop strings.
//
// Tokenizer      ids equal to Hugging Face's; from a GGUF's vocabulary, a tokenizer.json, or the older pieces of a HF folder
// ChatTemplate   messages → prompt, as transformers renders it; messages cannot forge control tokens
// StreamDecoder  ids → text, whole characters only
// StopStrings    holds back what may become a stop string
// Everything is immutable after construction except the last two, which belong to one stream.
#pragma once
#include "text/chat_template.h"
#include "text/stop_strings.h"
#include "text/stream_decoder.h"
#include "text/token.h"
#include "text/tokenizer.h"
