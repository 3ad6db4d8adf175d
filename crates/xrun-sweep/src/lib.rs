//! One experiment for each of many values: which points, in which order, how far, and what came out?
//!
//! ```text
//! experiment::read_sweep   a file           -> Family     a base and its swept keys
//! points::points           Family           -> points     each a value for each key
//! plan::plan               points           -> plans      everything that is wrong is found before the first run
//! record::Record           what is to do    -> sweep.toml
//! resources::*                Record, probes   -> memory.toml  how much memory each point is given
//! conduct::conduct         Record, Launcher -> one run directory a point and repeat
//!   course or search       the directories  -> which run is next, and how far it goes
//!   or slurm::watch        Record, sbatch   -> the same, on a cluster; slurm::search where results decide
//! table::table             the directories  -> table.csv, table.json, report.html
//! ```
//! How far a sweep is stands in its run directories and nowhere else, so that no kill can make two records disagree.

pub mod compare;
pub mod launcher;
pub mod listing;
pub mod local;
pub mod measure;
pub mod page;
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
pub mod text;
pub mod trials;

/// Unit tests know the kinds of `xrun-core`.
#[cfg(test)]
#[ctor::ctor(unsafe)]
fn register() {
    xrun_core::pipelines::kinds().register();
}
