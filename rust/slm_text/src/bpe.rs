//! Byte-pair encoding over compact tables, equal to the crate's `models::bpe::BPE` id for id.
//!
//! Two sources of priority: a merge list (rank = position), or SentencePiece scores. A SentencePiece file has no merge list;
//! transformers builds one by splitting every piece in every way and sorting by (score, length of the left part, length of the
//! right part), all descending, then id. We compare by that same key while merging, so the list never exists: for 262k pieces
//! building it takes 1.7 s and 60 MB.
use crate::ffi::R;
use crate::table::Table;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, RandomState};

const FREE: u32 = u32::MAX;

/// (left, right) → rank. Multiply-shift hashing with random keys keeps hostile pair lists linear.
#[derive(Default)]
pub struct Merges {
    list: Vec<[u32; 3]>, // by rank: left, right, result
    slots: Vec<u32>,     // ranks
    shift: u32,
    add: u64,
    mul: u64,
}

impl Merges {
    pub fn with_capacity(n: usize) -> Self {
        let keys = RandomState::new();
        let mut m = Merges { list: Vec::with_capacity(n), add: keys.hash_one(1), mul: keys.hash_one(2) | 1, ..Default::default() };
        m.resize((n * 4 / 3 + 8).next_power_of_two());
        m
    }
    fn resize(&mut self, slots: usize) {
        self.slots = vec![FREE; slots];
        self.shift = 64 - slots.trailing_zeros();
        for rank in 0..self.list.len() as u32 {
            let i = self.probe(self.list[rank as usize][0], self.list[rank as usize][1]);
            self.slots[i] = rank;
        }
    }
    fn probe(&self, left: u32, right: u32) -> usize {
        let key = (u64::from(left) << 32 | u64::from(right)).wrapping_add(self.add);
        // Two rounds: one alone leaves runs of neighbouring ids in neighbouring slots.
        let mixed = (key ^ key >> 32).wrapping_mul(self.mul);
        let mut i = ((mixed ^ mixed >> 29).wrapping_mul(self.mul) >> self.shift) as usize;
        while self.slots[i] != FREE && self.list[self.slots[i] as usize][..2] != [left, right] {
            i = (i + 1) & (self.slots.len() - 1);
        }
        i
    }
    /// Appends a merge; of two equal pairs the last one counts, as in a dictionary.
    pub fn push(&mut self, left: u32, right: u32, result: u32) {
        if (self.list.len() + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(16));
        }
        let i = self.probe(left, right);
        self.slots[i] = self.list.len() as u32;
        self.list.push([left, right, result]);
    }
    pub fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        if self.list.is_empty() {
            return None;
        }
        let rank = self.slots[self.probe(left, right)];
        (rank != FREE).then(|| (rank, self.list[rank as usize][2]))
    }
    pub fn len(&self) -> usize {
        self.list.len()
    }
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

pub enum Priority {
    List(Merges),
    /// Dense rank of every id's score, best first; equal scores share a rank.
    Score(Vec<u32>),
}

pub struct Bpe {
    pub table: Table,
    pub priority: Priority,
    /// Ids that ordinary text never becomes: control tokens.
    pub blocked: Vec<bool>,
    pub unk: Option<u32>,
    pub fuse_unk: bool,
    pub byte_ids: Option<Box<[u32; 256]>>,
    pub ignore_merges: bool,
}

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    prev: u32,
    next: u32,
    start: u32, // bytes of the word
    end: u32,   // 0: merged away
    chars: u32, // 0: a byte or unknown token, which never merges by score
}

/// Reusable working memory of one encoding.
#[derive(Default)]
pub struct Scratch {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<std::cmp::Reverse<(u64, u32, u32)>>, // priority, result id, position
}

/// Dense ranks of scores, best first.
pub fn score_ranks(scores: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
    let mut ranks = vec![0u32; scores.len()];
    let mut rank = 0;
    for (i, &id) in order.iter().enumerate() {
        if i > 0 && scores[id as usize].total_cmp(&scores[order[i - 1] as usize]).is_ne() {
            rank += 1;
        }
        ranks[id as usize] = rank;
    }
    ranks
}

/// Ids of `<0x00>` … `<0xFF>` where the vocabulary has all of them.
pub fn byte_ids(table: &Table) -> Option<Box<[u32; 256]>> {
    let mut ids = Box::new([0u32; 256]);
    for b in 0..256usize {
        let name = format!("<0x{b:02X}>");
        // Gemma's converter renames <0x09>: the tab itself then carries the byte's id.
        ids[b] = table.find(name.as_bytes()).or_else(|| table.find(&[b as u8]).filter(|_| b < 128))?;
    }
    Some(ids)
}

impl Bpe {
    fn lookup(&self, bytes: &[u8]) -> Option<u32> {
        self.table.find(bytes).filter(|&id| !self.is_blocked(id))
    }
    fn is_blocked(&self, id: u32) -> bool {
        self.blocked.get(id as usize).copied().unwrap_or(false)
    }

    /// Appends the ids of one word (a pre-tokenizer's piece).
    pub fn tokenize(&self, word: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> R<()> {
        if word.len() >= FREE as usize {
            return Err("a text piece of 4 GiB or more".into());
        }
        if self.ignore_merges {
            if let Some(id) = self.lookup(word.as_bytes()) {
                out.push(id);
                return Ok(());
            }
        }
        self.split(word, &mut scratch.symbols);
        self.merge(word.as_bytes(), scratch);
        out.extend(scratch.symbols.iter().filter(|s| s.end != 0).map(|s| s.id));
        Ok(())
    }

    /// One symbol a character; bytes or the unknown token for characters outside the vocabulary.
    fn split(&self, word: &str, symbols: &mut Vec<Symbol>) {
        symbols.clear();
        let mut add = |id: u32, start: usize, end: usize, chars: u32| {
            let i = symbols.len() as u32;
            symbols.push(Symbol { id, prev: i.wrapping_sub(1), next: i + 1, start: start as u32, end: end as u32, chars });
        };
        let mut unknown: Option<(usize, usize)> = None;
        for (start, c) in word.char_indices() {
            let end = start + c.len_utf8();
            if let Some(id) = self.lookup(&word.as_bytes()[start..end]) {
                if let (Some((s, e)), Some(unk)) = (unknown.take(), self.unk) {
                    add(unk, s, e, 0);
                }
                add(id, start, end, 1);
            } else if let Some(bytes) = &self.byte_ids {
                for i in start..end {
                    add(bytes[word.as_bytes()[i] as usize], i, i + 1, 0);
                }
            } else if let Some(unk) = self.unk {
                unknown = match unknown {
                    Some((s, _)) if self.fuse_unk => Some((s, end)),
                    Some((s, e)) => {
                        add(unk, s, e, 0);
                        Some((start, end))
                    }
                    None => Some((start, end)),
                };
            }
        }
        if let (Some((s, e)), Some(unk)) = (unknown, self.unk) {
            add(unk, s, e, 0);
        }
    }

    fn candidate(&self, word: &[u8], l: &Symbol, r: &Symbol) -> Option<(u64, u32)> {
        match &self.priority {
            Priority::List(merges) => merges.get(l.id, r.id).map(|(rank, id)| (u64::from(rank), id)),
            Priority::Score(ranks) => {
                if l.chars == 0 || r.chars == 0 {
                    return None;
                }
                let id = self.lookup(&word[l.start as usize..r.end as usize])?;
                let shorter_last = |n: u32| u64::from(0xFFFF - n.min(0xFFFF));
                Some((u64::from(ranks[id as usize]) << 32 | shorter_last(l.chars) << 16 | shorter_last(r.chars), id))
            }
        }
    }

    fn merge(&self, word: &[u8], scratch: &mut Scratch) {
        use std::cmp::Reverse;
        let Scratch { symbols, heap } = scratch;
        heap.clear();
        for i in 1..symbols.len() {
            if let Some((key, id)) = self.candidate(word, &symbols[i - 1], &symbols[i]) {
                heap.push(Reverse((key, id, i as u32 - 1)));
            }
        }
        let n = symbols.len() as u32;
        while let Some(Reverse((key, id, at))) = heap.pop() {
            let left = symbols[at as usize];
            if left.end == 0 || left.next >= n {
                continue;
            }
            let right = symbols[left.next as usize];
            // The entry is stale when either side has changed since it was queued. The crate compares results only.
            match self.candidate(word, &left, &right) {
                Some((k, new_id)) if new_id == id && (k == key || matches!(self.priority, Priority::List(_))) => {}
                _ => continue,
            }
            symbols[left.next as usize].end = 0;
            let merged = &mut symbols[at as usize];
            *merged = Symbol { id, next: right.next, end: right.end, chars: left.chars + right.chars, ..left };
            let merged = *merged;
            if right.next < n {
                symbols[right.next as usize].prev = at;
                if let Some((k, new_id)) = self.candidate(word, &merged, &symbols[right.next as usize]) {
                    heap.push(Reverse((k, new_id, at)));
                }
            }
            if merged.prev < n {
                if let Some((k, new_id)) = self.candidate(word, &symbols[merged.prev as usize], &merged) {
                    heap.push(Reverse((k, new_id, merged.prev)));
                }
            }
        }
    }
}
