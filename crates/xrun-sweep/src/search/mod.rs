//! Searches: sweeps whose trials, or their length, follow from results.
//!
//! `asha` and `tpe` are pure functions of results; `scheduler` reads these from the run directories.

pub mod asha;
pub mod progress;
pub mod proposals;
pub mod rungs;
pub mod scheduler;
pub mod tpe;

use crate::records::search::{Dimension, Method, Search};
use crate::records::sweep::Record;
use xrun_core::experiment::axes::{Axis, AxisValues};
use xrun_core::experiment::check_search;
use xrun_core::experiment::read_sweep::SweepFile;
use xrun_core::experiment::sweep;

/// The values of each key.
pub fn space(axes: &[Axis]) -> Vec<Dimension> {
    let of = |axis: &Axis| match &axis.values {
        AxisValues::List(list) => Dimension::Choice(list.iter().map(|swept| swept.value.clone()).collect()),
        AxisValues::Between(range) => Dimension::Between(range.numbers()),
    };
    axes.iter().map(of).collect()
}

/// The search of a sweep; `None` for a sweep that runs all its trials in any case. `rungs` are those of method `asha`.
pub fn of(family: &SweepFile, rungs: &[u64]) -> Option<Search> {
    let sweep = &family.sweep;
    let method = match sweep.method {
        sweep::Method::Grid | sweep::Method::Zip | sweep::Method::Random => return None,
        sweep::Method::Asha => Method::Asha { rungs: rungs.to_vec(), reduction_factor: sweep.asha.reduction_factor },
        sweep::Method::Tpe => Method::Tpe {
            startup: sweep.tpe.startup_trials,
            gamma: sweep.tpe.gamma,
            candidates: sweep.tpe.candidates,
            space: space(&family.axes),
        },
    };
    Some(Search {
        metric: sweep.metric.clone()?,
        better: check_search::better(&family.base, sweep)?,
        trials: sweep.trials?,
        method,
    })
}

/// Returns the sweep with all trials that are known before the first result. For `tpe` these are the random startup trials,
/// including those that are not proposed yet.
pub fn with_known_trials(record: &Record) -> Record {
    let Some(Search { method: Method::Tpe { startup, gamma, candidates, space }, trials: samples, .. }) =
        &record.search
    else {
        return record.clone();
    };
    let settings = tpe::Settings { seed: record.seed, startup: *startup, gamma: *gamma, candidates: *candidates };
    Record { points: tpe::startup_trials(space, settings, *samples, &record.points), ..record.clone() }
}
