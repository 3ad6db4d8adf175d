//! Sampling of allocations for some steps, once in a process, after growth of the heap was suspected.

use xrun_core::allocation_sampling::{self, Frame, Site};
use xrun_results::allocations::{AllocationRecord, AllocationSite};
use xrun_results::format::VERSION;

/// Number of steps that are sampled.
const STEPS: u64 = 64;
/// Number of steps after which an allocation counts if it is alive: what the next steps replace is gone by then.
const AGE: u64 = 32;
/// Maximum number of call stacks in the record.
const SITES_MAX: usize = 12;
/// Maximum number of functions of a call stack in the record.
const STACK_MAX: usize = 24;

/// Crates whose functions allocate for their callers.
const LIBRARIES: [&str; 23] = [
    "alloc",
    "backtrace",
    "bridge",
    "burn",
    "bytemuck",
    "core",
    "crossbeam",
    "cubecl",
    "cubek",
    "gemm",
    "hashbrown",
    "indexmap",
    "macerator",
    "matrixmultiply",
    "ndarray",
    "rayon",
    "serde",
    "smallvec",
    "std",
    "xrun_core::allocation_sampling",
    "xrun_core::bounded",
    "xrun_core::heap",
    "xrun_core::panics",
];

/// Crates of kernels: named only if no function of a pipeline is in the stack, as in a thread of the pool.
const KERNELS: [&str; 1] = ["xrun_ops"];
/// Crates of the runner, whose buffers all have a cap: what they keep is no leak.
const RUNNER: [&str; 3] = ["xrun_results", "xrun_run", "xrun_verdict"];

/// Window of sampled steps.
#[derive(Debug, Default)]
pub enum AllocationWindow {
    /// Growth was not suspected yet.
    #[default]
    Before,
    /// Allocations are sampled.
    Open {
        /// Step after which sampling began.
        first: u64,
        /// Growth of the heap when it was suspected, in bytes per step.
        growth: Option<f64>,
        /// True if an earlier window named no function: by chance, no allocation of a small leak was sampled.
        is_second: bool,
    },
    /// It has ended, or never begins: further windows would cost again.
    Closed,
}

impl AllocationWindow {
    /// Begins to sample after this step, unless it was done before.
    pub fn open(&mut self, step: u64, growth: impl FnOnce() -> Option<f64>) {
        if matches!(self, Self::Before) {
            allocation_sampling::start();
            *self = Self::Open { first: step, growth: growth(), is_second: false };
        }
    }

    /// Notes the end of a step; returns the record at the end of the window. `is_last` ends it early.
    pub fn step_done(&mut self, step: u64, is_last: bool) -> Option<AllocationRecord> {
        let Self::Open { first, growth, is_second } = *self else { return None };
        allocation_sampling::next_step();
        let steps = step - first;
        if steps < STEPS && !is_last {
            return None;
        }
        let age = AGE.min(steps / 2);
        let sites = allocation_sampling::stop(age, 4 * SITES_MAX);
        let counted = (steps - age).max(1) as f64;
        let record = AllocationRecord {
            version: VERSION,
            step: first,
            steps,
            age,
            growth,
            sites: sites.iter().filter_map(|site| recorded(site, counted)).take(SITES_MAX).collect(),
        };
        *self = if record.function().is_none() && !is_second && !is_last {
            allocation_sampling::start();
            Self::Open { first: step, growth, is_second: true }
        } else {
            Self::Closed
        };
        Some(record)
    }
}

impl Drop for AllocationWindow {
    fn drop(&mut self) {
        if matches!(self, Self::Open { .. }) {
            allocation_sampling::stop(0, 0);
        }
    }
}

/// Record of a call stack; `None` for the runner's own buffers.
fn recorded(site: &Site, steps: f64) -> Option<AllocationSite> {
    let of_pipeline = |frame: &&Frame| !is_of_library(&frame.function) && !is_of(&KERNELS, &frame.function);
    let of_kernel = |frame: &&Frame| is_of(&KERNELS, &frame.function);
    let find = |is: &dyn Fn(&&Frame) -> bool| site.frames.iter().find(|frame| is(frame));
    let own = match find(&of_pipeline) {
        Some(frame) if is_of(&RUNNER, &frame.function) => {
            // The loop of the runner is in every stack: below a kernel, the pipeline was inlined or has no symbols.
            find(&of_kernel)?
        }
        Some(frame) => frame,
        None => find(&of_kernel).or(site.frames.first())?,
    };
    let line = |frame: &Frame| frame.line.as_ref().map(|(file, line)| format!("{file}:{line}"));
    Some(AllocationSite {
        function: own.function.clone(),
        line: line(own),
        bytes_per_step: site.bytes / steps,
        allocations_per_step: site.allocations / steps,
        samples: site.samples,
        stack: site.frames.iter().take(STACK_MAX).map(|frame| frame.function.clone()).collect(),
    })
}

/// Returns whether a function is of a library. Functions of C, such as `start_thread`, have no crate.
fn is_of_library(function: &str) -> bool {
    is_of(&LIBRARIES, function) || (!function.contains("::") && function != "main")
}

/// Returns whether a function is of one of these crates: by the beginning of its name, after `<` of an implementation.
fn is_of(crates: &[&str], function: &str) -> bool {
    let name = function.trim_start_matches(['<', '&', '_']);
    crates.iter().any(|one| name.starts_with(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_libraries_are_told_by_their_crate() {
        for library in [
            "alloc::vec::Vec<T>::push",
            "<burn_flex::ops as burn::Op>::add",
            "__rust_alloc",
            "rayon_core::join",
            "start_thread",
        ] {
            assert!(is_of_library(library), "{library}");
        }
        for own in ["xrun_fewshot_detection::leaks::callbacks::copied", "<my_pipeline::Net as X>::forward", "main"] {
            assert!(!is_of_library(own), "{own}");
        }
    }

    #[test]
    fn a_window_ends_with_the_run_and_opens_once() {
        let mut window = AllocationWindow::default();
        assert_eq!(window.step_done(1, false), None);
        window.open(10, || Some(64.0));
        assert_eq!(window.step_done(11, false), None);
        let record = window.step_done(12, true).unwrap();
        assert_eq!((record.step, record.steps, record.age), (10, 2, 1));
        window.open(20, || None);
        assert_eq!(window.step_done(21, true), None);
    }
}
