//! xrun: a declarative experiment runner in which every buffer is bounded and memory is a result.
//!
//! ```text
//! experiments/stage2.toml
//!    | experiment::read     text, layers     -> Experiment      every value known, each with its origin
//!    | Experiment::prepare  its pipeline     -> TaskFacts       reads the data, without Burn and without a device
//!    | plan::resolve        both             -> Plan            every buffer has an owner, a cap and bytes
//!    | probe, plan::forecast  a few steps    -> Forecast        expected memory, measured in another process
//!    | Prepared::open       Experiment, Device -> Box<dyn Task>  can step, validate, save, load
//!    | run::train           Task             -> events          the training loop
//!    | files::write         events           -> results/<experiment>/<run>/
//!    v report               a directory      -> text, JSON, HTML
//! ```
//! Data flows in one direction. `docs/architecture.md` has the details and the dependencies of the crates.

#![warn(missing_docs)]

pub(crate) mod cli;
pub mod program;
pub mod schemas;

pub use program::Program;
pub use xrun_core::{
    bounded, buffers, count_heap, dataset, device, experiment, files, heap, invocation, leaks, panics, printable,
    problem, seed, settings, task, units,
};
pub use xrun_data as data;
pub use xrun_results::{self as results, export, judge, report};
pub use xrun_run::{self as run, child, directory, exit, host, killed, memory, plan, probe, stop};
pub use xrun_sweep as sweep;
pub use xrun_training::{backend, data_facts, declaration, epochs, gpt2_shape, metrics, model_checks, weights_header};
#[cfg(feature = "train")]
pub use xrun_training::{nn, ops};
pub use xrun_verdict as verdict;
pub use xrun_watch::command;

/// Pipelines, each a crate of its own.
pub mod pipelines {
    pub use xrun_core::pipelines::*;
    pub use xrun_training::leaks;
    pub use {
        xrun_federated_adapters as federated_adapters, xrun_fewshot_detection as fewshot_detection,
        xrun_image_classification as image_classification, xrun_qat_language_model as qat_language_model,
        xrun_vision_language as vision_language,
    };
}

/// Registers the built-in kinds for unit tests.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    Program::new().built_in().register();
}
