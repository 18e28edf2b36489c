//! A vocabulary as one byte arena and an open-addressing index: 4 bytes a slot instead of two hash maps of owned strings.
use crate::ffi::R;
use std::hash::{BuildHasher, RandomState};

/// More ids than any published vocabulary by a factor of ten; a larger number in a file is damage, not a model.
pub const MAX_IDS: usize = 1 << 22;
const FREE: u32 = u32::MAX;

#[derive(Default)]
pub struct Table {
    arena: Vec<u8>,
    spans: Vec<(u32, u32)>, // start, length by id; length FREE: no such id
    slots: Vec<u32>,        // ids; power of two, at most 3/4 full
    count: usize,
    // SipHash with random keys: a file made of colliding strings must not cost quadratic time.
    hasher: RandomState,
}

impl Table {
    pub fn with_capacity(ids: usize, bytes: usize) -> Self {
        let mut t = Table { arena: Vec::with_capacity(bytes), spans: Vec::with_capacity(ids), ..Default::default() };
        t.grow((ids * 4 / 3 + 8).next_power_of_two());
        t
    }
    /// One past the largest id.
    pub fn len(&self) -> usize {
        self.spans.len()
    }
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
    /// Bytes of an id; None where the numbering has a hole.
    pub fn get(&self, id: u32) -> Option<&[u8]> {
        let &(start, n) = self.spans.get(id as usize)?;
        if n == FREE {
            return None;
        }
        self.arena.get(start as usize..start as usize + n as usize)
    }
    fn probe(&self, bytes: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut i = self.hasher.hash_one(bytes) as usize & mask;
        while self.slots[i] != FREE && self.get(self.slots[i]) != Some(bytes) {
            i = (i + 1) & mask;
        }
        i
    }
    pub fn find(&self, bytes: &[u8]) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let id = self.slots[self.probe(bytes)];
        (id != FREE).then_some(id)
    }
    fn grow(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![FREE; slots]);
        for id in old.into_iter().filter(|&id| id != FREE) {
            let i = self.probe(self.get(id).unwrap_or(&[]));
            self.slots[i] = id;
        }
    }
    /// Adds `bytes` under `id`. Of two equal strings the last one is found, as in a dictionary; both keep their bytes.
    pub fn insert(&mut self, id: usize, bytes: &[u8]) -> R<()> {
        if id >= MAX_IDS {
            return Err(format!("token id {id} is past the limit of {MAX_IDS}"));
        }
        if self.arena.len() + bytes.len() >= FREE as usize {
            return Err("the vocabulary's strings exceed 4 GiB".into());
        }
        if self.spans.len() <= id {
            self.spans.resize(id + 1, (0, FREE));
        }
        if (self.count + 1) * 4 > self.slots.len() * 3 {
            self.grow((self.slots.len() * 2).max(16));
        }
        if self.spans[id].1 != FREE {
            return Err(format!("token id {id} occurs twice"));
        }
        self.spans[id] = (self.arena.len() as u32, bytes.len() as u32);
        self.arena.extend_from_slice(bytes);
        let i = self.probe_for_insert(id as u32);
        self.count += usize::from(self.slots[i] == FREE);
        self.slots[i] = id as u32;
        Ok(())
    }
    fn probe_for_insert(&self, id: u32) -> usize {
        self.probe(self.get(id).unwrap_or(&[]))
    }
    /// Gives back what growing left over.
    pub fn shrink(&mut self) {
        self.arena.shrink_to_fit();
        self.spans.shrink_to_fit();
    }
}

/// Byte strings by dense index, read through a C pointer.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Strings {
    pub fn with_capacity(n: usize, bytes: usize) -> Self {
        Strings { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(n) }
    }
    /// Appends one string; the arena stays below 4 GiB because each piece is bounded by the table it comes from.
    pub fn push(&mut self, parts: impl IntoIterator<Item = u8>) {
        self.bytes.extend(parts);
        self.ends.push(self.bytes.len() as u32);
    }
    pub fn get(&self, i: usize) -> &[u8] {
        let Some(&end) = self.ends.get(i) else { return &[] };
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start as usize..end as usize]
    }
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}
