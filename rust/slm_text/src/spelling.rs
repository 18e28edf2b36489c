//! What the tokens of a vocabulary stand for in bytes: byte-level stand-ins, escaped spaces, `<0xNN>` tokens, word prefixes and suffixes.
use crate::table::{Strings, Table};
use crate::tok::{ADDED, BYTE, SPECIAL};
use std::collections::HashMap;

/// SentencePiece's stand-in for a space.
pub const SPACE_MARK: &str = "\u{2581}";

/// How a vocabulary spells bytes.
pub enum Spelling {
    ByteLevel,
    /// U+2581 for a space, `<0xNN>` for a byte.
    Escaped,
    /// Words start with a space, continuations carry this prefix.
    WordPiece(String),
    /// Words end with this suffix, which stands for a space.
    Suffix(String),
    Literal,
}

/// GPT-2's byte alphabet: the byte a printable stand-in means.
fn byte_of() -> HashMap<char, u8> {
    let mut shifted = 0;
    (0..=255u8)
        .map(|b| {
            let printable = matches!(b, 33..=126 | 161..=172 | 174..=255);
            let c = if printable {
                u32::from(b)
            } else {
                shifted += 1;
                255 + shifted
            };
            (char::from_u32(c).unwrap_or('\0'), b)
        })
        .collect()
}

/// The byte a `<0xNN>` token stands for.
pub fn byte_token(s: &[u8]) -> Option<u8> {
    let hex = s.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if hex.len() != 2 {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// The bytes every id stands for. Added tokens are literal, except that U+2581 means a space where the vocabulary escapes.
pub fn spell_all(table: &Table, flags: &[u8], spelling: &Spelling) -> Strings {
    let alphabet = byte_of();
    let mut out = Strings::with_capacity(table.len(), table.len() * 7);
    for (id, &flag) in flags.iter().enumerate() {
        let s = table.get(id as u32).unwrap_or(&[]);
        let literal = flag & (SPECIAL | ADDED) != 0;
        match spelling {
            Spelling::ByteLevel if !literal => {
                let mapped =
                    std::str::from_utf8(s).ok().and_then(|t| t.chars().map(|c| alphabet.get(&c).copied()).collect::<Option<Vec<u8>>>());
                out.push(mapped.unwrap_or_else(|| s.to_vec()));
            }
            Spelling::Escaped if flag & BYTE != 0 => out.push(byte_token(s).map_or_else(|| s.to_vec(), |b| vec![b])),
            Spelling::Escaped if flag & SPECIAL == 0 => out.push(replace_bytes(s, SPACE_MARK.as_bytes(), b" ")),
            Spelling::WordPiece(p) => match s.strip_prefix(p.as_bytes()) {
                Some(rest) => out.push(rest.iter().copied()),
                None => out.push([b" ", s].concat()),
            },
            Spelling::Suffix(p) if !literal => match s.strip_suffix(p.as_bytes()) {
                Some(rest) if !p.is_empty() => out.push([rest, b" "].concat()),
                _ => out.push(s.iter().copied()),
            },
            _ => out.push(s.iter().copied()),
        }
    }
    out.shrink();
    out
}

/// `s` with every `from` replaced by `to`.
pub fn replace_bytes(s: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(s.len() + 8);
    let mut i = 0;
    while i < s.len() {
        if s[i..].starts_with(from) {
            out.extend_from_slice(to);
            i += from.len();
        } else {
            out.push(s[i]);
            i += 1;
        }
    }
    out
}
