//! A tokenizer as the C++ side sees it: encode with control tokens parsed by place, bytes and kind of every id.
use crate::added::{AddedToken, Control, Matcher};
use crate::bpe::Scratch;
use crate::ffi::{err, give, guard, object, slice, text, Sink, R};
use crate::model::Model;
use crate::normalize::Steps;
use crate::table::Strings;
use std::ffi::c_void;
use tokenizers::tokenizer::normalizer::Range;
use tokenizers::{NormalizedString, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper, Token};

/// Bits of [`Tok::flags`], one byte an id.
pub const SPECIAL: u8 = 1; // control token: skipped in output, never made from plain text
pub const BYTE: u8 = 2; // stands for one raw byte
pub const ADDED: u8 = 4; // taken out of the text before the model sees it
pub const PRESENT: u8 = 8; // the id exists

#[derive(Default)]
pub struct Tok {
    pub model: Option<Model>,
    pub normalizer: Option<Steps>,
    pub pre: Option<PreTokenizerWrapper>,
    pub(crate) raw: Matcher,
    pub(crate) normalized: Matcher,
    pub(crate) control: Control,
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    pub bytes: Strings,
    pub flags: Vec<u8>,
    /// Bytes of spaces that decoding takes off the front of a text (SentencePiece's added space).
    pub strip_leading: usize,
    /// bos, eos, unk, pad; -1 where there is none.
    pub ids: [i32; 4],
}

impl Tok {
    /// Installs the added tokens; the normalizer must be set before.
    pub fn add(&mut self, tokens: &[AddedToken]) -> R<()> {
        let (mut raw, mut normalized) = (vec![], vec![]);
        for t in tokens {
            match &self.normalizer {
                Some(n) if t.normalized => {
                    let mut s = NormalizedString::from(t.content.as_str());
                    n.normalize(&mut s).map_err(err)?;
                    normalized.push((t, s.get().to_string()));
                }
                // Without a normalizer both searches see the same text; the crate still runs the plain one first.
                None if t.normalized => normalized.push((t, t.content.clone())),
                _ => raw.push((t, t.content.clone())),
            }
        }
        self.raw = Matcher::new(&raw)?;
        self.normalized = Matcher::new(&normalized)?;
        self.control = Control::new(tokens.iter().filter(|t| t.special).map(|t| t.content.as_str()))?;
        Ok(())
    }

    fn cut(
        s: NormalizedString,
        m: &Matcher,
        parsed: &dyn Fn(usize) -> usize,
    ) -> tokenizers::Result<Vec<(NormalizedString, Option<Vec<Token>>)>> {
        let mut out = vec![];
        for p in m.split(s.get(), parsed) {
            let part = s.slice(Range::Normalized(p.range)).ok_or("added token cut inside a character")?;
            out.push((part, p.id.map(|id| vec![Token::new(id, String::new(), (0, 0))])));
        }
        Ok(out)
    }

    /// Appends the ids of `s`. `plain`: sorted, disjoint byte ranges in which control spellings are ordinary text.
    pub fn encode(&self, s: &str, plain: &[(usize, usize)], out: &mut Vec<u32>) -> R<()> {
        // How far a control token may reach from an original byte offset.
        let reach = |at: usize| {
            let i = plain.partition_point(|&(_, end)| end <= at);
            plain.get(i).map_or(s.len(), |&(start, _)| start.max(at))
        };
        let mut text = PreTokenizedString::from(s);
        text.split(|_, part| Self::cut(part, &self.raw, &reach)).map_err(err)?;
        text.split(|_, mut part| {
            if let Some(n) = &self.normalizer {
                n.normalize(&mut part)?;
            }
            // Offsets of the normalized text lead back to the original; a control token that is normalized is parsed only
            // where its whole part is parsed text, which is stricter than needed and never laxer.
            let (start, end) = part.offsets_original();
            let open = reach(start) >= end;
            Self::cut(part, &self.normalized, &move |at| if open { usize::MAX } else { at })
        })
        .map_err(err)?;
        if let Some(p) = &self.pre {
            p.pre_tokenize(&mut text).map_err(err)?;
        }
        let model = self.model.as_ref().ok_or("internal: no model")?;
        let mut scratch = Scratch::default();
        for (piece, _, tokens) in text.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            match tokens {
                Some(t) => out.extend(t.iter().map(|t| t.id)),
                None => model.tokenize(piece, &mut scratch, out)?,
            }
        }
        Ok(())
    }

    pub fn find(&self, token: &str) -> Option<u32> {
        self.model.as_ref()?.table().find(token.as_bytes())
    }

    /// Byte ranges of control spellings in `s`, and of parts of one at its ends: a template may put the rest beside them.
    pub fn control_spans(&self, s: &str) -> Vec<(usize, usize)> {
        self.control.spans(s)
    }

    pub fn into_raw(self) -> *mut Tok {
        Box::into_raw(Box::new(self))
    }
}

/// # Safety
/// `t` comes from this library and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn slm_tok_free(t: *mut Tok) {
    guard((), || {
        if !t.is_null() {
            drop(Box::from_raw(t));
        }
        Ok(())
    })
}

/// Encodes UTF-8 `s`; `plain` holds `n_plain` pairs of byte offsets. Ids (u32) go to the sink. False: see `slm_text_error`.
///
/// # Safety
/// Pointers are valid for their lengths, `t` is live.
#[no_mangle]
pub unsafe extern "C" fn slm_tok_encode(
    t: *const Tok,
    s: *const u8,
    n: usize,
    plain: *const usize,
    n_plain: usize,
    sink: Sink,
    context: *mut c_void,
) -> bool {
    guard(false, || {
        let flat = slice(plain, n_plain.checked_mul(2).ok_or("internal: length")?)?;
        let plain: Vec<(usize, usize)> = flat.chunks_exact(2).map(|p| (p[0], p[1])).filter(|p| p.0 < p.1).collect();
        let mut ids = vec![];
        object(t)?.encode(text(s, n)?, &plain, &mut ids)?;
        give(sink, context, &ids);
        Ok(true)
    })
}

/// What stays constant: borrowed arrays and numbers, valid while the tokenizer lives.
#[repr(C)]
pub struct Facts {
    pub prefix: *const u32,
    pub n_prefix: usize,
    pub suffix: *const u32,
    pub n_suffix: usize,
    pub flags: *const u8,
    pub n_vocab: usize,
    pub strip_leading: usize,
    pub ids: [i32; 4],
}

/// # Safety
/// `t` is live, `facts` is writable.
#[no_mangle]
pub unsafe extern "C" fn slm_tok_facts(t: *const Tok, facts: *mut Facts) -> bool {
    guard(false, || {
        let t = object(t)?;
        let facts = facts.as_mut().ok_or("internal: null facts")?;
        *facts = Facts {
            prefix: t.prefix.as_ptr(),
            n_prefix: t.prefix.len(),
            suffix: t.suffix.as_ptr(),
            n_suffix: t.suffix.len(),
            flags: t.flags.as_ptr(),
            n_vocab: t.flags.len(),
            strip_leading: t.strip_leading,
            ids: t.ids,
        };
        Ok(true)
    })
}

/// The bytes an id stands for, borrowed; null and 0 for an id that does not exist. Never fails, never allocates.
///
/// # Safety
/// `t` is live, `n` is writable.
#[no_mangle]
pub unsafe extern "C" fn slm_tok_bytes(t: *const Tok, id: u32, n: *mut usize) -> *const u8 {
    let found = t.as_ref().map(|t| t.bytes.get(id as usize)).unwrap_or(&[]);
    if let Some(n) = n.as_mut() {
        *n = found.len();
    }
    if found.is_empty() {
        std::ptr::null()
    } else {
        found.as_ptr()
    }
}

/// The id whose spelling in the vocabulary is exactly `s`, or -1.
///
/// # Safety
/// Pointers are valid for their lengths, `t` is live.
#[no_mangle]
pub unsafe extern "C" fn slm_tok_find(t: *const Tok, s: *const u8, n: usize) -> i32 {
    guard(-1, || {
        let t = object(t)?;
        let s = slice(s, n)?;
        Ok(t.model.as_ref().and_then(|m| m.table().find(s)).map_or(-1, |id| id as i32))
    })
}
