//! Quantisation-aware training of a language model with switchable precision and LoRA: seed 004.

#[cfg(feature = "train")]
pub mod answer;
pub mod batch;
pub mod check;
#[cfg(feature = "train")]
pub mod gpt2;
#[cfg(feature = "train")]
pub mod leaks;
#[cfg(feature = "train")]
pub mod linear;
#[cfg(feature = "train")]
pub mod pass;
pub mod precision;
pub mod prepare;
#[cfg(feature = "train")]
pub mod ranges;
#[cfg(feature = "train")]
pub mod recompute;
pub mod settings;
pub mod sizes;
#[cfg(feature = "train")]
pub mod task;
#[cfg(feature = "train")]
pub mod validation;
#[cfg(feature = "train")]
pub mod weights;
