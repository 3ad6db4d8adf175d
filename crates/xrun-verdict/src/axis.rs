//! Unit of a series' x axis, and the text of positions and lengths on it.
//!
//! A position is an integer in the axis's unit; no other file formats it.

use crate::units::seconds;

/// Unit of the positions of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Axis {
    /// Steps of a training.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "steps"))]
    Steps,
    /// Thousandths of an epoch, of a table that has no steps.
    #[cfg_attr(feature = "serde", serde(rename = "epoch_thousandths"))]
    Epochs,
    /// Thousandths of a sample, of a log with neither steps nor times.
    #[cfg_attr(feature = "serde", serde(rename = "sample_thousandths"))]
    Samples,
    /// Milliseconds since the first sample, of a log with times.
    #[cfg_attr(feature = "serde", serde(rename = "milliseconds"))]
    Clock,
}

/// Unit in which a rate is given: per step, per epoch, per minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateUnit {
    /// Length of the unit on the axis.
    pub length: f64,
    /// `a step`, `a minute`.
    pub text: &'static str,
}

const SECOND: f64 = 1e3;
const MINUTE: f64 = 60.0 * SECOND;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;

impl Axis {
    /// Returns the unit of rates for windows of this length on the axis. For times it is the largest unit that fits into
    /// two windows: a rate per minute is given only where many minutes were observed.
    pub fn rate_unit(self, window: u64) -> RateUnit {
        let per = |length, text| RateUnit { length, text };
        match self {
            Self::Steps => per(1.0, "a step"),
            Self::Epochs => per(1e3, "an epoch"),
            Self::Samples => per(1e3, "a sample"),
            Self::Clock => match 2.0 * window as f64 {
                DAY.. => per(DAY, "a day"),
                HOUR.. => per(HOUR, "an hour"),
                MINUTE.. => per(MINUTE, "a minute"),
                _ => per(SECOND, "a second"),
            },
        }
    }

    /// Length on the axis as text: `58 steps`, `2.5 epochs`, `12 min 30 s`.
    pub fn length(self, length: f64) -> String {
        match self {
            Self::Steps => count_text(length.round(), "", "step"),
            Self::Epochs => count_text(length / 1e3, "", "epoch"),
            Self::Samples => count_text(length / 1e3, "", "sample"),
            Self::Clock => duration(length),
        }
    }

    /// Length that is still to come, as text: `240 more steps`, `another 12 min 30 s`.
    pub fn more(self, length: f64) -> String {
        match self {
            Self::Steps => count_text(length.round(), "more ", "step"),
            Self::Epochs => count_text(length / 1e3, "more ", "epoch"),
            Self::Samples => count_text(length / 1e3, "more ", "sample"),
            Self::Clock => format!("another {}", duration(length)),
        }
    }

    /// Position as text, to follow `since`: `step 300`, `epoch 2.5`, `12 min 30 s`.
    pub fn position(self, position: f64) -> String {
        match self {
            Self::Steps => format!("step {position:.0}"),
            Self::Epochs => format!("epoch {}", number(position / 1e3)),
            Self::Samples => format!("sample {}", number(position / 1e3)),
            Self::Clock => duration(position),
        }
    }

    /// Range of positions as text: `steps 0 to 150`, `0.0 s to 12 min 30 s`.
    pub fn between(self, first: f64, last: f64) -> String {
        match self {
            Self::Steps => format!("steps {first:.0} to {last:.0}"),
            Self::Epochs => format!("epochs {} to {}", number(first / 1e3), number(last / 1e3)),
            Self::Samples => format!("samples {} to {}", number(first / 1e3), number(last / 1e3)),
            Self::Clock => format!("{} to {}", duration(first), duration(last)),
        }
    }
}

/// Count with its unit, singular or plural: `1 more step`, `2 more steps`.
fn count_text(count: f64, more: &str, unit: &str) -> String {
    let count = number(count);
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {more}{unit}{plural}")
}

/// Number with at most one decimal.
fn number(count: f64) -> String {
    let text = format!("{count:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn duration(milliseconds: f64) -> String {
    match milliseconds < 2.0 * DAY {
        true => seconds(milliseconds / SECOND),
        false => format!("{:.0} d {:02.0} h", (milliseconds / DAY).floor(), (milliseconds % DAY / HOUR).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_over_time_uses_the_largest_unit_that_fits_into_two_windows() {
        let unit = |window: f64| Axis::Clock.rate_unit(window as u64).text;
        assert_eq!(unit(0.0), "a second");
        assert_eq!(unit(29.0 * SECOND), "a second", "a trace of some 12 minutes");
        assert_eq!(unit(30.0 * SECOND), "a minute");
        assert_eq!(unit(HOUR), "an hour");
        assert_eq!(unit(12.0 * HOUR), "a day");
        assert_eq!(Axis::Steps.rate_unit(1_000_000), RateUnit { length: 1.0, text: "a step" });
    }

    #[test]
    fn each_axis_formats_positions_and_lengths_in_its_unit() {
        assert_eq!(Axis::Steps.length(58.0), "58 steps");
        assert_eq!(Axis::Steps.more(1.2), "1 more step");
        assert_eq!(Axis::Steps.position(1e6), "step 1000000");
        assert_eq!(Axis::Epochs.length(2500.0), "2.5 epochs");
        assert_eq!(Axis::Epochs.position(20_000.0), "epoch 20");
        assert_eq!(Axis::Epochs.length(1000.0), "1 epoch");
        assert_eq!(Axis::Samples.more(40e3), "40 more samples");
        assert_eq!(Axis::Samples.between(0.0, 40e3), "samples 0 to 40");
        assert_eq!(Axis::Clock.position(750e3), "12 min 30 s");
        assert_eq!(Axis::Clock.more(7.5e3), "another 7.5 s");
        assert_eq!(Axis::Clock.length(3.0 * DAY + 5.5 * HOUR), "3 d 05 h");
        assert_eq!(Axis::Clock.between(0.0, 750e3), "0.0 s to 12 min 30 s");
    }
}
