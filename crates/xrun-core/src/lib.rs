//! Types that data sets, pipelines and runs of xrun share: the experiment file and its checks, the traits of data sets,
//! pipelines and devices, bounded buffers, crash-safe files, the heap counter.
//!
//! It depends neither on Burn nor on a data set; verdicts and reports are in other crates.

#![warn(missing_docs)]

pub mod allocation_sampling;
pub mod bounded;
pub mod dataset;
pub mod device;
pub mod experiment;
pub mod files;
pub mod heap;
pub mod invocation;
pub mod panics;
pub mod pipelines;
pub mod printable;
pub mod problem;
pub mod seed;
pub mod settings;
pub mod task;
pub mod units;

#[cfg(test)]
count_heap!();

/// Registers this crate's own kinds before the first unit test.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    pipelines::register_kinds();
}
