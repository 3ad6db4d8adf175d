//! Why does a run end?

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use xrun_results::format::{Outcome, PlanFile, PostMortem, Summary};
use xrun_results::verdict::Verdict;

/// How a run ended, in words and as an exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// In a word.
    pub outcome: Outcome,
    /// In a sentence, for people.
    pub message: String,
    /// The data could not be used.
    pub of_data: bool,
}

impl Ending {
    /// An end and what is said of it.
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into(), of_data: false }
    }

    /// A run whose data could not be used; the message names the item.
    pub fn of_data(message: impl Into<String>) -> Self {
        Self { of_data: true, ..Self::new(Outcome::Failed, message) }
    }

    /// As the README lists them.
    pub fn exit_code(&self) -> u8 {
        exit_code(self.outcome)
    }
}

/// The end of a run, with the records that were made of it; `None` of what could not be made.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// How it ended.
    pub ending: Ending,
    /// `summary.json`.
    pub summary: Option<Summary>,
    /// `verdict.json`.
    pub verdict: Option<Verdict>,
    /// `plan.json`.
    pub plan: Option<PlanFile>,
    /// `post_mortem.json` of a run that a memory limit ended.
    pub post_mortem: Option<PostMortem>,
}

impl RunOutcome {
    /// A run that ended before anything was recorded.
    pub fn unrecorded(ending: Ending) -> Self {
        Self { ending, summary: None, verdict: None, plan: None, post_mortem: None }
    }
}

/// What the process exits with; the table in the README.
pub const fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Finished | Outcome::StoppedEarly => 0,
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
/// The system had no memory to give.
pub const EXIT_OUT_OF_MEMORY: u8 = exit_code(Outcome::MemoryLimit);
/// The plan needs more memory than there is.
pub const EXIT_DOES_NOT_FIT: u8 = 3;
/// Memory grows, and the file or the command line says that this fails.
pub const EXIT_VERDICT: u8 = 6;
/// A panic outside of a run.
pub const EXIT_PANIC: u8 = 70;

/// Signals that ask to stop. A second one of these ends the program at once.
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// The signal that asks to stop because the terminal is gone; `None` where whoever started the program had it ignored, as
/// `nohup` does. It never counts as a second signal: a shell that ends sends it to its jobs, and the kernel does so once more.
pub fn hang_up() -> Option<i32> {
    static HEARD: OnceLock<Option<i32>> = OnceLock::new();
    *HEARD.get_or_init(|| (!is_ignored(SIGHUP)).then_some(SIGHUP))
}

#[cfg(unix)]
fn is_ignored(number: i32) -> bool {
    // SAFETY: all zeros are a `sigaction`; the call only reads what is set, and writes to a place that lives until it returns.
    unsafe {
        let mut set: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &mut set) == 0 && set.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(not(unix))]
fn is_ignored(_: i32) -> bool {
    false
}

/// Set by SIGUSR1: a checkpoint is asked for.
static SAVE: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on SIGUSR1 asks for a checkpoint, and no longer ends the program.
///
/// # Errors
/// The system does not let signals be handled.
pub fn listen_for_saves() -> std::io::Result<()> {
    static LISTENS: Mutex<bool> = Mutex::new(false);
    let mut listens = LISTENS.lock().unwrap_or_else(PoisonError::into_inner);
    if !*listens {
        signal_hook::flag::register(SIGUSR1, SAVE.clone())?;
        *listens = true;
    }
    Ok(())
}

/// Whether these signals have their usual effect, which is the end of the process. There once somebody has listened for a
/// while: whoever stops listening cannot give a signal its usual effect back, only act as it would.
static USUAL: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Listens until it is dropped: then signals have the effect again that they had before.
#[derive(Debug)]
pub struct ForAWhile {
    signal: StopSignal,
    usual: Arc<AtomicBool>,
    usual_before: bool,
    heard_by: Vec<SigId>,
}

impl ForAWhile {
    /// Hears of signals from now on, until it is dropped.
    ///
    /// # Errors
    /// The system does not let signals be handled.
    pub fn listen() -> std::io::Result<Self> {
        let mut known = USUAL.lock().unwrap_or_else(PoisonError::into_inner);
        let usual = match known.as_ref() {
            Some(usual) => usual.clone(),
            None => {
                // Nobody has listened for a while before, but somebody may listen for good.
                let usual = Arc::new(AtomicBool::new(!LISTENS.load(Relaxed)));
                for number in SIGNALS.into_iter().chain(hang_up()) {
                    signal_hook::flag::register_conditional_default(number, usual.clone())?;
                }
                known.insert(usual).clone()
            }
        };
        let mut this = Self {
            signal: StopSignal::default(),
            usual_before: usual.load(Relaxed),
            usual,
            heard_by: Vec::with_capacity(SIGNALS.len() + 1),
        };
        for number in SIGNALS.into_iter().chain(hang_up()) {
            this.heard_by.push(signal_hook::flag::register(number, this.signal.0.clone())?);
        }
        this.usual.store(false, Relaxed);
        Ok(this)
    }

    /// Whether there was a signal.
    pub fn raised(&self) -> bool {
        self.signal.raised()
    }
}

impl Drop for ForAWhile {
    fn drop(&mut self) {
        self.usual.store(self.usual_before, Relaxed);
        for id in self.heard_by.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Whether somebody listens for good.
static LISTENS: AtomicBool = AtomicBool::new(false);

/// Set by the first SIGINT, SIGTERM or SIGHUP.
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
        LISTENS.store(true, Relaxed);
        if let Some(usual) = USUAL.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            usual.store(false, Relaxed);
        }
        let first = Arc::new(AtomicBool::new(false));
        for number in SIGNALS {
            // In this order: the second signal finds the flag set and shuts down.
            signal_hook::flag::register_conditional_shutdown(number, 128 + number, first.clone())?;
            signal_hook::flag::register(number, first.clone())?;
        }
        for number in SIGNALS.into_iter().chain(hang_up()) {
            say_at(number, words, &signal.0)?;
            signal_hook::flag::register(number, signal.0.clone())?;
        }
        listen_for_saves()?;
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

    /// Whether SIGUSR1 has asked for a checkpoint since the last call.
    pub fn takes_save() -> bool {
        SAVE.swap(false, Relaxed)
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
