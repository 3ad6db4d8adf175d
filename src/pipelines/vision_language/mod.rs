//! Fine-tuning of a vision-language model that answers in JSON, with a loss over what matters of an answer.

pub mod json_bytes;
#[cfg(test)]
mod real_tests;
pub mod selective;
pub mod token_text;
