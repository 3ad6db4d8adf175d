//! Verdicts on recorded memory: of a run, of a watched command, or of another tool's trace.
//!
//! Series are judged by the crate `xrun-verdict`; this module converts records to its samples.

mod command;
mod of_run;
mod sample;
mod so_far;

pub use command::Command;
pub use of_run::{VerdictError, context, of_path, of_run, of_samples, suspected_at};
pub use sample::sample;
pub use so_far::SoFar;

use crate::verdict::Judgement;
use xrun_core::settings::sections::FailOn;

/// Returns `true` if a run with this verdict fails.
pub fn fails(on: FailOn, verdict: Judgement) -> bool {
    match on {
        FailOn::Never => false,
        FailOn::Growing => verdict >= Judgement::Growing,
        FailOn::Retained => verdict >= Judgement::Retained,
        FailOn::Slowing => verdict >= Judgement::Slowing,
        FailOn::Suspect => verdict >= Judgement::Suspect,
    }
}

#[cfg(test)]
mod tests;
