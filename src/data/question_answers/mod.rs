//! Questions with answers that stand in a text: SQuAD v1.1's format, read on demand.

pub mod check;
pub mod corpus;
pub mod example;
pub mod files;
pub mod generate;
pub mod order;
pub mod settings;
pub mod squad;
pub mod store;
pub mod tokenizer;
