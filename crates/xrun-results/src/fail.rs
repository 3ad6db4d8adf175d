//! The verdicts with which a run fails.

use super::verdict::Judgement;
use xrun_core::settings::sections::FailOn;

/// Whether a run with this verdict fails.
pub fn fails(on: FailOn, verdict: Judgement) -> bool {
    match on {
        FailOn::Never => false,
        FailOn::Growing => verdict >= Judgement::Growing,
        FailOn::Retained => verdict >= Judgement::Retained,
        FailOn::Slowing => verdict >= Judgement::Slowing,
        FailOn::Suspect => verdict >= Judgement::Suspect,
    }
}
