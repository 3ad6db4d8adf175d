//! Rules of other tools, written from their descriptions. Each says whether a series grows.
//!
//! They get parsed bytes, so a log that has to be read first costs them nothing, and they judge all processes of a run as one series.

mod end_above_start;
mod line;
mod mann_kendall;
mod precog;
mod stormlog;
mod traceml;

use super::series::Sample;

/// Rule of another tool.
pub struct Rival {
    pub name: &'static str,
    /// Returns whether the rule reports growth.
    pub grows: fn(&[Sample]) -> bool,
}

pub const RIVALS: [Rival; 6] = [
    Rival { name: "TraceML-like", grows: traceml::grows },
    Rival { name: "Stormlog-like", grows: stormlog::grows },
    Rival { name: "Precog-like", grows: precog::grows },
    Rival { name: "end > 1.1 start", grows: end_above_start::grows },
    Rival { name: "end > 1.1 start, after 5 %", grows: end_above_start::grows_after_warm_up },
    Rival { name: "Mann-Kendall, p < 0.01", grows: mann_kendall::grows },
];
