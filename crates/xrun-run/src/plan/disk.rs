//! How much disk will a run take, and is there as much where its results go?

use std::path::{Path, PathBuf};

use super::{Plan, calendar};
use xrun_core::printable;
use xrun_core::units::Bytes;
use xrun_results::format::{DiskDemand, DiskForecast};

/// The key that says how many checkpoints are kept, and that of the samples.
const KEEP_LAST: &str = "checkpoint.keep_last";
const SAMPLE_EVERY: &str = "memory.every_steps";
const PATH_CHARACTERS_MAX: usize = 200;

/// What the run of this plan will take, by what its probe left. `None` where nobody knows how many steps there are, and of
/// a command, which writes where it likes.
pub fn forecast(plan: &Plan, probe: &DiskDemand) -> Option<DiskForecast> {
    if !plan.facts.steps_are_known || plan.experiment.command().is_some() {
        return None;
    }
    let validations = calendar::validations(plan);
    let kept = plan.experiment.checkpoint.keep_last as u64;
    let best = u64::from(plan.best_by().is_some() && validations > 0);
    // Of them all but the first replace one, and are whole before that goes.
    let written = calendar::checkpoints(plan) + if best > 0 { validations } else { 0 };
    let checkpoints = written.min(kept + best + 1).max(1);
    let samples = calendar::samples(plan).saturating_add(written);
    let metrics = plan.steps.saturating_add(validations);
    let trace = samples.saturating_mul(probe.sample).saturating_add(metrics.saturating_mul(probe.metrics_line));
    let in_all = checkpoints.saturating_mul(probe.checkpoint).saturating_add(trace).saturating_add(probe.rest);
    Some(DiskForecast { checkpoint: probe.checkpoint, checkpoints, trace, rest: probe.rest, in_all })
}

/// Whether it fits what is free, in a sentence, with the key that makes it less. `free` is `None` where nobody tells.
pub fn sentence(disk: &DiskForecast, free: Option<u64>, results: &Path, plan: &Plan) -> (bool, String) {
    let parts = format!(
        "{} at most {}, {} of trace and metrics, {} of the rest",
        if disk.checkpoints == 1 {
            "1 checkpoint of".to_owned()
        } else {
            format!("{} checkpoints of", disk.checkpoints)
        },
        Bytes(disk.checkpoint),
        Bytes(disk.trace),
        Bytes(disk.rest)
    );
    let needed = Bytes(disk.in_all);
    let place = printable::line(&results.display().to_string(), PATH_CHARACTERS_MAX);
    match free {
        None => (true, format!("disk: {needed} ({parts}); how much is free in {place} is not known")),
        Some(free) if disk.in_all <= free => {
            (true, format!("disk: {needed} ({parts}); {} are free in {place}", Bytes(free)))
        }
        Some(free) => {
            let advice = match key(disk, plan) {
                Some(KEEP_LAST) => format!("lower `{KEEP_LAST}`, or "),
                Some(key) => format!("raise `{key}`, or "),
                None => String::new(),
            };
            let said = format!(
                "does not fit the disk: {needed} are needed ({parts}) and {} are free in {place}; {advice}free some space, \
                 or name a folder on another disk with --results",
                Bytes(free)
            );
            (false, said)
        }
    }
}

/// The key of the part that is largest, where it can make that less.
fn key(disk: &DiskForecast, plan: &Plan) -> Option<&'static str> {
    let checkpoints = disk.checkpoints.saturating_mul(disk.checkpoint);
    match checkpoints >= disk.trace {
        true => (plan.experiment.checkpoint.keep_last > 1).then_some(KEEP_LAST),
        false => Some(SAMPLE_EVERY),
    }
}

/// Bytes that this user may still write in a folder, or where it will be made; `None` where the system does not tell. A
/// quota is not in it.
pub fn free(folder: &Path) -> Option<u64> {
    let folder = std::path::absolute(folder).ok()?;
    let there: PathBuf = folder.ancestors().find(|place| place.is_dir())?.to_path_buf();
    free_in(&there)
}

#[cfg(unix)]
fn free_in(folder: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut told = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a path that ends with NUL, and a place that lives until the call returns and is read only where it was filled.
    let told = unsafe {
        if libc::statvfs(path.as_ptr(), told.as_mut_ptr()) != 0 {
            return None;
        }
        told.assume_init()
    };
    // Some file systems count in blocks of no size.
    (told.f_frsize > 0 && told.f_blocks > 0).then(|| (told.f_bavail as u64).saturating_mul(told.f_frsize as u64))
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
    fn checkpoints_that_are_kept_and_the_one_that_is_being_written_count() {
        let of = |more: &str| {
            let plan = plan_of(&format!("[pipeline.dummy]\nsteps_per_epoch = 100\n{more}"));
            forecast(&plan, &probe()).unwrap()
        };
        // Saved at 50 and at the end; none is the best without validations.
        let plain =
            of("[validation]\nevery_epochs = 0\nat_start = false\n[checkpoint]\nevery_steps = 50\nkeep_last = 1\n");
        assert_eq!(plain.checkpoints, 2);
        let once = of("[validation]\nevery_epochs = 0\nat_start = false\n[checkpoint]\nevery_steps = 0\n");
        assert_eq!(once.checkpoints, 1, "nothing is replaced");
        let many = of("[validation]\nevery_steps = 10\n[checkpoint]\nevery_steps = 10\nkeep_last = 3\n");
        assert_eq!(many.checkpoints, 5, "three, the best, and one that is being written");
        assert_eq!(many.in_all, 50 * MIB + many.trace + 1000);
        assert!(many.trace > 100 * 700, "a sample and a line of metrics for each step: {many:?}");
    }

    #[test]
    fn what_does_not_fit_names_the_key_of_its_largest_part() {
        let plan = plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n[checkpoint]\nevery_steps = 10\nkeep_last = 3\n");
        let disk = forecast(&plan, &probe()).unwrap();
        let results = Path::new("results");
        let (fits, said) = sentence(&disk, Some(20 * MIB), results, &plan);
        assert!(!fits && said.contains("lower `checkpoint.keep_last`") && said.contains("20.0 MiB are free"), "{said}");
        let (fits, said) = sentence(&disk, Some(1 << 40), results, &plan);
        assert!(fits && said.starts_with("disk: ") && said.contains("5 checkpoints of at most 10.0 MiB"), "{said}");
        assert!(sentence(&disk, None, results, &plan).1.ends_with("is not known"));
        let long = forecast(&plan, &DiskDemand { checkpoint: 1, ..probe() }).unwrap();
        assert!(sentence(&long, Some(10), results, &plan).1.contains("raise `memory.every_steps`"));
        let one = plan_of("[pipeline.dummy]\n");
        let said = sentence(&forecast(&one, &probe()).unwrap(), Some(10), results, &one).1;
        assert!(!said.contains('`') && said.contains("free some space"), "no key makes it less: {said}");
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_that_is_not_made_yet_has_the_room_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free(&folder.path().join("a/b/c")).is_some_and(|bytes| bytes > 0));
    }
}
