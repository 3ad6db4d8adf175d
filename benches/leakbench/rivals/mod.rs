//! Rules of other tools. Each says whether a series grows. Those of a version are written from the source of its wheel, and
//! `check.py` compares them with the wheel's own function; Precog's is written from its description.
//!
//! They get parsed bytes, so a log that has to be read first costs them nothing, and they judge all processes of a run as one series.

mod end_above_start;
mod line;
mod mann_kendall;
mod precog;
mod python_leak_hunter;
mod runmedic;
mod stormlog;
mod traceml;

use super::series::Sample;

/// Rule of another tool.
pub struct Rival {
    pub name: &'static str,
    /// Returns whether the rule reports growth.
    pub grows: fn(&[Sample]) -> bool,
}

pub const RIVALS: [Rival; 9] = [
    Rival { name: "TraceML 0.5.0, confirmed", grows: traceml::grows_surely },
    Rival { name: "TraceML 0.5.0, early or confirmed", grows: traceml::grows },
    Rival { name: "Stormlog 0.4.3", grows: stormlog::grows },
    Rival { name: "runmedic 0.1.1", grows: runmedic::grows },
    Rival { name: "python-leak-hunter 0.1.1", grows: python_leak_hunter::grows },
    Rival { name: "Precog-like", grows: precog::grows },
    Rival { name: "end > 1.1 start", grows: end_above_start::grows },
    Rival { name: "end > 1.1 start, after 5 %", grows: end_above_start::grows_after_warm_up },
    Rival { name: "Mann-Kendall, p < 0.01", grows: mann_kendall::grows },
];
