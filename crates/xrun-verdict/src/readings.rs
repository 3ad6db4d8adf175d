//! Readings of a series that are not its memory: gaps, dips, the time after the process ended, wrapped counters.
//!
//! A monitor that gets no answer writes 0, and one that outlives the process goes on at 0. Window minima would follow both, so they
//! are left out. Two lots of windows are kept: those of all readings, and those of the readings that are the process's memory. The
//! former are judged where the low readings are too many to be exceptions.

use crate::window_minima::{WindowSeries, Windows};

/// Part of the level below which readings are none of a living process, for as long as they last.
const GONE: f64 = 1.0 / 8.0;
/// Distance below the level from which on at most [`DIP_MAX`] readings are a dip if the next is at the level again, as a part of the
/// level and in mean moves: a sum that lacks a process.
const DIP: (f64, f64) = (0.02, 6.0);
/// Part of a dip that a reading must recover to end it.
const DIP_END: f64 = 0.75;
/// Cap on the readings of a dip.
const DIP_MAX: usize = 3;
/// Newest moves of which a mean is.
const MOVES: usize = 32;
/// Readings that the level is the minimum of.
const LEVEL: usize = 4;
/// One of this number of readings at most may be left out before the end.
const RARE: u64 = 16;
/// The readings after the process ended are at most one of this number.
const TAIL: u64 = 3;
/// Low readings after which, where they are most readings, they are the series.
const NEW_LEVEL: u64 = 64;
/// Value at which a counter of 32 bits begins again.
const WRAP: f64 = 4_294_967_296.0;

/// Series of readings, with its windows. Memory is bounded, however long the series is.
#[derive(Clone, Debug)]
pub struct Readings {
    all: Windows,
    kept: Windows,
    count: u64,
    /// Newest values that were kept, of which the minimum is the level.
    level: Level,
    /// Readings that may be a dip.
    dip: Vec<(u64, f64)>,
    /// Readings in gaps and dips before the newest kept one.
    left_out: u64,
    /// Readings since the memory fell to nearly nothing, and the step of the last one before.
    gone: Option<(u64, u64)>,
    counter: Counter,
}

/// Readings that were left out of a judgement, or changed for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of readings in gaps and dips.
    pub readings: u64,
    /// Last step before the process ended, where the series goes on after it.
    pub ended: Option<u64>,
    /// Number of times that a 32-bit counter began again.
    pub wraps: u32,
}

impl Readings {
    /// Series without readings; see [`Windows::new`].
    pub fn new(settled: u64) -> Self {
        Self {
            all: Windows::new(settled),
            kept: Windows::new(settled),
            count: 0,
            level: Level::default(),
            dip: Vec::with_capacity(DIP_MAX),
            left_out: 0,
            gone: None,
            counter: Counter::default(),
        }
    }

    /// Adds a reading; steps must not fall. `may_vanish` says that low values are readings of memory, too: a buffer may be empty.
    pub fn add(&mut self, step: u64, value: f64, may_vanish: bool) {
        let value = if may_vanish { value } else { self.counter.unwrapped(value) };
        self.all.add(step, value);
        self.count += 1;
        if may_vanish {
            return;
        }
        let level = self.level.get();
        if value < GONE * level {
            self.keep_dip();
            let (readings, _) = self.gone.get_or_insert((0, self.kept.newest()));
            *readings += 1;
            if *readings > NEW_LEVEL && *readings * 2 > self.count {
                self.accept_low_level();
            }
            return;
        }
        self.left_out += self.gone.take().map_or(0, |(readings, _)| readings);
        let depth = (DIP.0 * level).max(DIP.1 * self.level.moves);
        if value < level - depth && self.dip.len() < DIP_MAX {
            return self.dip.push((step, value));
        }
        let lowest = self.dip.iter().map(|(_, value)| *value).fold(level, f64::min);
        if value >= lowest + DIP_END * (level - lowest) {
            self.left_out += self.dip.len() as u64;
            self.dip.clear();
        }
        self.keep_dip();
        self.keep(step, value);
    }

    /// Window minima to be judged, and the readings that they leave out.
    pub fn minima(&self) -> (WindowSeries, LeftOut) {
        let wraps = self.counter.wraps;
        let gone = self.gone.map_or(0, |(readings, _)| readings);
        if (gone == 0 && self.left_out == 0) || self.left_out * RARE > self.count || gone * TAIL > self.count {
            return (self.all.minima(), LeftOut { wraps, ..LeftOut::default() });
        }
        let ended = self.gone.map(|(_, step)| step);
        (self.kept.minima(), LeftOut { readings: self.left_out, ended, wraps })
    }

    /// Steps in a window at present.
    pub fn length(&self) -> u64 {
        self.all.length()
    }

    fn keep(&mut self, step: u64, value: f64) {
        self.kept.add(step, value);
        self.level.add(value);
    }

    fn keep_dip(&mut self) {
        for (step, value) in std::mem::take(&mut self.dip) {
            self.keep(step, value);
        }
    }

    /// Judges all readings: what seemed to be a gap is most of the series.
    fn accept_low_level(&mut self) {
        self.kept = self.all.clone();
        (self.level, self.left_out, self.gone) = (Level::default(), 0, None);
    }
}

/// Newest values of a series; a spike upwards does not raise their minimum.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    values: [f64; LEVEL],
    count: usize,
    /// Mean size of the newest moves.
    moves: f64,
}

impl Level {
    fn add(&mut self, value: f64) {
        if let Some(before) = self.count.checked_sub(1) {
            let moved = (value - self.values[before % LEVEL]).abs();
            self.moves += (moved - self.moves) / self.count.min(MOVES) as f64;
        }
        self.values[self.count % LEVEL] = value;
        self.count += 1;
    }

    fn get(&self) -> f64 {
        self.values.iter().take(self.count).copied().reduce(f64::min).unwrap_or_default()
    }
}

/// Counter that may have 32 bits: it falls from nearly 4 GiB to nearly 0, by no more than it moves otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    newest: f64,
    /// Mean size of the newest moves.
    moves: f64,
    count: u64,
    offset: f64,
    wraps: u32,
    /// A value was above 4 GiB.
    is_wider: bool,
}

impl Counter {
    fn unwrapped(&mut self, value: f64) -> f64 {
        // A gap in the readings says nothing about the counter.
        if value <= 0.0 {
            return value;
        }
        self.is_wider |= value >= WRAP;
        let before = self.newest;
        if !self.is_wider && self.count > 8 {
            let shift = [WRAP, -WRAP].into_iter().find(|shift| {
                let moved = (value + self.offset + shift - before).abs();
                moved < 0.06 * WRAP && moved <= 8.0 * self.moves && self.offset + shift >= 0.0
            });
            self.offset += shift.unwrap_or_default();
            self.wraps += u32::from(shift.is_some_and(|shift| shift > 0.0));
        }
        self.newest = value + self.offset;
        self.count += 1;
        if self.count > 1 {
            let moved = (self.newest - before).abs();
            self.moves += (moved - self.moves) / (self.count - 1).min(MOVES as u64) as f64;
        }
        self.newest
    }
}
