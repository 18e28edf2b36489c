//! A tokenizer from the parts a GGUF file carries: tokens, kinds, scores, merges, flags. No tokenizer.json, no copies of strings.
use crate::added::AddedToken;
use crate::bpe::{byte_ids, score_ranks, Bpe, Merges, Priority};
use crate::ffi::{err, guard, object, slice, text, R};
use crate::model::Model;
use crate::pre::{self, Rules};
use crate::spelling::{replace_bytes, spell_all, Spelling, SPACE_MARK};
use crate::table::{Strings, Table};
use crate::tok::{Tok, ADDED, BYTE, PRESENT, SPECIAL};
use tokenizers::models::{unigram::Unigram, wordpiece::WordPiece, ModelWrapper};
use tokenizers::normalizers::precompiled::Precompiled;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{bert::BertNormalizer, prepend::Prepend, replace::Replace, unicode::NFC, utils::Sequence, NormalizerWrapper};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::{bert::BertPreTokenizer, PreTokenizerWrapper};

// GGUF token kinds (gguf specification, tokenizer.ggml.token_type).
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const BYTE_KIND: i32 = 6;

#[derive(Clone, Copy, PartialEq)]
enum Family {
    Bytes,         // "gpt2": byte-level BPE with a merge list
    SentencePiece, // "llama": BPE by score
    EscapedBpe,    // "gemma4": U+2581 for spaces, raw UTF-8, merge list
    WordPiece,     // "bert"
    Unigram,       // "t5"
}

const KNOWN: &[(&str, Family)] = &[
    ("gpt2", Family::Bytes),
    ("llama", Family::SentencePiece),
    ("gemma4", Family::EscapedBpe),
    ("bert", Family::WordPiece),
    ("t5", Family::Unigram),
];

pub struct Builder {
    family: Family,
    name: String,
    table: Table,
    kinds: Vec<i32>,
    scores: Vec<f32>,
    merges: Merges,
    n_merges: usize,
}

/// Tri-state flags: -1 the file does not say, 0 no, 1 yes. Ids: -1 the file does not say.
#[repr(C)]
pub struct Options {
    pub pre: *const u8,
    pub n_pre: usize,
    pub charsmap: *const u8,
    pub n_charsmap: usize,
    pub add_bos: i32,
    pub add_eos: i32,
    pub add_space_prefix: i32,
    pub remove_extra_whitespaces: i32,
    pub bos: i32,
    pub eos: i32,
    pub unk: i32,
    pub pad: i32,
    pub sep: i32,
    pub cls: i32,
}

impl Builder {
    fn new(model: &str, n_tokens: usize, n_merges: usize) -> R<Builder> {
        let Some((name, family)) = KNOWN.iter().find(|(n, _)| *n == model) else {
            let names: Vec<&str> = KNOWN.iter().map(|(n, _)| *n).collect();
            return Err(format!("unknown vocabulary kind \"{model}\"; known: {}", names.join(", ")));
        };
        // Hints are only believed so far: real sizes follow from what is really added.
        let n = n_tokens.min(1 << 19);
        Ok(Builder {
            family: *family,
            name: name.to_string(),
            table: Table::with_capacity(n, n * 8),
            kinds: Vec::with_capacity(n),
            scores: Vec::with_capacity(n),
            merges: Merges::with_capacity(n_merges.min(1 << 19)),
            n_merges: 0,
        })
    }

    fn token(&mut self, bytes: &[u8], kind: i32, score: f32) -> R<()> {
        let id = self.kinds.len();
        let spelled = match self.family {
            // Converters write user-defined pieces with real spaces; the tokenizer they come from matches the marked spelling.
            Family::SentencePiece if kind == USER && bytes.contains(&b' ') => replace_bytes(bytes, b" ", SPACE_MARK.as_bytes()),
            // Converters mark word starts instead of continuations; undo it.
            Family::WordPiece if kind != CONTROL && kind != UNKNOWN => match bytes.strip_prefix(SPACE_MARK.as_bytes()) {
                Some(word) => word.to_vec(),
                None if bytes.first() == Some(&b'[') && bytes.last() == Some(&b']') => bytes.to_vec(),
                None => [b"##", bytes].concat(),
            },
            _ => bytes.to_vec(),
        };
        self.table.insert(id, &spelled)?;
        self.kinds.push(kind);
        // SentencePiece stores 0 for user-defined pieces, so they merge first; converters write -1000 instead.
        self.scores.push(if self.family == Family::SentencePiece && kind == USER { 0.0 } else { score });
        Ok(())
    }

    fn merge(&mut self, line: &[u8]) -> R<()> {
        let at = |what: &str, n: usize| format!("merge {n} \"{}\": {what}", String::from_utf8_lossy(line));
        let n = self.n_merges;
        let space = line.iter().skip(1).position(|&b| b == b' ').map(|i| i + 1).ok_or_else(|| at("no space between its halves", n))?;
        let (l, r) = (&line[..space], &line[space + 1..]);
        let find = |s: &[u8]| self.table.find(s).ok_or_else(|| at("not in the vocabulary", n));
        let (left, right, both) = (find(l)?, find(r)?, find(&[l, r].concat())?);
        self.merges.push(left, right, both);
        self.n_merges += 1;
        Ok(())
    }

    fn id(&self, what: &str, given: i32, default: i32) -> R<i32> {
        let n = self.kinds.len() as i32;
        match given {
            -1 => Ok(if default < n { default } else { -1 }),
            0.. if given < n => Ok(given),
            _ => Err(format!("{what} id {given} is outside the vocabulary of {n} tokens")),
        }
    }

    fn finish(mut self, o: &Options, pre_name: &str, charsmap: &[u8]) -> R<Tok> {
        if self.kinds.is_empty() {
            return Err("the vocabulary is empty".into());
        }
        self.table.shrink();
        let defaults = match self.family {
            Family::SentencePiece => [1, 2, 0, -1],
            Family::WordPiece => [-1, -1, 100, 0],
            Family::Unigram => [-1, 1, 2, 0],
            _ => [-1; 4],
        };
        let ids = [
            self.id("begin-of-sequence", o.bos, defaults[0])?,
            self.id("end-of-sequence", o.eos, defaults[1])?,
            self.id("unknown token", o.unk, defaults[2])?,
            self.id("padding", o.pad, defaults[3])?,
        ];
        let bert = |id: i32| if self.family == Family::WordPiece { id } else { -1 };
        let (sep, cls) = (self.id("separator", o.sep, bert(102))?, self.id("class token", o.cls, bert(101))?);
        let mut tok = Tok { ids, ..Default::default() };
        let rules = self.prepare(&mut tok, o, pre_name, charsmap)?;
        let added = self.classify(&mut tok);
        let bytes_family = self.family;
        tok.bytes = self.spell(&tok.flags);
        let (first, last) = match bytes_family {
            Family::WordPiece => (if cls >= 0 { cls } else { ids[0] }, if sep >= 0 { sep } else { ids[1] }),
            _ => (ids[0], ids[1]),
        };
        let by_default = match bytes_family {
            Family::SentencePiece => (true, false),
            Family::WordPiece => (true, true),
            Family::Unigram => (false, true),
            _ => (rules.add_bos, false),
        };
        let on = |flag: i32, default: bool| if flag < 0 { default } else { flag > 0 };
        tok.prefix = (on(o.add_bos, by_default.0) && first >= 0).then_some(first as u32).into_iter().collect();
        tok.suffix = (on(o.add_eos, by_default.1) && last >= 0).then_some(last as u32).into_iter().collect();
        tok.model = Some(self.model(&tok, rules)?);
        tok.add(&added)?;
        Ok(tok)
    }

    /// Normalizer and pre-tokenizer of the family.
    fn prepare(&self, tok: &mut Tok, o: &Options, pre_name: &str, charsmap: &[u8]) -> R<Rules> {
        let mark_spaces = || Replace::new(ReplacePattern::String(" ".into()), SPACE_MARK).map(NormalizerWrapper::Replace).map_err(err);
        let mut rules = Rules::default();
        match self.family {
            Family::Bytes | Family::EscapedBpe => {
                rules = pre::find(if self.family == Family::EscapedBpe {
                    "gemma4"
                } else if pre_name.is_empty() {
                    "default"
                } else {
                    pre_name
                })?;
                tok.pre = Some(pre::build(&rules)?);
                if rules.escaped_spaces {
                    tok.normalizer = Some(mark_spaces()?.into());
                } else if rules.nfc {
                    tok.normalizer = Some(NormalizerWrapper::NFC(NFC).into());
                }
            }
            Family::SentencePiece => {
                let mut steps = vec![];
                if o.add_space_prefix != 0 {
                    steps.push(NormalizerWrapper::Prepend(Prepend::new(SPACE_MARK.into())));
                    tok.strip_leading = 1;
                }
                steps.push(mark_spaces()?);
                tok.normalizer = Some(NormalizerWrapper::Sequence(Sequence::new(steps)).into());
            }
            Family::WordPiece => {
                // The file does not say whether the model is cased; a vocabulary with capitals is.
                let cased = (0..self.kinds.len()).any(|i| {
                    !matches!(self.kinds[i], CONTROL | UNKNOWN)
                        && self.table.get(i as u32).is_some_and(|t| !t.starts_with(b"[") && t.iter().any(u8::is_ascii_uppercase))
                });
                tok.normalizer = Some(NormalizerWrapper::BertNormalizer(BertNormalizer::new(true, true, None, !cased)).into());
                tok.pre = Some(PreTokenizerWrapper::BertPreTokenizer(BertPreTokenizer));
                tok.strip_leading = 1;
            }
            Family::Unigram => {
                let mut steps = vec![];
                if !charsmap.is_empty() {
                    check_charsmap(charsmap.get(..4), charsmap.len())?;
                    steps.push(NormalizerWrapper::Precompiled(
                        Precompiled::from(charsmap).map_err(|e| format!("precompiled character map: {e:?}"))?,
                    ));
                }
                if o.remove_extra_whitespaces != 0 {
                    steps.push(NormalizerWrapper::Replace(Replace::new(ReplacePattern::Regex(" {2,}".into()), " ").map_err(err)?));
                }
                tok.normalizer = Some(NormalizerWrapper::Sequence(Sequence::new(steps)).into());
                let prefix = if o.add_space_prefix != 0 { PrependScheme::Always } else { PrependScheme::Never };
                tok.pre = Some(PreTokenizerWrapper::Metaspace(Metaspace::new('\u{2581}', prefix, true)));
                tok.strip_leading = usize::from(o.add_space_prefix != 0);
            }
        }
        Ok(rules)
    }

    /// Flags of every id, and the tokens that are taken out of the text first.
    fn classify(&self, tok: &mut Tok) -> Vec<AddedToken> {
        let mut added = vec![];
        tok.flags = vec![PRESENT; self.kinds.len()];
        // Phi-3 alone re-declares SentencePiece's end token (id 2) as an ordinary added token; its tokenizer.json lets that one
        // and the chat markers swallow the spaces after them, which a GGUF file has no field for. (Gemma's </s> is a HTML tag.)
        let markers_strip = self.family == Family::SentencePiece && self.table.get(2) == Some(b"</s>") && self.kinds[2] == USER;
        for (i, &kind) in self.kinds.iter().enumerate() {
            let declared = tok.ids[..2].contains(&(i as i32)); // a begin or end token is a control token whatever the file calls it
            let special = matches!(kind, CONTROL | UNKNOWN) || declared;
            if special {
                tok.flags[i] |= SPECIAL;
            }
            if kind == BYTE_KIND {
                tok.flags[i] |= BYTE;
            }
            if special || kind == USER {
                tok.flags[i] |= ADDED;
                let content = self.table.get(i as u32).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("");
                let rstrip = markers_strip && !matches!(content, "<unk>" | "<s>" | "<|endoftext|>");
                added.push(AddedToken {
                    id: i as u32,
                    content: content.into(),
                    single_word: false,
                    lstrip: false,
                    rstrip,
                    normalized: false,
                    special,
                });
            }
        }
        added
    }

    fn spell(&self, flags: &[u8]) -> Strings {
        let spelling = match self.family {
            Family::Bytes => Spelling::ByteLevel,
            Family::WordPiece => Spelling::WordPiece("##".into()),
            _ => Spelling::Escaped,
        };
        spell_all(&self.table, flags, &spelling)
    }

    fn model(self, tok: &Tok, rules: Rules) -> R<Model> {
        let Builder { family, name, table, kinds, scores, merges, .. } = self;
        let unk = (tok.ids[2] >= 0).then_some(tok.ids[2] as u32);
        let blocked: Vec<bool> = tok.flags.iter().map(|f| f & SPECIAL != 0).collect();
        let as_text = |id: usize| -> String { String::from_utf8_lossy(table.get(id as u32).unwrap_or(&[])).into_owned() };
        match family {
            Family::Bytes if merges.is_empty() => Err("a \"gpt2\" vocabulary without merges".into()),
            Family::Bytes if !rules.escaped_spaces => Ok(Model::Compact(Box::new(Bpe {
                table,
                blocked,
                priority: Priority::List(merges),
                unk: None,
                fuse_unk: false,
                byte_ids: None,
                ignore_merges: rules.ignore_merges,
            }))),
            Family::Bytes | Family::EscapedBpe | Family::SentencePiece => {
                let priority = if family == Family::SentencePiece && merges.is_empty() {
                    Priority::Score(score_ranks(&scores))
                } else {
                    Priority::List(merges)
                };
                let byte_ids = byte_ids(&table);
                if byte_ids.is_none() && unk.is_none() {
                    return Err(format!("a \"{name}\" vocabulary needs byte tokens <0x00> to <0xFF> or an unknown token"));
                }
                Ok(Model::Compact(Box::new(Bpe { table, blocked, priority, unk, fuse_unk: true, byte_ids, ignore_merges: false })))
            }
            Family::WordPiece => {
                let unk = unk.ok_or("a \"bert\" vocabulary without an unknown token")? as usize;
                let vocab: ahash::AHashMap<String, u32> = (0..kinds.len()).map(|i| (as_text(i), i as u32)).collect();
                let m = WordPiece::builder().vocab(vocab).unk_token(as_text(unk)).max_input_chars_per_word(100).build().map_err(err)?;
                Ok(Model::Library(Box::new(ModelWrapper::WordPiece(m)), table))
            }
            Family::Unigram => {
                let vocab: Vec<(String, f64)> = (0..kinds.len()).map(|i| (as_text(i), f64::from(scores[i]))).collect();
                let m = Unigram::from(vocab, unk.map(|u| u as usize), false).map_err(err)?;
                Ok(Model::Library(Box::new(ModelWrapper::Unigram(m)), table))
            }
        }
    }
}

/// A precompiled character map begins with the size of its trie; the crate allocates what that number says, unseen.
pub fn check_charsmap(head: Option<&[u8]>, n: usize) -> R<()> {
    let size = head.and_then(|h| <[u8; 4]>::try_from(h).ok()).map(|h| u32::from_le_bytes(h) as usize);
    match size {
        Some(size) if size % 4 == 0 && size <= n.saturating_sub(4) => Ok(()),
        _ => Err(format!("precompiled character map: its trie does not fit in its {n} bytes")),
    }
}

/// Starts a vocabulary of kind `model` (tokenizer.ggml.model). The counts are hints. Null: see `slm_text_error`.
///
/// # Safety
/// Pointers are valid for their lengths.
#[no_mangle]
pub unsafe extern "C" fn slm_parts_new(model: *const u8, n: usize, n_tokens: usize, n_merges: usize) -> *mut Builder {
    guard(std::ptr::null_mut(), || Ok(Box::into_raw(Box::new(Builder::new(text(model, n)?, n_tokens, n_merges)?))))
}
/// Adds the next token: its id is how many came before.
///
/// # Safety
/// Pointers are valid for their lengths, `b` is live and used by one thread.
#[no_mangle]
pub unsafe extern "C" fn slm_parts_token(b: *mut Builder, s: *const u8, n: usize, kind: i32, score: f32) -> bool {
    guard(false, || b.as_mut().ok_or("internal: null object")?.token(slice(s, n)?, kind, score).map(|()| true))
}
/// Adds the next merge, "left right"; all tokens must be there.
///
/// # Safety
/// As [`slm_parts_token`].
#[no_mangle]
pub unsafe extern "C" fn slm_parts_merge(b: *mut Builder, s: *const u8, n: usize) -> bool {
    guard(false, || b.as_mut().ok_or("internal: null object")?.merge(slice(s, n)?).map(|()| true))
}
/// Ends the vocabulary: `b` is consumed in every case.
///
/// # Safety
/// Pointers are valid, `b` is live and not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn slm_parts_finish(b: *mut Builder, o: *const Options) -> *mut Tok {
    guard(std::ptr::null_mut(), || {
        if b.is_null() {
            return Err("internal: null object".into());
        }
        let b = Box::from_raw(b);
        let o = object(o)?;
        Ok(b.finish(o, text(o.pre, o.n_pre)?, slice(o.charsmap, o.n_charsmap)?)?.into_raw())
    })
}
/// # Safety
/// `b` comes from `slm_parts_new` and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn slm_parts_free(b: *mut Builder) {
    guard((), || {
        if !b.is_null() {
            drop(Box::from_raw(b));
        }
        Ok(())
    })
}
