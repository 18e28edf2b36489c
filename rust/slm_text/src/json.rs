//! tokenizer.json → [`Tok`], without building the document in memory: the vocabulary and the merges stream from the file's
//! text into the compact tables. The crate's own loader peaks at 300 MB for 262k pieces.
use crate::added::AddedToken;
use crate::bpe::{byte_ids, Bpe, Merges, Priority};
use crate::ffi::{err, guard, text, R};
use crate::model::Model;
use crate::normalize::Steps;
use crate::parts::check_charsmap;
use crate::spelling::{byte_token, spell_all, Spelling};
use crate::table::Table;
use crate::tok::{Tok, ADDED, BYTE, PRESENT, SPECIAL};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::{Encoding, PostProcessor as _, PostProcessorWrapper, PreTokenizerWrapper, Token};

#[derive(Deserialize)]
struct Root<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
    #[serde(borrow)]
    normalizer: Option<&'a RawValue>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<Value>,
    added_tokens: Option<Vec<AddedToken>>,
}

#[derive(Deserialize)]
struct BpeJson<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow)]
    vocab: Option<&'a RawValue>,
    #[serde(borrow)]
    merges: Option<&'a RawValue>,
    unk_token: Option<String>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: Option<bool>,
    #[serde(default)]
    byte_fallback: Option<bool>,
    #[serde(default)]
    ignore_merges: Option<bool>,
}

/// Streams `{"token": id}` into a table.
struct VocabInto<'t>(&'t mut Table);
impl<'de> Visitor<'de> for VocabInto<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("an object of token to id")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut key = String::new();
        while map.next_key_seed(TextInto(&mut key))?.is_some() {
            let id: u32 = map.next_value()?;
            self.0.insert(id as usize, key.as_bytes()).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Reads a string into a reused buffer.
struct TextInto<'b>(&'b mut String);
impl<'de> DeserializeSeed<'de> for TextInto<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_str(self)
    }
}
impl Visitor<'_> for TextInto<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E>(self, s: &str) -> Result<(), E> {
        self.0.clear();
        self.0.push_str(s);
        Ok(())
    }
}

/// Streams merges, each `"left right"` or `["left", "right"]`.
struct MergesInto<'t> {
    table: &'t Table,
    out: &'t mut Merges,
}
impl<'de> Visitor<'de> for MergesInto<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a list of merges")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let (mut pair, mut both) = ((String::new(), String::new()), String::new());
        while seq.next_element_seed(MergeInto(&mut pair))?.is_some() {
            both.clear();
            both.push_str(&pair.0);
            both.push_str(&pair.1);
            let id = |s: &str| {
                self.table
                    .find(s.as_bytes())
                    .ok_or_else(|| A::Error::custom(format!("merge {}: \"{s}\" is not in the vocabulary", self.out.len())))
            };
            let (l, r, m) = (id(&pair.0)?, id(&pair.1)?, id(&both)?);
            self.out.push(l, r, m);
        }
        Ok(())
    }
}
struct MergeInto<'b>(&'b mut (String, String));
impl<'de> DeserializeSeed<'de> for MergeInto<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}
impl<'de> Visitor<'de> for MergeInto<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("\"left right\" or [left, right]")
    }
    fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<(), E> {
        let mut halves = s.split(' ');
        match (halves.next(), halves.next(), halves.next()) {
            (Some(l), Some(r), None) => {
                self.0 .0.clear();
                self.0 .0.push_str(l);
                self.0 .1.clear();
                self.0 .1.push_str(r);
                Ok(())
            }
            _ => Err(E::custom(format!("merge \"{s}\" is not two pieces"))),
        }
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let missing = || A::Error::custom("a merge of fewer than two pieces");
        seq.next_element_seed(TextInto(&mut self.0 .0))?.ok_or_else(missing)?;
        seq.next_element_seed(TextInto(&mut self.0 .1))?.ok_or_else(missing)?;
        match seq.next_element::<serde::de::IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(A::Error::custom("a merge of more than two pieces")),
        }
    }
}

fn read_into<'a, V: Visitor<'a>>(raw: &'a RawValue, what: &str, v: V, list: bool) -> R<V::Value> {
    let mut d = serde_json::Deserializer::from_str(raw.get());
    let r = if list { d.deserialize_seq(v) } else { d.deserialize_map(v) };
    r.map_err(|e| format!("model.{what}: {e}"))
}

fn model(raw: &RawValue) -> R<Model> {
    // A Unigram vocabulary is a list; the probe must not fail on it, so only the kind is looked at first.
    let m: BpeJson = serde_json::from_str(raw.get()).map_err(|e| format!("model: {e}"))?;
    let bpe = m.kind.as_deref() == Some("BPE") || (m.kind.is_none() && m.merges.is_some());
    let affixes = [&m.continuing_subword_prefix, &m.end_of_word_suffix].iter().any(|s| s.as_ref().is_some_and(|s| !s.is_empty()));
    let random = m.dropout.is_some_and(|d| d != 0.0);
    let (Some(vocab), true, false, false) = (m.vocab, bpe, affixes, random) else {
        return tame("model: its vocabulary, merges and affixes contradict one another", || {
            Model::library(serde_json::from_str::<ModelWrapper>(raw.get()).map_err(|e| format!("model: {e}"))?)
        });
    };
    // About 12 bytes of JSON an entry at least; an estimate only sizes the first allocation.
    let mut table = Table::with_capacity((vocab.get().len() / 24).min(1 << 19), (vocab.get().len() / 2).min(1 << 23));
    read_into(vocab, "vocab", VocabInto(&mut table), false)?;
    table.shrink();
    let mut merges = Merges::with_capacity(table.len());
    if let Some(raw) = m.merges {
        read_into(raw, "merges", MergesInto { table: &table, out: &mut merges }, true)?;
    }
    let unk = match &m.unk_token {
        Some(t) => Some(table.find(t.as_bytes()).ok_or_else(|| format!("model.unk_token: \"{t}\" is not in the vocabulary"))?),
        None => None,
    };
    let byte_ids = if m.byte_fallback == Some(true) { byte_ids(&table) } else { None };
    let ignore_merges = m.ignore_merges.unwrap_or(false);
    Ok(Model::Compact(Box::new(Bpe {
        table,
        priority: Priority::List(merges),
        blocked: vec![],
        unk,
        fuse_unk: m.fuse_unk.unwrap_or(false),
        byte_ids,
        ignore_merges,
    })))
}

/// What the decoder section says about spellings: (spelling, bytes of spaces to strip, byte tokens).
fn read_decoder(d: &Value, found: &mut (Spelling, usize, bool)) {
    let text = |k: &str, default: &str| d.get(k).and_then(Value::as_str).unwrap_or(default).to_string();
    match d.get("type").and_then(Value::as_str).unwrap_or("") {
        "Sequence" => {
            for step in d.get("decoders").and_then(Value::as_array).into_iter().flatten() {
                read_decoder(step, found);
            }
        }
        "ByteLevel" => found.0 = Spelling::ByteLevel,
        "ByteFallback" => found.2 = true,
        "Replace" if d.get("content").and_then(Value::as_str) == Some(" ") => found.0 = Spelling::Escaped,
        "Metaspace" => {
            found.0 = Spelling::Escaped;
            let prefix = d.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(true) && text("prepend_scheme", "always") != "never";
            found.1 = found.1.max(usize::from(prefix));
        }
        "Strip" if text("content", "") == " " => found.1 = d.get("start").and_then(Value::as_u64).unwrap_or(0).min(64) as usize,
        "WordPiece" => (found.0, found.1) = (Spelling::WordPiece(text("prefix", "##")), 1),
        "BPEDecoder" => found.0 = Spelling::Suffix(text("suffix", "</w>")),
        _ => {}
    }
}

/// Reads the normalizer; the character maps inside it are checked before the crate believes their sizes.
fn read_normalizer(raw: &RawValue) -> R<Option<Steps>> {
    let section: Value = serde_json::from_str(raw.get()).map_err(|e| format!("normalizer: {e}"))?;
    check_charsmaps(&section)?;
    Steps::from_json(&section)
}

/// Runs a part of the crate that panics where a file contradicts itself.
fn tame<T>(what: &str, f: impl FnOnce() -> R<T>) -> R<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or_else(|_| Err(format!("tokenizer.json: {what}")))
}

fn check_charsmaps(v: &Value) -> R<()> {
    match v {
        Value::Array(a) => a.iter().try_for_each(check_charsmaps),
        Value::Object(o) => o.iter().try_for_each(|(k, v)| match v.as_str() {
            Some(s) if k == "precompiled_charsmap" => {
                // Four bytes are in the first six base64 digits.
                let digit = |b: u8| {
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".iter().position(|&d| d == b).map(|d| d as u64)
                };
                let head = s.bytes().take(6).map(digit).collect::<Option<Vec<u64>>>().filter(|d| d.len() == 6);
                let bytes = head.map(|d| (d.iter().fold(0u64, |a, d| a << 6 | d) >> 4).to_be_bytes());
                check_charsmap(bytes.as_ref().map(|b| &b[4..]), s.len() / 4 * 3)
            }
            _ => check_charsmaps(v),
        }),
        _ => Ok(()),
    }
}

/// Ids the post-processor puts before and after a text.
fn affixes(p: &PostProcessorWrapper) -> R<(Vec<u32>, Vec<u32>)> {
    const MARK: u32 = u32::MAX;
    let one = Encoding::from_tokens(vec![Token::new(MARK, String::new(), (0, 0))], 0);
    let e = p.process(one, None, true).map_err(err)?;
    let ids = e.get_ids();
    let at = ids.iter().position(|&i| i == MARK).ok_or("post_processor: it drops the text")?;
    Ok((ids[..at].to_vec(), ids[at + 1..].to_vec()))
}

/// A token named in tokenizer_config.json: a string or an added-token object.
fn named<'a>(config: &'a Value, key: &str) -> Option<&'a str> {
    let v = config.get(key)?;
    v.as_str().or_else(|| v.get("content").and_then(Value::as_str))
}

pub fn load(json: &str, config: &str) -> R<Tok> {
    let root: Root = serde_json::from_str(json).map_err(|e| format!("tokenizer.json: {e}"))?;
    let config: Value =
        if config.is_empty() { Value::Null } else { serde_json::from_str(config).map_err(|e| format!("tokenizer_config.json: {e}"))? };
    let mut m = model(root.model)?;
    let mut added = root.added_tokens.unwrap_or_default();
    let mut foreign = vec![]; // ids the model itself does not know
    for t in &mut added {
        match m.table().find(t.content.as_bytes()) {
            Some(id) => t.id = id, // the model's own number wins, as in the library
            None => {
                m.table_mut().insert(t.id as usize, t.content.as_bytes()).map_err(|e| format!("added token \"{}\": {e}", t.content))?;
                foreign.push(t.id as usize);
            }
        }
    }
    let normalizer = root.normalizer.map(read_normalizer).transpose()?.flatten();
    let mut tok = Tok { normalizer, pre: root.pre_tokenizer, ids: [-1; 4], ..Default::default() };
    let mut decoder = (Spelling::Literal, 0, false);
    read_decoder(&root.decoder.unwrap_or(Value::Null), &mut decoder);
    tok.strip_leading = decoder.1;
    let n = m.table().len();
    tok.flags = (0..n).map(|i| if m.table().get(i as u32).is_some() { PRESENT } else { 0 }).collect();
    for t in &added {
        tok.flags[t.id as usize] |= ADDED | if t.special { SPECIAL } else { 0 };
    }
    if decoder.2 {
        for i in 0..n {
            if m.table().get(i as u32).is_some_and(|s| byte_token(s).is_some()) {
                tok.flags[i] |= BYTE;
            }
        }
    }
    tok.bytes = spell_all(m.table(), &tok.flags, &decoder.0);
    if let Model::Compact(b) = &mut m {
        b.blocked = (0..n).map(|i| tok.flags[i] & SPECIAL != 0).collect();
        foreign.into_iter().for_each(|i| b.blocked[i] = true);
    }
    if let Some(p) = &root.post_processor {
        let missing = "post_processor: it fails on a text; a token it names may be missing from its special_tokens";
        (tok.prefix, tok.suffix) = tame(missing, || affixes(p))?;
    }
    if tok.prefix.iter().chain(&tok.suffix).any(|&i| i as usize >= n) {
        return Err("post_processor: an id outside the vocabulary".into());
    }
    for (i, key) in ["bos_token", "eos_token", "unk_token", "pad_token"].iter().enumerate() {
        tok.ids[i] = named(&config, key).and_then(|t| m.table().find(t.as_bytes())).map_or(-1, |id| id as i32);
    }
    tok.model = Some(m);
    tok.add(&added)?;
    Ok(tok)
}

/// Reads a tokenizer.json and, where `n_config` is not 0, the tokenizer_config.json beside it. Null: see `slm_text_error`.
///
/// # Safety
/// Pointers are valid for their lengths.
#[no_mangle]
pub unsafe extern "C" fn slm_tok_from_json(json: *const u8, n: usize, config: *const u8, n_config: usize) -> *mut Tok {
    guard(std::ptr::null_mut(), || Ok(load(text(json, n)?, text(config, n_config)?)?.into_raw()))
}
