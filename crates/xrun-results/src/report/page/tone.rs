//! Tones of outcomes.

use crate::format::Outcome;
use crate::run_state::RunState;
use crate::verdict::Tone;

/// Tone of the state of a run.
pub fn outcome_tone(state: &RunState) -> Tone {
    match state {
        RunState::Ended(Outcome::Finished | Outcome::StoppedEarly) => Tone::Good,
        RunState::Running | RunState::Ended(Outcome::Interrupted | Outcome::TimeLimit) => Tone::Busy,
        _ => Tone::Bad,
    }
}
