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

pub mod backend;
pub mod bounded;
pub mod child;
pub(crate) mod cli;
pub(crate) mod command;
pub mod data;
pub mod device;
pub mod experiment;
pub mod export;
pub mod files;
pub mod heap;
pub mod invocation;
pub mod memory;
pub mod metrics;
#[cfg(feature = "train")]
pub mod nn;
pub mod panics;
pub mod pipelines;
pub mod plan;
pub mod printable;
pub mod probe;
pub mod problem;
pub mod program;
pub mod report;
pub mod results;
pub mod run;
pub mod schemas;
pub mod seed;
pub mod settings;
pub mod sweep;
pub mod task;
pub mod units;
pub mod verdict;

pub use program::Program;

/// Counts the heap: see [`heap`].
#[global_allocator]
static ALLOCATOR: heap::CountingAllocator = heap::CountingAllocator;
