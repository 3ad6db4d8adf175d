//! Places on the axis of a series, in words.
//!
//! Inside, a place is an integer, whatever it counts. This is the one file that puts it into words.

use crate::units::seconds;

/// The unit of the places of a series.
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

/// A stretch of an axis by which rates are said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Per {
    /// Its length in places.
    pub places: f64,
    /// `a step`, `a minute`.
    pub words: &'static str,
}

const SECOND: f64 = 1e3;
const MINUTE: f64 = 60.0 * SECOND;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;

impl Axis {
    /// Returns the stretch by which rates are said where windows are this long. Of times it is the largest unit that
    /// fits into two windows: what is said to grow by so much in a minute was seen for many minutes.
    pub fn per(self, window: u64) -> Per {
        let per = |places, words| Per { places, words };
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

    /// A stretch of so many places: `58 steps`, `2.5 epochs`, `12 min 30 s`.
    pub fn length(self, places: f64) -> String {
        match self {
            Self::Steps => counted(places.round(), "", "step"),
            Self::Epochs => counted(places / 1e3, "", "epoch"),
            Self::Samples => counted(places / 1e3, "", "sample"),
            Self::Clock => span(places),
        }
    }

    /// A stretch that is still to come: `240 more steps`, `another 12 min 30 s`.
    pub fn more(self, places: f64) -> String {
        match self {
            Self::Steps => counted(places.round(), "more ", "step"),
            Self::Epochs => counted(places / 1e3, "more ", "epoch"),
            Self::Samples => counted(places / 1e3, "more ", "sample"),
            Self::Clock => format!("another {}", span(places)),
        }
    }

    /// A place, as it stands behind `since`: `step 300`, `epoch 2.5`, `12 min 30 s`.
    pub fn place(self, place: f64) -> String {
        match self {
            Self::Steps => format!("step {place:.0}"),
            Self::Epochs => format!("epoch {}", number(place / 1e3)),
            Self::Samples => format!("sample {}", number(place / 1e3)),
            Self::Clock => span(place),
        }
    }

    /// A range of places: `steps 0 to 150`, `0.0 s to 12 min 30 s`.
    pub fn between(self, first: f64, last: f64) -> String {
        match self {
            Self::Steps => format!("steps {first:.0} to {last:.0}"),
            Self::Epochs => format!("epochs {} to {}", number(first / 1e3), number(last / 1e3)),
            Self::Samples => format!("samples {} to {}", number(first / 1e3), number(last / 1e3)),
            Self::Clock => format!("{} to {}", span(first), span(last)),
        }
    }
}

fn counted(count: f64, more: &str, what: &str) -> String {
    let count = number(count);
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {more}{what}{plural}")
}

/// With one decimal where there is one.
fn number(count: f64) -> String {
    let text = format!("{count:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn span(milliseconds: f64) -> String {
    match milliseconds < 2.0 * DAY {
        true => seconds(milliseconds / SECOND),
        false => format!("{:.0} d {:02.0} h", (milliseconds / DAY).floor(), (milliseconds % DAY / HOUR).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_times_have_a_unit_that_was_seen_many_times() {
        let said = |window: f64| Axis::Clock.per(window as u64).words;
        assert_eq!(said(0.0), "a second");
        assert_eq!(said(29.0 * SECOND), "a second", "a trace of some 12 minutes");
        assert_eq!(said(30.0 * SECOND), "a minute");
        assert_eq!(said(HOUR), "an hour");
        assert_eq!(said(12.0 * HOUR), "a day");
        assert_eq!(Axis::Steps.per(1_000_000), Per { places: 1.0, words: "a step" });
    }

    #[test]
    fn each_axis_has_words_for_places_and_lengths() {
        assert_eq!(Axis::Steps.length(58.0), "58 steps");
        assert_eq!(Axis::Steps.more(1.2), "1 more step");
        assert_eq!(Axis::Steps.place(1e6), "step 1000000");
        assert_eq!(Axis::Epochs.length(2500.0), "2.5 epochs");
        assert_eq!(Axis::Epochs.place(20_000.0), "epoch 20");
        assert_eq!(Axis::Epochs.length(1000.0), "1 epoch");
        assert_eq!(Axis::Samples.more(40e3), "40 more samples");
        assert_eq!(Axis::Samples.between(0.0, 40e3), "samples 0 to 40");
        assert_eq!(Axis::Clock.place(750e3), "12 min 30 s");
        assert_eq!(Axis::Clock.more(7.5e3), "another 7.5 s");
        assert_eq!(Axis::Clock.length(3.0 * DAY + 5.5 * HOUR), "3 d 05 h");
        assert_eq!(Axis::Clock.between(0.0, 750e3), "0.0 s to 12 min 30 s");
    }
}
