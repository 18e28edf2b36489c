//! The model of a tokenizer: our compact BPE, or one of the crate's (WordPiece, Unigram, WordLevel, BPE with affixes).
use crate::bpe::{Bpe, Scratch};
use crate::ffi::{err, R};
use crate::table::Table;
use tokenizers::models::ModelWrapper;
use tokenizers::Model as _;

pub enum Model {
    Compact(Box<Bpe>),
    /// The crate's model, and the vocabulary by id (the crate can only list it as an unordered map of copies).
    Library(Box<ModelWrapper>, Table),
}

impl Model {
    pub fn library(model: ModelWrapper) -> R<Model> {
        let vocab = model.get_vocab();
        let mut table = Table::with_capacity(vocab.len(), vocab.keys().map(String::len).sum());
        for (token, id) in vocab {
            table.insert(id as usize, token.as_bytes())?;
        }
        Ok(Model::Library(Box::new(model), table))
    }
    pub fn table(&self) -> &Table {
        match self {
            Model::Compact(b) => &b.table,
            Model::Library(_, t) => t,
        }
    }
    pub fn table_mut(&mut self) -> &mut Table {
        match self {
            Model::Compact(b) => &mut b.table,
            Model::Library(_, t) => t,
        }
    }
    pub fn tokenize(&self, piece: &str, scratch: &mut Scratch, out: &mut Vec<u32>) -> R<()> {
        match self {
            Model::Compact(b) => b.tokenize(piece, scratch, out),
            Model::Library(m, _) => {
                out.extend(m.tokenize(piece).map_err(err)?.into_iter().map(|t| t.id));
                Ok(())
            }
        }
    }
}
