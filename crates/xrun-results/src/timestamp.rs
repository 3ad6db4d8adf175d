//! Time stamps of records.

use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};

/// Current time; 1970 if the clock is set earlier, as on boards without a battery.
pub fn time() -> DateTime<Utc> {
    SystemTime::now().max(SystemTime::UNIX_EPOCH).into()
}

/// Current time as RFC 3339, UTC, to the second.
pub fn now() -> String {
    time().to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Seconds since 1970 of an RFC 3339 time; `None` for other text.
pub fn seconds_of(time: &str) -> Option<f64> {
    Some(DateTime::parse_from_rfc3339(time).ok()?.timestamp_millis() as f64 / 1000.0)
}
