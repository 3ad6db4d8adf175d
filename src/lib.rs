//! xrun: a declarative experiment runner in which every buffer is bounded and memory is a result.
//!
//! ```text
//! experiments/stage2.toml
//!    | experiment::read     text, layers     -> Experiment      every value known, each with its origin
//!    | plan::resolve        Experiment       -> Plan            every buffer has an owner, a cap and bytes
//!    | Prepared::open       Experiment, Device -> Box<dyn Task>  a thing that can step, validate, save, load
//!    | run::train           Task             -> events          the main flow, top to bottom, one file
//!    | results::write       events           -> results/<experiment>/<run>/
//!    v report               a directory      -> text, JSON, HTML
//! ```
//! Arrows go one way. `docs/architecture.md` says more, and who may import whom.

#![warn(missing_docs)]

pub(crate) mod cli;
pub mod program;
pub mod schemas;

pub use program::Program;
pub use xrun_core::{
    bounded, count_heap, dataset, device, experiment, files, heap, invocation, leak, panics, printable, problem, seed,
    settings, task, units,
};
pub use xrun_data as data;
#[cfg(feature = "train")]
pub use xrun_pipelines::nn;
pub use xrun_pipelines::{backend, metrics};
pub use xrun_results::{self as results, export, judge, report};
pub use xrun_run::{self as run, plan, probe};
pub use xrun_sweep as sweep;
pub use xrun_verdict as verdict;
pub use xrun_watch::{child, command, directory, host, killed, memory, stop};

/// Pipelines, each in its folder.
pub mod pipelines {
    pub use xrun_core::pipelines::*;
    pub use xrun_pipelines::{federated_adapters, fewshot_detection, leaks, qat_language_model, vision_language};
}

/// Unit tests know the kinds that xrun brings.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    Program::new().built_in().register();
}
