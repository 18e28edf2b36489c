//! Leftmost-longest search for one of many spellings.
//!
//! Few spellings: the library's automaton. Building it takes quadratic time in the number of spellings that share their
//! beginnings (vocabularies of speech models add 10^5 of them), so large sets are a sorted list that is narrowed byte by byte.
use crate::ffi::{err, R};
use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use std::ops::Range;

const MANY: usize = 2000;
/// Bounds the work at one place of the text when there are many spellings. Published ones are shorter than 100 bytes.
const MAX_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub start: usize,
    pub end: usize,
    /// Index of the spelling; of equal ones the first.
    pub which: usize,
}

pub enum Search {
    Automaton(AhoCorasick),
    Sorted(Sorted),
}

impl Search {
    /// None: there is nothing to find. Spellings are not empty.
    pub fn new(spellings: &[&str]) -> R<Option<Search>> {
        if spellings.is_empty() {
            return Ok(None);
        }
        if spellings.len() > MANY {
            return Sorted::new(spellings).map(|s| Some(Search::Sorted(s)));
        }
        let mut b = AhoCorasick::builder();
        b.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
        b.build(spellings).map(|a| Some(Search::Automaton(a))).map_err(err)
    }
    pub fn find(&self, s: &str, span: Range<usize>) -> Option<Found> {
        match self {
            Search::Automaton(a) => {
                a.find(Input::new(s).span(span)).map(|m| Found { start: m.start(), end: m.end(), which: m.pattern().as_usize() })
            }
            Search::Sorted(l) => l.find(s.as_bytes(), span),
        }
    }
    /// All matches, one after the other.
    pub fn find_all(&self, s: &str) -> Vec<Found> {
        let mut all: Vec<Found> = vec![];
        while let Some(m) = self.find(s, all.last().map_or(0, |m| m.end)..s.len()) {
            all.push(m);
        }
        all
    }
}

pub struct Sorted {
    spellings: Vec<(Box<[u8]>, usize)>,
    first: Vec<usize>, // by first byte: where its spellings begin; 257 entries
}

impl Sorted {
    fn new(spellings: &[&str]) -> R<Sorted> {
        if let Some(long) = spellings.iter().find(|s| s.len() > MAX_BYTES) {
            return Err(format!("an added token of {} bytes; the limit is {MAX_BYTES} where there are more than {MANY}", long.len()));
        }
        let mut list: Vec<(Box<[u8]>, usize)> = spellings.iter().enumerate().map(|(i, s)| (s.as_bytes().into(), i)).collect();
        list.sort();
        let first = (0..=256usize).map(|byte| list.partition_point(|(s, _)| usize::from(s[0]) < byte)).collect();
        Ok(Sorted { spellings: list, first })
    }
    fn find(&self, s: &[u8], span: Range<usize>) -> Option<Found> {
        span.clone().find_map(|start| self.longest(&s[start..span.end]).map(|(n, which)| Found { start, end: start + n, which }))
    }
    /// The longest spelling that `s` begins with: bytes and index.
    fn longest(&self, s: &[u8]) -> Option<(usize, usize)> {
        let (mut range, mut best) = (self.first[usize::from(s[0])]..self.first[usize::from(s[0]) + 1], None);
        for depth in 1.. {
            // All in the range begin with s[..depth]; those that end here come first.
            let rest = &self.spellings[range.clone()];
            let ended = rest.partition_point(|(t, _)| t.len() == depth);
            if ended > 0 {
                best = Some((depth, rest[0].1));
            }
            let (rest, Some(&next)) = (&rest[ended..], s.get(depth)) else { break };
            let (a, b) = (rest.partition_point(|(t, _)| t[depth] < next), rest.partition_point(|(t, _)| t[depth] <= next));
            if a == b {
                break;
            }
            range = range.start + ended + a..range.start + ended + b;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_list_equals_the_automaton() {
        let mut state = 1u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..300 {
            let mut word = |max: u64| (0..1 + random(max)).map(|_| ['a', 'b', 'é', '<'][random(4) as usize]).collect::<String>();
            let words: Vec<String> = (0..12).map(|_| word(4)).collect();
            let text = word(60);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let automaton = Search::new(&words).unwrap().unwrap();
            let sorted = Search::Sorted(Sorted::new(&words).unwrap());
            assert!(matches!(automaton, Search::Automaton(_)));
            assert_eq!(automaton.find_all(&text), sorted.find_all(&text), "{words:?} in {text}");
        }
    }
}
