//! What becomes of a panic, from a backend for instance? A message in place of a trace on the terminal.
//!
//! A backend panics on a thread of its own first, with the reason, and the thread that waited for it panics after that
//! with nothing but "the other side is gone". So the first panics are kept, not the last.

pub mod words;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once, PoisonError};

use words::Cause;

/// What the panics of this process said; a fixed number of bytes.
static SAID: Mutex<Said> = Mutex::new(Said::NOTHING);
static HOOK: Once = Once::new();
static LOGGER: Unheard = Unheard(&SAID);
const MESSAGE_CHARACTERS_MAX: usize = 16_000;
const MESSAGES_MAX: usize = 4;

struct Said {
    /// Counts what was done in between, so that a panic that was survived is not taken for the cause of a later one.
    step: u64,
    /// Whether something panicked in this step in a call that nobody waited for.
    unheard: bool,
    /// At most [`MESSAGES_MAX`], oldest first.
    messages: Vec<(u64, String)>,
}

/// From now on a panic is kept and not printed.
pub fn keep() {
    HOOK.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let text = payload(info.payload());
            let place = info.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
            let message = text.chars().take(MESSAGE_CHARACTERS_MAX).chain(place.chars()).collect();
            SAID.lock().unwrap_or_else(PoisonError::into_inner).add(message);
        }));
        if log::set_logger(&LOGGER).is_ok() {
            log::set_max_level(log::LevelFilter::Warn);
        }
    });
}

/// CubeCL logs the panic of a call that nobody waits for. Of others it tells the caller, as of ways of an operation that
/// panic while it is tuned.
struct Unheard(&'static Mutex<Said>);

impl log::Log for Unheard {
    fn enabled(&self, of: &log::Metadata<'_>) -> bool {
        of.target().starts_with("cubecl_common::device::handle")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && record.args().to_string().starts_with("CallError") {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).unheard = true;
        }
    }

    fn flush(&self) {}
}

impl Said {
    const NOTHING: Self = Self { step: 0, unheard: false, messages: Vec::new() };

    /// Those since the last step was done.
    fn newest(&self) -> Vec<String> {
        self.messages.iter().filter(|(at, _)| *at == self.step).map(|(_, text)| text.clone()).collect()
    }

    fn add(&mut self, message: String) {
        if self.messages.len() >= MESSAGES_MAX {
            // Those of this step are the ones that count, and the first of them most.
            match self.messages.iter().position(|(step, _)| *step < self.step) {
                Some(older) => drop(self.messages.remove(older)),
                None => return,
            }
        }
        self.messages.push((self.step, message));
    }

    fn end_step(&mut self) -> Option<Panic> {
        let messages = self.newest();
        self.step += 1;
        std::mem::take(&mut self.unheard).then_some(Panic { messages })
    }
}

/// A step is done. What panicked on another thread in it, in a call that nobody waited for; here it is, if anything did.
pub fn survived() -> Option<Panic> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).end_step()
}

/// What a panic says.
pub fn payload(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".into())
}

/// Runs `work`; a panic in it becomes an error with its message and place, and those of the panics that led to it.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|caught| {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        let mut messages = said.newest();
        said.messages.clear();
        if messages.is_empty() {
            messages.push(payload(caught.as_ref()));
        }
        Panic { messages }
    })
}

/// A panic that was caught, and those before it that it may come from. Shown as what people should read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    messages: Vec<String>,
}

impl Panic {
    /// An error of a backend that came as a value.
    pub fn told(message: impl Into<String>) -> Self {
        Self { messages: vec![message.into()] }
    }

    /// The message that says why: one that names the cause, or the first that is no consequence of another.
    fn first(&self) -> &str {
        let known = self.messages.iter().find(|said| words::cause(said) != Cause::Other);
        let first = known.or_else(|| self.messages.iter().find(|said| !words::is_consequence(said)));
        first.or(self.messages.first()).map_or("", String::as_str)
    }

    /// Why the backend failed, as far as what was said first tells.
    pub fn cause(&self) -> Cause {
        words::cause(self.first())
    }

    /// All that was said, in full: for the log.
    pub fn in_full(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().map(String::as_str)
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&words::short(self.first()))
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
    fn the_first_panic_is_the_reason_and_not_those_that_follow_from_it() {
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
    fn a_message_that_names_its_cause_comes_before_an_earlier_one_that_does_not() {
        let chain = panic_of(&[
            "Handle not found (storage.rs:1)",
            "called `Result::unwrap()` on an `Err` value: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory \
             access was encountered\") (fence.rs:83)",
        ]);
        assert_eq!(chain.cause(), Cause::Cuda("CUDA_ERROR_ILLEGAL_ADDRESS".into()));
    }

    #[test]
    fn only_the_panics_of_the_step_that_failed_count_and_few_are_kept() {
        let mut said = Said::NOTHING;
        said.add("survived".into());
        said.step = 1;
        for number in 0..2 * MESSAGES_MAX {
            said.add(format!("{number}"));
        }
        let kept: Vec<&str> = said.messages.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(kept, ["0", "1", "2", "3"]);
    }

    /// A device that computes nothing, on a thread of CubeCL's.
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
    fn a_panic_that_the_tuner_hears_of_ends_no_run_and_one_that_nobody_waits_for_does() {
        static HEARD: Mutex<Said> = Mutex::new(Said::NOTHING);
        static LOGGER: Unheard = Unheard(&HEARD);
        let step = |message: &str| {
            let mut heard = HEARD.lock().unwrap();
            heard.add(message.into());
            heard.end_step()
        };
        log::set_logger(&LOGGER).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let device = DeviceHandle::<Idle>::new(DeviceId { type_id: u16::MAX, index_id: 0 });
        // As the tuner measures a candidate, and as a candidate launches its kernels.
        assert!(device.exclusive(|| panic!("a candidate")).is_err());
        assert!(device.exclusive(|| device.submit(|_| panic!("a kernel of a candidate"))).is_err());
        assert_eq!(step("a candidate"), None);
        // As a step launches a kernel; the second call waits until the first is done.
        device.submit(|_| panic!("a kernel of a step"));
        assert!(device.exclusive(|| ()).is_ok());
        assert_eq!(step("a kernel of a step"), Some(panic_of(&["a kernel of a step"])));
        assert_eq!(step("a warning"), None, "it ends one run");
    }
}
