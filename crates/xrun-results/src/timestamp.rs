//! Times as records have them.

use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};

/// The time of the clock; its beginning, 1970, where it is set to an earlier time, as on boards without a battery.
pub fn time() -> DateTime<Utc> {
    SystemTime::now().max(SystemTime::UNIX_EPOCH).into()
}

/// RFC 3339, UTC, to the second.
pub fn now() -> String {
    time().to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Seconds since 1970 of a time as records have it; `None` of text that is none.
pub fn seconds_of(time: &str) -> Option<f64> {
    Some(DateTime::parse_from_rfc3339(time).ok()?.timestamp_millis() as f64 / 1000.0)
}
