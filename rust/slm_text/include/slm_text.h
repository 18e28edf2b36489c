// C ABI of the Rust library (src/*.rs documents each function where it is defined). Lengths in bytes. No function throws or
// unwinds; a null or false result leaves a message in slm_text_error of the same thread.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct slm_tok slm_tok;
typedef struct slm_parts slm_parts;
typedef struct slm_chat slm_chat;
// Receives n items (bytes, uint32_t or size_t, as the function says); the memory is the callee's.
typedef void (*slm_sink)(void* context, const void* data, size_t n);

const char* slm_text_error(size_t* n);

// -1 in a flag or an id: the file does not say.
typedef struct slm_parts_options {
  const char* pre;
  size_t n_pre;
  const char* charsmap;
  size_t n_charsmap;
  int32_t add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  int32_t bos, eos, unk, pad, sep, cls;
} slm_parts_options;

slm_parts* slm_parts_new(const char* model, size_t n, size_t n_tokens, size_t n_merges);
bool slm_parts_token(slm_parts*, const char* s, size_t n, int32_t kind, float score);
bool slm_parts_merge(slm_parts*, const char* s, size_t n);
slm_tok* slm_parts_finish(slm_parts*, const slm_parts_options*);  // consumes the parts
void slm_parts_free(slm_parts*);
// The pre-tokenizer of a GGUF name as tokenizer.json has it; JSON bytes go to the sink.
bool slm_pre_json(const char* name, size_t n, slm_sink, void* context);

slm_tok* slm_tok_from_json(const char* json, size_t n, const char* config, size_t n_config);
void slm_tok_free(slm_tok*);

// Borrowed, constant while the tokenizer lives. flags: bit 0 control token, 1 one byte, 2 added, 3 present.
typedef struct slm_tok_facts_t {
  const uint32_t* prefix;
  size_t n_prefix;
  const uint32_t* suffix;
  size_t n_suffix;
  const uint8_t* flags;
  size_t n_vocab;
  size_t strip_leading;
  int32_t ids[4];  // bos, eos, unk, pad
} slm_tok_facts_t;
bool slm_tok_facts(const slm_tok*, slm_tok_facts_t*);
const char* slm_tok_bytes(const slm_tok*, uint32_t id, size_t* n);
int32_t slm_tok_find(const slm_tok*, const char* s, size_t n);
// plain: n_plain pairs of byte offsets; ids go to the sink as uint32_t.
bool slm_tok_encode(const slm_tok*, const char* s, size_t n, const size_t* plain, size_t n_plain, slm_sink, void* context);

typedef struct slm_text_view {
  const char* data;
  size_t n;
} slm_text_view;
typedef struct slm_chat_inputs {
  slm_text_view messages, tools, vars;
} slm_chat_inputs;
slm_chat* slm_chat_new(const char* source, size_t n);
void slm_chat_free(slm_chat*);
// text: bytes; ranges: pairs of size_t. tok may be null.
bool slm_chat_render(const slm_chat*, const slm_tok*, const slm_chat_inputs*, slm_sink text, slm_sink ranges, void* context);

#ifdef __cplusplus
}
#endif
