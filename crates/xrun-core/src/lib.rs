//! The parts that data sets, pipelines and runs of xrun share: experiments and what may stand in them, kinds, bounded buffers, files that
//! survive a kill, the heap.
//!
//! It knows neither Burn nor a data set, and a verdict or a report is none of its business.

#![warn(missing_docs)]

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

/// Unit tests know the kinds of this crate.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    pipelines::kinds().register();
}
