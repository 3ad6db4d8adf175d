//! Conversion of panics, of a backend for instance, into errors with a message.
//!
//! A backend panics on a thread of its own first, with the reason; then the thread that waits for it panics with a channel
//! error. So the first panics of a step are recorded, not the last.

pub mod messages;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once, PoisonError};

use messages::Cause;

/// Recent panics of this process; bounded in size.
static RECORDED: Mutex<Recorded> = Mutex::new(Recorded::NONE);
static HOOK: Once = Once::new();
static LOGGER: DetachedPanicLogger = DetachedPanicLogger(&RECORDED);
const MESSAGE_CHARACTERS_MAX: usize = 16_000;
const MESSAGES_MAX: usize = 4;

struct Recorded {
    /// Number of completed steps, so that a survived panic is not taken for the cause of a later one.
    step: u64,
    /// `true` if a call without a waiting caller panicked in this step.
    detached: bool,
    /// Step and message of each panic, the oldest first; at most [`MESSAGES_MAX`].
    messages: Vec<(u64, String)>,
}

/// Installs the panic hook: panics are recorded instead of printed.
pub fn install_hook() {
    HOOK.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let text = payload(info.payload());
            let location = info.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
            let message = text.chars().take(MESSAGE_CHARACTERS_MAX).chain(location.chars()).collect();
            RECORDED.lock().unwrap_or_else(PoisonError::into_inner).add(message);
        }));
        if log::set_logger(&LOGGER).is_ok() {
            log::set_max_level(log::LevelFilter::Warn);
        }
    });
}

/// Detects panics in calls without a waiting caller, which CubeCL only logs. All others reach the caller as errors.
struct DetachedPanicLogger(&'static Mutex<Recorded>);

impl log::Log for DetachedPanicLogger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("cubecl_common::device::handle")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && record.args().to_string().starts_with("CallError") {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).detached = true;
        }
    }

    fn flush(&self) {}
}

impl Recorded {
    const NONE: Self = Self { step: 0, detached: false, messages: Vec::new() };

    /// Messages of the current step.
    fn of_this_step(&self) -> Vec<String> {
        self.messages.iter().filter(|(at, _)| *at == self.step).map(|(_, text)| text.clone()).collect()
    }

    fn add(&mut self, message: String) {
        if self.messages.len() >= MESSAGES_MAX {
            // The first messages of the current step take precedence.
            match self.messages.iter().position(|(step, _)| *step < self.step) {
                Some(older) => drop(self.messages.remove(older)),
                None => return,
            }
        }
        self.messages.push((self.step, message));
    }

    fn end_step(&mut self) -> Option<Panic> {
        let messages = self.of_this_step();
        self.step += 1;
        std::mem::take(&mut self.detached).then_some(Panic { messages })
    }
}

/// Ends a step. Returns the panics of the step if one of them was in a call without a waiting caller, which no error
/// reports.
pub fn end_step() -> Option<Panic> {
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner).end_step()
}

/// Message of a panic's payload.
pub fn payload(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".into())
}

/// Runs `work` and returns a panic in it as an error, with the panics that led to it.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|caught| {
        let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut messages = recorded.of_this_step();
        recorded.messages.clear();
        if messages.is_empty() {
            messages.push(payload(caught.as_ref()));
        }
        Panic { messages }
    })
}

/// A caught panic with those before it that may have caused it. Displays as a short human-readable message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    messages: Vec<String>,
}

impl Panic {
    /// A failure of a backend that was returned as a value.
    pub fn from_message(message: impl Into<String>) -> Self {
        Self { messages: vec![message.into()] }
    }

    /// Message with the reason: one with a known cause, or the first that is not a consequence of another.
    fn reason(&self) -> &str {
        let known = self.messages.iter().find(|message| messages::cause(message) != Cause::Other);
        let first = known.or_else(|| self.messages.iter().find(|message| !messages::is_consequence(message)));
        first.or(self.messages.first()).map_or("", String::as_str)
    }

    /// Cause of the failure, as far as the messages tell.
    pub fn cause(&self) -> Cause {
        messages::cause(self.reason())
    }

    /// All messages in full, for the log.
    pub fn in_full(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().map(String::as_str)
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&messages::short(self.reason()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle};
    use cubecl_common::device_handle::DeviceHandle;

    use super::*;

    fn panic_of(messages: &[&str]) -> Panic {
        Panic { messages: messages.iter().map(|text| (*text).to_owned()).collect() }
    }

    #[test]
    fn the_first_panic_is_the_reason_and_not_its_consequences() {
        let chain = panic_of(&[
            "CUDA installation not found. (lib.rs:22)",
            "called `Result::unwrap()` on an `Err` value: CallError (burn-fusion/src/client.rs:346)",
        ]);
        assert_eq!(chain.to_string(), "CUDA installation not found. (lib.rs:22)");
        let only =
            panic_of(&["called `Result::unwrap()` on an `Err` value: CallError (burn-fusion/src/client.rs:346)"]);
        assert_eq!(only.to_string(), "CallError (burn-fusion/src/client.rs:346)");
    }

    #[test]
    fn a_message_with_a_known_cause_takes_precedence() {
        let chain = panic_of(&[
            "Handle not found (storage.rs:1)",
            "called `Result::unwrap()` on an `Err` value: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory \
             access was encountered\") (fence.rs:83)",
        ]);
        assert_eq!(chain.cause(), Cause::Cuda("CUDA_ERROR_ILLEGAL_ADDRESS".into()));
    }

    #[test]
    fn the_first_panics_of_the_failed_step_are_recorded() {
        let mut recorded = Recorded::NONE;
        recorded.add("survived".into());
        recorded.step = 1;
        for number in 0..2 * MESSAGES_MAX {
            recorded.add(format!("{number}"));
        }
        let messages: Vec<&str> = recorded.messages.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(messages, ["0", "1", "2", "3"]);
    }

    /// A device that computes nothing, on a thread of CubeCL.
    struct Idle;

    impl DeviceService for Idle {
        fn init(_: DeviceId) -> Self {
            Self
        }

        fn utilities(&self) -> ServerUtilitiesHandle {
            Arc::new(())
        }
    }

    #[test]
    fn a_panic_without_a_waiting_caller_ends_the_run_and_one_that_reaches_its_caller_does_not() {
        static RECORDED: Mutex<Recorded> = Mutex::new(Recorded::NONE);
        static LOGGER: DetachedPanicLogger = DetachedPanicLogger(&RECORDED);
        let step = |message: &str| {
            let mut recorded = RECORDED.lock().unwrap();
            recorded.add(message.into());
            recorded.end_step()
        };
        log::set_logger(&LOGGER).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let device = DeviceHandle::<Idle>::new(DeviceId { type_id: u16::MAX, index_id: 0 });
        // A caller that waits, and what it launches.
        assert!(device.exclusive(|| panic!("a call that is waited for")).is_err());
        assert!(device.exclusive(|| device.submit(|_| panic!("a kernel that is waited for"))).is_err());
        assert_eq!(step("a call that is waited for"), None);
        // A step launches a kernel; the second call waits until the first is done.
        device.submit(|_| panic!("a kernel of a step"));
        assert!(device.exclusive(|| ()).is_ok());
        assert_eq!(step("a kernel of a step"), Some(panic_of(&["a kernel of a step"])));
        assert_eq!(step("a warning"), None, "a panic is reported once");
    }
}
