//! End of a run: outcome, and the signals that stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::SigId;
use signal_hook::consts::{SIGBUS, SIGHUP, SIGINT, SIGQUIT, SIGSEGV, SIGTERM, SIGTSTP, SIGUSR1, SIGXCPU, SIGXFSZ};

use crate::exit::exit_code;
use xrun_results::format::Outcome;
use xrun_results::view::RunView;

/// Outcome of a run, with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Outcome.
    pub outcome: Outcome,
    /// Message, for people.
    pub message: String,
    /// True if the data could not be used.
    pub is_data_error: bool,
    /// True if a step did not fit, and a rung of `limits.on_pressure` was taken for it: a resume in a new process repeats it.
    pub retries: bool,
}

impl Ending {
    /// End with an outcome and a message.
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into(), is_data_error: false, retries: false }
    }

    /// End of a run whose data could not be used; the message names the item.
    pub fn data_error(message: impl Into<String>) -> Self {
        Self { is_data_error: true, ..Self::new(Outcome::Failed, message) }
    }

    /// Exit code of the outcome.
    pub fn exit_code(&self) -> u8 {
        exit_code(self.outcome)
    }
}

/// End of a run with its records.
#[derive(Debug)]
pub struct RunOutcome {
    /// Outcome and message.
    pub ending: Ending,
    /// The run, with the records that its process has written.
    pub run: RunView,
}

/// Signals that request a stop; a second one ends the program immediately.
pub const STOP_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGQUIT];

/// Time in which another SIGTERM is the same request: `timeout`, for one, sends it to a process, and then to its group.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Returns whether a signal requests nothing new, given the time since the first one that requested a stop.
pub fn is_same_request(signal: i32, since_first: Duration) -> bool {
    signal == SIGTERM && since_first < SAME_REQUEST
}

/// Milliseconds of the system's monotonic clock, at least 1. Async-signal-safe.
fn milliseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000).max(1)
}

/// Signals that request a stop and never count as a second one: SIGHUP, which both the shell and the kernel send when the
/// terminal closes, SIGXCPU, which the kernel repeats each second, and SIGUSR1, the usual one of `sbatch --signal`. Without those that were ignored at the start, as
/// SIGHUP is under `nohup`.
pub fn repeated_signals() -> impl Iterator<Item = i32> {
    static SIGNALS: LazyLock<Vec<i32>> =
        LazyLock::new(|| [SIGHUP, SIGXCPU, SIGUSR1].into_iter().filter(|number| !is_ignored(*number)).collect());
    SIGNALS.iter().copied()
}

/// Has a write beyond the limit on the size of files (`ulimit -f`) fail with EFBIG, where SIGXFSZ would end the program. It is
/// handled and not ignored, because children would inherit the latter.
pub fn fail_writes_at_size_limit() {
    if !is_ignored(SIGXFSZ) {
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Has SIGSEGV and SIGBUS from another process end this one. Rust's handler, which is called first and reports a stack
/// overflow, only resets the action otherwise, since a fault of this process would happen again.
pub fn end_on_sent_faults() {
    for number in [SIGSEGV, SIGBUS] {
        // SAFETY: a handler may make the first two calls. All zeros are a valid `sigaction`, which outlives the others.
        unsafe {
            let _ = signal_hook_registry::register_signal_unchecked(number, move || {
                libc::signal(number, libc::SIG_DFL);
                libc::raise(number);
            });
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(number, std::ptr::null(), &mut action);
            // A stack that has overflown has no place for a handler.
            action.sa_flags |= libc::SA_ONSTACK;
            libc::sigaction(number, &action, std::ptr::null_mut());
        }
    }
}

/// Stops this process as SIGTSTP does without a handler, until SIGCONT. Where no shell could continue it, the kernel does not
/// stop it.
pub fn suspend() {
    // SAFETY: all zeros are a `sigaction` with the default action and an empty mask; all places outlive the calls.
    unsafe {
        let (default, mut before) = std::mem::zeroed::<(libc::sigaction, libc::sigaction)>();
        libc::sigaction(SIGTSTP, &default, &mut before);
        libc::raise(SIGTSTP);
        libc::sigaction(SIGTSTP, &before, std::ptr::null_mut());
    }
}

/// Returns whether this process ignores a signal.
pub fn is_ignored(number: i32) -> bool {
    // SAFETY: all zeros are a valid `sigaction`, which outlives the call; without a new action the call only reads.
    unsafe {
        let mut set: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &mut set) == 0 && set.sa_sigaction == libc::SIG_IGN
    }
}

/// True if the signals have their default action, which ends the process. `None` before the first [`ScopedStopSignal`]: a removed
/// handler does not restore the default action, so a permanent one emulates it.
static DEFAULT_ACTION: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Stop signal with a scope: when it is dropped, signals have their previous action again.
#[derive(Debug)]
pub struct ScopedStopSignal {
    signal: StopSignal,
    default_action: Arc<AtomicBool>,
    default_action_before: bool,
    handlers: Vec<SigId>,
}

impl ScopedStopSignal {
    /// Installs the handlers.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn listen() -> std::io::Result<Self> {
        let mut known = DEFAULT_ACTION.lock().unwrap_or_else(PoisonError::into_inner);
        let default_action = match known.as_ref() {
            Some(default_action) => default_action.clone(),
            None => {
                // A permanent `StopSignal` has replaced the default action.
                let default_action = Arc::new(AtomicBool::new(!PERMANENT.load(Relaxed)));
                for number in STOP_SIGNALS.into_iter().chain(repeated_signals()) {
                    signal_hook::flag::register_conditional_default(number, default_action.clone())?;
                }
                known.insert(default_action).clone()
            }
        };
        let mut this = Self {
            signal: StopSignal::default(),
            default_action_before: default_action.load(Relaxed),
            default_action,
            handlers: Vec::new(),
        };
        for number in STOP_SIGNALS.into_iter().chain(repeated_signals()) {
            this.handlers.push(signal_hook::flag::register(number, this.signal.0.clone())?);
        }
        this.default_action.store(false, Relaxed);
        Ok(this)
    }

    /// Returns whether there was a signal.
    pub fn raised(&self) -> bool {
        self.signal.raised()
    }
}

impl Drop for ScopedStopSignal {
    fn drop(&mut self) {
        self.default_action.store(self.default_action_before, Relaxed);
        for id in self.handlers.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// True if a [`StopSignal`] is installed.
static PERMANENT: AtomicBool = AtomicBool::new(false);

/// Flag that is set by the first signal that requests a stop.
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// Installs the handlers: the first signal requests a stop, the second one ends the program immediately.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn listen() -> std::io::Result<Self> {
        Self::listen_with_message("")
    }

    /// As [`Self::listen`], and the first signal writes a message to standard error at once; the loop sees the flag only after
    /// the current step or validation.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn listen_with_message(message: &'static str) -> std::io::Result<Self> {
        let signal = Self::default();
        PERMANENT.store(true, Relaxed);
        if let Some(default_action) = DEFAULT_ACTION.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            default_action.store(false, Relaxed);
        }
        let first = Arc::new(AtomicU64::new(0));
        for number in STOP_SIGNALS {
            let first = first.clone();
            let end_at_second = move || {
                let now = milliseconds();
                if let Err(before) = first.compare_exchange(0, now, Relaxed, Relaxed)
                    && !is_same_request(number, Duration::from_millis(now.saturating_sub(before)))
                {
                    signal_hook::low_level::exit(128 + number);
                }
            };
            // SAFETY: the handler reads a clock and an atomic, and ends the process; all are async-signal-safe.
            unsafe { signal_hook::low_level::register(number, end_at_second) }?;
        }
        for number in STOP_SIGNALS.into_iter().chain(repeated_signals()) {
            write_on_signal(number, message, &signal.0)?;
            signal_hook::flag::register(number, signal.0.clone())?;
        }
        Ok(signal)
    }

    /// Flag that is never set, for programs that train from code: signals keep their default action.
    pub fn never() -> Self {
        Self::default()
    }

    /// Returns whether there was a signal.
    pub fn raised(&self) -> bool {
        self.0.load(Relaxed)
    }
}

fn write_on_signal(number: i32, message: &'static str, raised: &Arc<AtomicBool>) -> std::io::Result<()> {
    if message.is_empty() {
        return Ok(());
    }
    let raised = raised.clone();
    let write = move || {
        if !raised.load(Relaxed) {
            // SAFETY: the message is static. A failed write is ignored.
            unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
        }
    };
    // SAFETY: the handler reads an atomic and calls write(2); both are async-signal-safe.
    unsafe { signal_hook::low_level::register(number, write) }.map(|_| ())
}
