//! Thresholds of a judgement.

/// Thresholds of the unit of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Growth over the run from which on a series counts as growing.
    pub growth_min: f64,
    /// Change between two windows from which on it counts as a move.
    pub move_min: f64,
}

impl Thresholds {
    /// Thresholds by the growth that counts, of which a move is a thirty-second part.
    pub const fn of_growth(growth_min: f64) -> Self {
        Self { growth_min, move_min: growth_min / 32.0 }
    }
}

/// Thresholds of bytes: 16 MiB over the run, half a MiB between windows.
pub const BYTES: Thresholds = Thresholds::of_growth(16.0 * 1024.0 * 1024.0);
/// Thresholds of counts: 16 over the run; between windows more than half, by which any change is a move.
pub const COUNT: Thresholds = Thresholds { growth_min: 16.0, move_min: 0.5 };
/// Smallest number of windows that allows a verdict.
pub const WINDOWS_NEEDED: usize = 8;
/// Smallest number of steps that allows a verdict, however often they were sampled: in its first steps a process still
/// sets itself up.
pub const STEPS_NEEDED: u64 = 90;
/// Half width of a 99.9 % interval in standard errors.
pub const Z: f64 = 3.29;
