//! Added tokens: spellings that are taken out of the text before anything else, control tokens among them.
//!
//! The crate's own matcher knows two modes only, all or no control tokens in the whole text. A rendered conversation needs a
//! mode by place: the template's control tokens are parsed, the same spelling inside a message is not. Matching is the
//! crate's otherwise: leftmost-longest, whole words, stripping of spaces.
use crate::ffi::R;
use crate::search::Search;
use serde::Deserialize;

#[derive(Clone, Deserialize)]
pub struct AddedToken {
    pub id: u32,
    pub content: String,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub normalized: bool,
    #[serde(default)]
    pub special: bool,
}

#[derive(Clone, Copy)]
struct Pattern {
    id: u32,
    special: bool,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
}

/// A set of spellings that are searched together.
#[derive(Default)]
pub struct Matcher {
    all: Option<Search>,
    patterns: Vec<Pattern>,
    ordinary: Option<Search>, // without control tokens
    ordinary_idx: Vec<u32>,   // its pattern → index into `patterns`
}

/// A stretch of the text: an added token, or text still to be tokenized.
pub struct Piece {
    pub id: Option<u32>,
    pub range: std::ops::Range<usize>,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Matcher {
    /// `tokens` with the spelling each is searched by (the normalized one where the token says so).
    pub fn new(tokens: &[(&AddedToken, String)]) -> R<Matcher> {
        let tokens: Vec<_> = tokens.iter().filter(|(_, s)| !s.is_empty()).collect();
        let patterns: Vec<Pattern> = tokens
            .iter()
            .map(|(t, _)| Pattern { id: t.id, special: t.special, single_word: t.single_word, lstrip: t.lstrip, rstrip: t.rstrip })
            .collect();
        let all: Vec<&str> = tokens.iter().map(|(_, s)| s.as_str()).collect();
        let ordinary_idx: Vec<u32> = (0..patterns.len() as u32).filter(|&i| !patterns[i as usize].special).collect();
        let ordinary: Vec<&str> = ordinary_idx.iter().map(|&i| all[i as usize]).collect();
        Ok(Matcher { all: Search::new(&all)?, ordinary: Search::new(&ordinary)?, patterns, ordinary_idx })
    }

    /// Next match at or after `from`. `parsed(a, b)` says how far control tokens may reach when they start at `a`: b must not
    /// exceed it; it is `a` itself inside plain text.
    fn next(&self, s: &str, mut from: usize, parsed: &dyn Fn(usize) -> usize, ordinary: &mut Lookahead) -> Option<(usize, usize, Pattern)> {
        let all = self.all.as_ref()?;
        loop {
            let m = all.find(s, from..s.len())?;
            let p = self.patterns[m.which];
            let limit = parsed(m.start);
            if !p.special || m.end <= limit {
                return Some((m.start, m.end, p));
            }
            // A longer control token may reach from the template into a message; the shorter one inside the template still counts.
            if limit > m.start {
                let inner = all.find(s, m.start..limit).filter(|i| i.start == m.start);
                if let Some(i) = inner {
                    return Some((i.start, i.end, self.patterns[i.which]));
                }
            }
            let next_from = m.start + s[m.start..].chars().next().map_or(1, char::len_utf8);
            if let Some((start, end, i)) = ordinary.at_or_after(self, s, from) {
                if start <= m.start {
                    return Some((start, end, self.patterns[i as usize]));
                }
            }
            from = next_from;
        }
    }

    /// Cuts `s` into added tokens and the text between them.
    pub fn split(&self, s: &str, parsed: &dyn Fn(usize) -> usize) -> Vec<Piece> {
        let mut pieces = vec![];
        let (mut done, mut from) = (0, 0);
        let mut ordinary = Lookahead::Unknown;
        while let Some((mut start, mut end, p)) = self.next(s, from, parsed, &mut ordinary) {
            from = end;
            if p.single_word {
                let before = s[..start].chars().next_back().is_some_and(is_word);
                let after = s[end..].chars().next().is_some_and(is_word);
                if before || after {
                    continue;
                }
            }
            if p.lstrip {
                start = s[..start].trim_end().len().max(done);
            }
            if p.rstrip {
                end = s.len() - s[end..].trim_start().len();
                from = end.max(from);
            }
            if start < done {
                continue;
            }
            if done < start {
                pieces.push(Piece { id: None, range: done..start });
            }
            pieces.push(Piece { id: Some(p.id), range: start..end });
            done = end;
        }
        if done < s.len() {
            pieces.push(Piece { id: None, range: done..s.len() });
        }
        pieces
    }
}

/// The next ordinary match, remembered so that many refused control spellings do not rescan the text each.
enum Lookahead {
    Unknown,
    Found(usize, usize, u32),
    Nothing,
}

impl Lookahead {
    fn at_or_after(&mut self, m: &Matcher, s: &str, from: usize) -> Option<(usize, usize, u32)> {
        if matches!(self, Lookahead::Unknown) || matches!(self, Lookahead::Found(start, ..) if *start < from) {
            let found = m.ordinary.as_ref().and_then(|a| a.find(s, from..s.len()));
            *self = found.map_or(Lookahead::Nothing, |f| Lookahead::Found(f.start, f.end, m.ordinary_idx[f.which]));
        }
        match *self {
            Lookahead::Found(a, b, i) => Some((a, b, i)),
            _ => None,
        }
    }
}

/// The control spellings alone, for finding them in untrusted strings.
#[derive(Default)]
pub struct Control {
    whole: Option<Search>,
    sorted: Vec<Box<[u8]>>,
    reversed: Vec<Box<[u8]>>, // sorted too
    longest: usize,
}

/// Whether `part` is a proper beginning of an entry.
fn begins(sorted: &[Box<[u8]>], part: &[u8]) -> bool {
    let i = sorted.partition_point(|s| s.as_ref() <= part);
    sorted.get(i).is_some_and(|s| s.starts_with(part))
}

impl Control {
    pub fn new<'a>(spellings: impl Iterator<Item = &'a str>) -> R<Control> {
        let all: Vec<&str> = spellings.filter(|s| !s.is_empty()).collect();
        let mut c = Control { whole: Search::new(&all)?, longest: all.iter().map(|s| s.len()).max().unwrap_or(0), ..Default::default() };
        c.sorted = all.iter().map(|s| s.as_bytes().into()).collect();
        c.reversed = all.iter().map(|s| s.bytes().rev().collect()).collect();
        c.sorted.sort_unstable();
        c.reversed.sort_unstable();
        Ok(c)
    }

    pub fn spans(&self, s: &str) -> Vec<(usize, usize)> {
        let Some(whole) = &self.whole else { return vec![] };
        let mut spans: Vec<(usize, usize)> = whole.find_all(s).into_iter().map(|m| (m.start, m.end)).collect();
        let first = spans.first().map_or(s.len(), |m| m.0);
        let is_tail = |e: &usize| begins(&self.reversed, &s.as_bytes()[..*e].iter().rev().copied().collect::<Vec<u8>>());
        let ends = s[..first].char_indices().map(|(i, c)| i + c.len_utf8());
        let tail = ends.take_while(|&e| e < self.longest).filter(is_tail).last();
        let last = spans.last().map_or(0, |m| m.1).max(tail.unwrap_or(0));
        let near_end = s[last..].char_indices().map(|(i, _)| last + i).filter(|&b| s.len() - b < self.longest);
        let head = near_end.filter(|&b| begins(&self.sorted, &s.as_bytes()[b..])).min();
        if let Some(e) = tail {
            spans.insert(0, (0, e));
        }
        if let Some(b) = head {
            spans.push((b, s.len()));
        }
        spans
    }
}
