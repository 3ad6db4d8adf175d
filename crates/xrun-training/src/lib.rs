//! Parts of training that several pipelines use: layers, losses and the training step (`nn`), metrics, devices, leak switches.
//!
//! Burn is used with the feature `train`. `docs/add-a-pipeline.md` shows how to add a pipeline.

#![warn(missing_docs)]

pub mod backbone;
pub mod backend;
pub mod data_facts;
pub mod declaration;
pub mod epochs;
pub mod gpt2_shape;
pub mod leaks;
pub mod metrics;
pub mod model_checks;
#[cfg(feature = "train")]
pub mod nn;
pub mod weights_header;
#[cfg(not(feature = "train"))]
pub mod without_burn;

#[cfg(feature = "train")]
pub use xrun_ops as ops;

/// Registers kinds for experiments of unit tests.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    xrun_core::pipelines::register_kinds();
    xrun_data::register_kinds();
}

#[cfg(test)]
xrun_core::count_heap!();
