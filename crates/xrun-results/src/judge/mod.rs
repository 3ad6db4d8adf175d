//! Verdicts on recorded memory (of a run, of a watched command, or of another tool's trace) and on training.
//!
//! Series are judged by the crate `xrun-verdict`; this module converts records to its samples.

mod command;
mod live;
mod recording;
mod sample;
mod training;

pub use command::CommandJudge;
pub use live::LiveVerdict;
pub use recording::{VerdictError, add_damage, judge_path, judge_run, memory_context};
pub use sample::sample;
pub use training::{add_metrics, judge_training, training_context, training_end, training_fails};

use crate::verdict::VerdictWord;
use xrun_core::settings::sections::FailOn;

/// Returns `true` if a run with this verdict fails.
pub fn memory_fails(on: FailOn, verdict: VerdictWord) -> bool {
    match on {
        FailOn::Never => false,
        FailOn::Growing => verdict >= VerdictWord::Growing,
        FailOn::Retained => verdict >= VerdictWord::Retained,
        FailOn::Slowing => verdict >= VerdictWord::Slowing,
        FailOn::Suspect => verdict >= VerdictWord::Suspect,
    }
}

#[cfg(test)]
mod tests;
