//! C ABI over the crates `tokenizers` (normalizers, pre-tokenizers, WordPiece, Unigram, post-processors) and `minijinja`.
//!
//! Why Rust here: these two crates are what Hugging Face and its users run, so ids and prompts come out equal by construction.
//! What is ours: the compact BPE tables (`bpe`, `table`). The crate's own BPE keeps four copies of every string and costs
//! 110 MB for a vocabulary of 262k pieces; ours costs a tenth, and the tests hold the two equal.
//! Every entry point catches panics, checks pointers and UTF-8, and reports failures through `slm_text_error`.
pub mod added;
pub mod bpe;
pub mod chat;
pub mod clock;
pub mod confine;
pub mod ffi;
pub mod json;
pub mod model;
pub mod normalize;
pub mod parts;
pub mod pre;
pub mod pyjson;
pub mod search;
pub mod shape;
pub mod spelling;
pub mod table;
pub mod tok;
