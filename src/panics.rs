//! What becomes of a panic, from a backend for instance? A message in place of a trace on the terminal.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once, PoisonError};

/// Where and why the last panic of this process was; a fixed number of bytes.
static LAST: Mutex<Option<String>> = Mutex::new(None);
static HOOK: Once = Once::new();
const MESSAGE_BYTES_MAX: usize = 4000;

/// From now on a panic is kept and not printed.
pub fn keep() {
    HOOK.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let text = payload(info.payload());
            let place = info.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
            let message: String = format!("{text}{place}").chars().take(MESSAGE_BYTES_MAX).collect();
            *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
        }));
    });
}

/// What a panic says.
pub fn payload(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".into())
}

/// Runs `work`; a panic in it becomes an error with its message and place.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|caught| {
        let kept = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.unwrap_or_else(|| payload(caught.as_ref()))
    })
}
