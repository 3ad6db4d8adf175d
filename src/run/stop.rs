//! Why does a run end?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::results::format::Outcome;

/// How a run ended, in words and as an exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub outcome: Outcome,
    pub message: String,
}

impl Ending {
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into() }
    }

    pub fn exit_code(&self) -> u8 {
        exit_code(self.outcome)
    }
}

/// What the process exits with; the table in the README.
pub const fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Finished => 0,
        Outcome::Failed => 1,
        Outcome::Diverged => 4,
        Outcome::MemoryLimit => 5,
        Outcome::MemoryGrew => EXIT_VERDICT,
        Outcome::TimeLimit => 7,
        Outcome::Interrupted => 8,
        Outcome::Panicked => 70,
    }
}

/// The file or the command line is wrong.
pub const EXIT_BAD_INPUT: u8 = 2;
/// The plan needs more memory than there is.
pub const EXIT_DOES_NOT_FIT: u8 = 3;
/// Memory grows, and the file or the command line says that this fails.
pub const EXIT_VERDICT: u8 = 6;
/// A panic outside of a run.
pub const EXIT_PANIC: u8 = 70;

/// Set by the first SIGINT or SIGTERM.
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// From now on the first signal asks to stop in good order and the second one stops at once.
    pub fn listen() -> std::io::Result<Self> {
        Self::listen_and_say("")
    }

    /// As [`Self::listen`]; the first signal is answered at once with these words on standard error, whatever goes on:
    /// the loop sees it only after the step or the validation.
    pub fn listen_and_say(words: &'static str) -> std::io::Result<Self> {
        let signal = Self::default();
        for number in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order: the second signal finds the flag set and shuts down.
            signal_hook::flag::register_conditional_shutdown(number, 128 + number, signal.0.clone())?;
            say_at(number, words, &signal.0)?;
            signal_hook::flag::register(number, signal.0.clone())?;
        }
        Ok(signal)
    }

    /// Signals end the program as they end any other: for whoever trains from code.
    pub fn never() -> Self {
        Self::default()
    }

    /// Whether there was a signal.
    pub fn raised(&self) -> bool {
        self.0.load(Relaxed)
    }
}

#[cfg(unix)]
fn say_at(number: i32, words: &'static str, raised: &Arc<AtomicBool>) -> std::io::Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    let raised = raised.clone();
    let say = move || {
        if !raised.load(Relaxed) {
            // SAFETY: the words live as long as the program. A line that cannot be written is not missed.
            unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
        }
    };
    // SAFETY: it reads an atomic and calls write(2); a signal handler may do both.
    unsafe { signal_hook::low_level::register(number, say) }.map(|_| ())
}

#[cfg(not(unix))]
fn say_at(_: i32, _: &'static str, _: &Arc<AtomicBool>) -> std::io::Result<()> {
    Ok(())
}
