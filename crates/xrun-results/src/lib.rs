//! The directory of a run: records, reading, verdicts, reports and exports.

#![warn(missing_docs)]

pub mod allocations;
pub mod build_info;
pub mod checkpoint_use;
pub mod command_line;
pub mod demand;
pub mod durations;
pub mod environment;
pub mod evaluation;
pub mod event_file;
pub mod explanation;
pub mod export;
pub mod format;
pub mod git;
pub mod index;
mod index_file;
pub mod judge;
pub mod log;
pub mod loss;
pub mod metrics_comparison;
pub mod noise;
pub mod notes;
mod outcome;
pub mod prediction;
pub mod process;
pub mod proof;
pub mod read;
pub mod report;
pub mod reproduction;
pub mod resolved;
pub mod run_name;
pub mod run_state;
pub mod sample;
pub mod secrets;
pub mod selection;
pub mod state;
pub mod tail;
pub mod timestamp;
pub mod trust;
pub mod view;
pub mod watched;

/// Verdict types, as in `verdict.json`.
pub mod verdict {
    pub use xrun_verdict::names::{FOOTPRINT, OWNER_PREFIX};
    pub use xrun_verdict::training::{TrainingVerdict, TrainingVerdictWord};
    pub use xrun_verdict::{
        Findings, LineDamage, ProcessOfRun, SeriesVerdict, Tone, UnjudgedColumn, Verdict, VerdictWord,
    };
}

/// Axis of a series and its unit.
pub mod axis {
    pub use xrun_verdict::{Axis, RateUnit};
}
