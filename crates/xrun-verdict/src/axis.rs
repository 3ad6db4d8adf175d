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
    /// Name of a unit that is counted, and its length on the axis; `None` of times.
    fn counted(self) -> Option<(&'static str, f64)> {
        match self {
            Self::Steps => Some(("step", 1.0)),
            Self::Epochs => Some(("epoch", 1e3)),
            Self::Samples => Some(("sample", 1e3)),
            Self::Clock => None,
        }
    }

    /// Number of units, with at most one decimal; steps are whole.
    fn number(self, length: f64) -> String {
        let text = match self.counted() {
            Some((_, unit)) if unit > 1.0 => format!("{:.1}", length / unit),
            _ => length.round().to_string(),
        };
        text.strip_suffix(".0").unwrap_or(&text).to_owned()
    }

    /// Returns the unit of rates for windows of this length on the axis. For times it is the largest unit that fits into
    /// two windows: a rate per minute is given only where many minutes were observed.
    pub fn rate_unit(self, window: u64) -> RateUnit {
        let (length, text) = match (self, 2.0 * window as f64) {
            (Self::Steps, _) => (1.0, "a step"),
            (Self::Epochs, _) => (1e3, "an epoch"),
            (Self::Samples, _) => (1e3, "a sample"),
            (Self::Clock, DAY..) => (DAY, "a day"),
            (Self::Clock, HOUR..) => (HOUR, "an hour"),
            (Self::Clock, MINUTE..) => (MINUTE, "a minute"),
            (Self::Clock, _) => (SECOND, "a second"),
        };
        RateUnit { length, text }
    }

    /// Length on the axis as text: `58 steps`, `2.5 epochs`, `12 min 30 s`.
    pub fn length(self, length: f64) -> String {
        self.count_text(length, "").unwrap_or_else(|| duration(length))
    }

    /// Length that is still to come, as text: `240 more steps`, `another 12 min 30 s`.
    pub fn more(self, length: f64) -> String {
        self.count_text(length, "more ").unwrap_or_else(|| format!("another {}", duration(length)))
    }

    /// Count with its unit, singular or plural: `1 more step`, `2 more steps`.
    fn count_text(self, length: f64, more: &str) -> Option<String> {
        let ((unit, _), count) = (self.counted()?, self.number(length));
        let plural = if count == "1" { "" } else { "s" };
        Some(format!("{count} {more}{unit}{plural}"))
    }

    /// Position as text, to follow `since`: `step 300`, `epoch 2.5`, `12 min 30 s`.
    pub fn position(self, position: f64) -> String {
        self.counted().map_or_else(|| duration(position), |(unit, _)| format!("{unit} {}", self.number(position)))
    }

    /// Range of positions as text: `steps 0 to 150`, `0.0 s to 12 min 30 s`.
    pub fn between(self, first: f64, last: f64) -> String {
        match self.counted() {
            Some((unit, _)) => format!("{unit}s {} to {}", self.number(first), self.number(last)),
            None => format!("{} to {}", duration(first), duration(last)),
        }
    }
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
