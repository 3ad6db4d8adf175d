//! Disk space that a run will use, compared with the free space.

use std::path::Path;

use super::{Plan, calendar};
use xrun_core::printable;
use xrun_core::units::{Bytes, pluralize};
use xrun_results::format::{DiskDemand, DiskForecast};

/// Keys that set the number of checkpoints and of samples.
const KEEP_LAST: &str = "checkpoint.keep_last";
const SAMPLE_EVERY: &str = "memory.every_steps";
const PATH_CHARACTERS_MAX: usize = 200;

/// Forecasts the disk space of a run from that of its probe. `None` if the number of steps is unknown, and for a command, whose
/// files are unknown.
pub fn forecast(plan: &Plan, probe: &DiskDemand) -> Option<DiskForecast> {
    if !plan.facts.steps_are_known || plan.experiment.command().is_some() {
        return None;
    }
    let validations = calendar::validations(plan);
    let keep_last = plan.experiment.checkpoint.keep_last as u64;
    let best = u64::from(plan.best_by().is_some() && validations > 0);
    // A new checkpoint is complete before the one that it replaces is removed.
    let written = calendar::checkpoints(plan) + if best > 0 { validations } else { 0 };
    let checkpoints = written.min(keep_last + best + 1).max(1);
    let samples = calendar::samples(plan).saturating_add(written);
    let metrics = plan.steps.saturating_add(validations);
    let trace = samples.saturating_mul(probe.sample).saturating_add(metrics.saturating_mul(probe.metrics_line));
    let total = checkpoints.saturating_mul(probe.checkpoint).saturating_add(trace).saturating_add(probe.rest);
    Some(DiskForecast { checkpoint: probe.checkpoint, checkpoints, trace, rest: probe.rest, total })
}

/// Returns whether the forecast fits the free space, with a message that names the key that reduces it. `free` is `None` if
/// unknown.
pub fn message(disk: &DiskForecast, free: Option<u64>, results: &Path, plan: &Plan) -> (bool, String) {
    let parts = format!(
        "{} of at most {}, trace and metrics {}, other files {}",
        pluralize(disk.checkpoints, "checkpoint"),
        Bytes(disk.checkpoint),
        Bytes(disk.trace),
        Bytes(disk.rest)
    );
    let needed = Bytes(disk.total);
    let results = printable::line(&results.display().to_string(), PATH_CHARACTERS_MAX);
    match free {
        None => (true, format!("disk: {needed} ({parts}); free space in {results} unknown")),
        Some(free) if disk.total <= free => {
            (true, format!("disk: {needed} ({parts}); {} free in {results}", Bytes(free)))
        }
        Some(free) => {
            let advice = match key(disk, plan) {
                Some(KEEP_LAST) => format!("lower `{KEEP_LAST}`, or "),
                Some(key) => format!("raise `{key}`, or "),
                None => String::new(),
            };
            let message = format!(
                "does not fit the disk: needs {needed} ({parts}), {} free in {results}; {advice}free some space, or choose \
                 another disk with --results",
                Bytes(free)
            );
            (false, message)
        }
    }
}

/// Key that reduces the largest part, if there is one.
fn key(disk: &DiskForecast, plan: &Plan) -> Option<&'static str> {
    let checkpoints = disk.checkpoints.saturating_mul(disk.checkpoint);
    match checkpoints >= disk.trace {
        true => (plan.experiment.checkpoint.keep_last > 1).then_some(KEEP_LAST),
        false => Some(SAMPLE_EVERY),
    }
}

/// Free bytes for this user on the disk of a directory, which need not exist yet; `None` if the system does not report them.
/// Quotas are not considered.
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let directory = std::path::absolute(directory).ok()?;
    free_in(directory.ancestors().find(|path| path.is_dir())?)
}

#[cfg(unix)]
fn free_in(directory: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes()).ok()?;
    let mut stats = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with NUL, and the buffer outlives the call and is read only after it was filled.
    let stats = unsafe {
        if libc::statvfs(path.as_ptr(), stats.as_mut_ptr()) != 0 {
            return None;
        }
        stats.assume_init()
    };
    // Some file systems report a block size of 0.
    (stats.f_frsize > 0 && stats.f_blocks > 0).then(|| (stats.f_bavail as u64).saturating_mul(stats.f_frsize as u64))
}

#[cfg(not(unix))]
fn free_in(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;

    const MIB: u64 = 1 << 20;

    fn probe() -> DiskDemand {
        DiskDemand { checkpoint: 10 * MIB, sample: 500, metrics_line: 200, rest: 1000 }
    }

    #[test]
    fn kept_checkpoints_and_the_one_being_written_count() {
        let of = |more: &str| {
            let plan = plan_of(&format!("[pipeline.dummy]\nsteps_per_epoch = 100\n{more}"));
            forecast(&plan, &probe()).unwrap()
        };
        // Saved at step 50 and at the end; without validations there is no best checkpoint.
        let plain =
            of("[validation]\nevery_epochs = 0\nat_start = false\n[checkpoint]\nevery_steps = 50\nkeep_last = 1\n");
        assert_eq!(plain.checkpoints, 2);
        let once = of("[validation]\nevery_epochs = 0\nat_start = false\n[checkpoint]\nevery_steps = 0\n");
        assert_eq!(once.checkpoints, 1, "nothing is replaced");
        let many = of("[validation]\nevery_steps = 10\n[checkpoint]\nevery_steps = 10\nkeep_last = 3\n");
        assert_eq!(many.checkpoints, 5, "the last three, the best, and the one being written");
        assert_eq!(many.total, 50 * MIB + many.trace + 1000);
        assert!(many.trace > 100 * 700, "a sample and a line of metrics for each step: {many:?}");
    }

    #[test]
    fn a_forecast_that_does_not_fit_names_the_key_of_its_largest_part() {
        let plan = plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n[checkpoint]\nevery_steps = 10\nkeep_last = 3\n");
        let disk = forecast(&plan, &probe()).unwrap();
        let results = Path::new("results");
        let fits = [Some(20 * MIB), Some(1 << 40), None].map(|free| message(&disk, free, results, &plan).0);
        assert_eq!(fits, [false, true, true]);
        assert_eq!(key(&disk, &plan), Some(KEEP_LAST));
        let long = forecast(&plan, &DiskDemand { checkpoint: 1, ..probe() }).unwrap();
        assert_eq!(key(&long, &plan), Some(SAMPLE_EVERY));
        let one = plan_of("[pipeline.dummy]\n");
        assert_eq!(key(&forecast(&one, &probe()).unwrap(), &one), None, "no key reduces it");
    }

    #[test]
    fn the_message_has_parts_free_space_and_advice() {
        let plan = plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n[checkpoint]\nevery_steps = 10\nkeep_last = 3\n");
        let disk = DiskForecast { trace: 2 * MIB, total: 53 * MIB, rest: MIB, checkpoint: 10 * MIB, checkpoints: 5 };
        let said =
            [Some(20 * MIB), Some(1 << 40), None].map(|free| message(&disk, free, Path::new("results"), &plan).1);
        insta::assert_snapshot!(said.join("\n"), @"
        does not fit the disk: needs 53.0 MiB (5 checkpoints of at most 10.0 MiB, trace and metrics 2.0 MiB, other files 1.0 MiB), 20.0 MiB free in results; lower `checkpoint.keep_last`, or free some space, or choose another disk with --results
        disk: 53.0 MiB (5 checkpoints of at most 10.0 MiB, trace and metrics 2.0 MiB, other files 1.0 MiB); 1.0 TiB free in results
        disk: 53.0 MiB (5 checkpoints of at most 10.0 MiB, trace and metrics 2.0 MiB, other files 1.0 MiB); free space in results unknown
        ");
    }

    #[test]
    #[cfg(unix)]
    fn a_directory_that_does_not_exist_yet_has_the_free_space_of_its_parent() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_bytes(&directory.path().join("a/b/c")).is_some_and(|bytes| bytes > 0));
    }
}
