//! Exit codes of xrun.

use xrun_results::format::Outcome;

/// Exit code of an outcome, as in the table of docs/commands/README.md.
pub const fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Finished | Outcome::StoppedEarly => 0,
        Outcome::Failed => 1,
        Outcome::Diverged => 4,
        Outcome::MemoryLimit => 5,
        Outcome::MemoryGrew | Outcome::DidNotLearn => EXIT_VERDICT,
        Outcome::TimeLimit => 7,
        Outcome::Interrupted => 8,
        Outcome::Panicked => 70,
        // EX_TEMPFAIL of sysexits.h: to be tried again later.
        Outcome::Parked => 75,
    }
}

/// Exit code for an invalid file or command line.
pub const EXIT_BAD_INPUT: u8 = 2;
/// Exit code for an allocation that failed.
pub const EXIT_OUT_OF_MEMORY: u8 = exit_code(Outcome::MemoryLimit);
/// Exit code for a plan that needs more memory than available.
pub const EXIT_DOES_NOT_FIT: u8 = 3;
/// Exit code for a verdict that fails by `memory.fail_on`, `training.fail_on` or `--fail-on`.
pub const EXIT_VERDICT: u8 = 6;
/// Exit code for a panic outside of a run.
pub const EXIT_PANIC: u8 = exit_code(Outcome::Panicked);
