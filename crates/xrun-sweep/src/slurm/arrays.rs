//! The job arrays of a sweep. A cluster limits the tasks of one (`MaxArraySize`).
//!
//! The order of the sweep is cut into blocks; the run at the start of a block is task 0 of its array. The name of a job
//! has the start of its block: the queue alone identifies the run of a task.

use std::path::Path;

use xrun_core::dataset::digest::digest;

/// Largest number of arrays: each is a name in every question to the queue.
pub const ARRAYS_MAX: usize = 100;

/// The arrays of a sweep.
#[derive(Clone, Debug)]
pub struct Arrays {
    /// Name of the first block; the names of the others have their start.
    name: String,
    runs: usize,
    /// Number of runs in a block.
    size: usize,
}

/// The name of the sweep's directory, for a script and a list with commas. In a directory that was renamed, other characters
/// are replaced, and a digest keeps the names different.
fn job_name(directory: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match directory.chars().all(plain) {
        true => directory.to_owned(),
        false => {
            let name: String = directory.chars().map(|c| if plain(c) { c } else { '_' }).collect();
            format!("{name}_{}", &digest(directory.as_bytes())[..8])
        }
    }
}

impl Arrays {
    /// Arrays of a sweep. `size` is the largest number of tasks in one array; `None` when it is not known.
    pub fn new(sweep: &Path, runs: usize, size: Option<u32>) -> Self {
        let name = format!("xrun_{}", job_name(&sweep.file_name().unwrap_or_default().to_string_lossy()));
        let size = size.map_or(runs, |size| size as usize).max(1);
        Self { name, runs, size }
    }

    /// The arrays of jobs of a search that stop after this step; `None` is the end of their runs.
    pub fn going_to(mut self, until: Option<u64>) -> Self {
        let until = until.map_or_else(|| "end".to_owned(), |step| step.to_string());
        self.name.push_str(&format!("_to_{until}"));
        self
    }

    /// The name of the job whose first task is the run at this place.
    pub fn name(&self, first: usize) -> String {
        if first == 0 { self.name.clone() } else { format!("{}_from_{first}", self.name) }
    }

    /// All names, as Slurm takes a list.
    pub fn names(&self) -> String {
        let firsts = (0..self.runs.max(1)).step_by(self.size);
        firsts.map(|first| self.name(first)).collect::<Vec<_>>().join(",")
    }

    /// The place of a task's run in the order of the sweep; `None` when the job is none of the sweep's.
    pub fn place(&self, name: &str, task: usize) -> Option<usize> {
        let first = match name.strip_prefix(&self.name)? {
            "" => 0,
            rest => rest.strip_prefix("_from_")?.parse().ok()?,
        };
        task.checked_add(first)
    }

    /// The place at which the array with this run begins, and the run's task in it.
    pub fn block(&self, place: usize) -> (usize, usize) {
        let task = place % self.size;
        (place - task, task)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_run_is_one_task_below_the_limit_and_is_found_again(
            runs in 1usize..400,
            size in proptest::option::of(1u32..120),
        ) {
            let arrays = Arrays::new(Path::new("/results/s/2026-11-21"), runs, size);
            let mut blocks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for (first, task) in (0..runs).rev().map(|place| arrays.block(place)) {
                blocks.entry(first).or_default().push(task);
            }
            prop_assert_eq!(blocks.len(), arrays.names().split(',').count());
            let names: Vec<String> = arrays.names().split(',').map(str::to_owned).collect();
            let mut found = Vec::new();
            for (first, tasks) in blocks {
                let name = arrays.name(first);
                prop_assert!(names.contains(&name));
                for task in tasks {
                    prop_assert!(size.is_none_or(|size| task < size as usize));
                    found.extend(arrays.place(&name, task));
                }
            }
            found.sort_unstable();
            prop_assert_eq!(found, (0..runs).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_renamed_directory_adds_no_options_and_no_commas() {
        let name = |directory: &str| Arrays::new(Path::new(directory), 1, None).names();
        let odd = name("/results/s/a b,$(id);x --uid=0");
        assert!(odd.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{odd}");
        assert_ne!(odd, name("/results/s/a b_$(id);x --uid=0"));
    }

    #[test]
    fn a_job_of_another_sweep_is_none_of_these() {
        let arrays = Arrays::new(Path::new("/results/s/one"), 10, Some(4));
        assert_eq!(arrays.names(), "xrun_one,xrun_one_from_4,xrun_one_from_8");
        assert_eq!(arrays.place("xrun_one_from_8", 1), Some(9));
        for other in ["xrun_two", "xrun_one-2", "xrun_one_from_x", "job"] {
            assert_eq!(arrays.place(other, 0), None, "{other}");
        }
    }
}
