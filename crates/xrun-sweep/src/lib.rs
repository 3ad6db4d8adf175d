//! Sweeps: an experiment once for each of many values, their order, their length, and their results.
//!
//! ```text
//! experiment::read_sweep   a file                -> Family       a base and its swept keys
//! trials::trials           Family                -> trials       a value for each key
//! plan::plan               trials                -> plans        every mistake is found before the first run
//! record::SweepRecord      plans                 -> sweep.toml
//! resources::*             SweepRecord, probes   -> memory.toml  the memory of each trial
//! schedule::schedule       Scheduler, Launcher   -> a run directory for each trial and repeat, and processes.jsonl
//!   scheduler::Scheduler   the run directories   -> the next run, and its last step: list, asha, tpe
//!   launcher::Launcher     a run                 -> its process (local::Local) or job (slurm::launcher::SlurmLauncher)
//! table::table             the run directories   -> table.csv, table.json, report.html
//! ```
//! The progress of a sweep is in its run directories and nowhere else, so that no kill can make two records disagree.

pub mod conclusion;
pub mod journal;
pub mod kubernetes;
pub mod launcher;
pub mod listing;
pub mod local;
pub mod measure;
pub mod page;
mod pareto;
pub mod plan;
pub mod record;
pub mod records;
pub mod resources;
pub mod run_status;
pub mod schedule;
pub mod scheduler;
pub mod search;
pub mod slurm;
pub mod table;
pub mod table_files;
pub mod text;
pub mod trials;

/// Unit tests know the kinds of `xrun-core`.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    xrun_core::pipelines::register_kinds();
}
