//! Tones of outcomes and verdicts.

use crate::format::Outcome;
use crate::index::RunState;
use crate::verdict::VerdictWord;

/// Colour of a badge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// In order.
    Good,
    /// Not decided, or still going on.
    Busy,
    /// A problem.
    Bad,
}

impl Tone {
    /// Class of the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Bad => "bad",
        }
    }
}

/// Tone of the state of a run.
pub fn outcome_tone(state: &RunState) -> Tone {
    match state {
        RunState::Ended(Outcome::Finished | Outcome::StoppedEarly) => Tone::Good,
        RunState::Running | RunState::Ended(Outcome::Interrupted | Outcome::TimeLimit) => Tone::Busy,
        _ => Tone::Bad,
    }
}

/// Word and tone of a verdict on memory.
pub fn memory_badge(verdict: VerdictWord) -> (&'static str, Tone) {
    match verdict {
        VerdictWord::Bounded => ("memory bounded", Tone::Good),
        VerdictWord::Stepped | VerdictWord::GrewThenFlat => ("memory bounded after a rise", Tone::Good),
        VerdictWord::NoGrowthFound => ("no memory growth found", Tone::Good),
        VerdictWord::Filling => ("memory fills buffers", Tone::Busy),
        VerdictWord::Inconclusive => ("memory not decided", Tone::Busy),
        VerdictWord::Suspect => ("memory may grow", Tone::Busy),
        VerdictWord::Slowing => ("memory still rises", Tone::Bad),
        VerdictWord::Retained => ("memory is not released", Tone::Bad),
        VerdictWord::Growing => ("memory grows", Tone::Bad),
        VerdictWord::Exceeded => ("memory exceeds its bound", Tone::Bad),
    }
}
