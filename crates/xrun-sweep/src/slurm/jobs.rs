//! Which jobs of the queue are those of a search, and how far does each go?
//!
//! A job is an array of one task, whose number says the run as in any sweep. Its name says how far the run goes, since the run's
//! folder cannot say it before the process has begun.

use std::path::Path;

use super::arrays::Arrays;
use super::queue::{self, Task};
use super::{SlurmError, arrays_of};
use crate::records::search::Search;
use crate::records::sweep::Record;

/// The names of the jobs of a search.
#[derive(Clone, Debug)]
pub struct Jobs {
    arrays: Arrays,
    /// The steps after which runs stop, and their end.
    stops: Vec<Option<u64>>,
}

impl Jobs {
    /// Those of a search that was submitted as `slurm.toml` says.
    ///
    /// # Errors
    /// `slurm.toml` does not read.
    pub fn new(sweep: &Path, record: &Record, search: &Search) -> Result<Self, SlurmError> {
        let arrays = arrays_of(sweep, record.runs_at_most())?;
        let before_end = search.rungs().split_last().map_or(&[][..], |(_, before)| before);
        Ok(Self { arrays, stops: before_end.iter().copied().map(Some).chain([None]).collect() })
    }

    /// The job of the run at this place of the order that stops after this step: where its block begins, the task, the name.
    pub fn job(&self, until: Option<u64>, place: usize) -> (usize, usize, String) {
        let first = self.arrays.blocks(&[place]).into_keys().next().unwrap_or_default();
        (first, place - first, self.going_to(until).name(first))
    }

    /// What the queue has of the search.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn tasks(&self) -> Result<Vec<Task>, SlurmError> {
        let names: Vec<String> = self.stops.iter().map(|until| self.going_to(*until).names()).collect();
        Ok(queue::lines(&names.join(","))?.lines().filter_map(|line| self.task(line)).collect())
    }

    fn task(&self, line: &str) -> Option<Task> {
        let found =
            |until: &Option<u64>| queue::task(line, &self.going_to(*until)).map(|task| Task { until: *until, ..task });
        self.stops.iter().find_map(found)
    }

    fn going_to(&self, until: Option<u64>) -> Arrays {
        self.arrays.clone().going_to(until)
    }
}

/// What the queue has of a sweep, whether it searches or not.
///
/// # Errors
/// Slurm does not answer, or `slurm.toml` does not read.
pub fn tasks_of(sweep: &Path, record: &Record) -> Result<Vec<Task>, SlurmError> {
    match &record.search {
        Some(search) => Jobs::new(sweep, record, search)?.tasks(),
        None => queue::tasks(&arrays_of(sweep, record.order.len())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(stops: &[Option<u64>]) -> Jobs {
        let arrays = Arrays::new(Path::new("/results/s/one"), 30, Some(10));
        Jobs { arrays, stops: stops.to_vec() }
    }

    #[test]
    fn the_queue_alone_says_which_run_a_job_is_and_how_far_it_goes() {
        let jobs = jobs(&[Some(2), Some(24), None]);
        let read = |line: &str| jobs.task(line).map(|task| (task.place, task.until));
        assert_eq!(read("12|3|PENDING|xrun_one_to_2_from_20|Priority"), Some((23, Some(2))));
        assert_eq!(read("12|3|RUNNING|xrun_one_to_24|None"), Some((3, Some(24))));
        assert_eq!(read("12|3|RUNNING|xrun_one_to_end_from_10|None"), Some((13, None)));
        for other in ["xrun_one", "xrun_one_from_10", "xrun_one_to_8", "xrun_two_to_24"] {
            assert_eq!(read(&format!("12|3|RUNNING|{other}|None")), None, "{other}");
        }
        for until in [Some(2), Some(24), None] {
            let (first, task, name) = jobs.job(until, 29);
            assert_eq!((first, read(&format!("7|{task}|RUNNING|{name}|None"))), (20, Some((29, until))), "{name}");
        }
    }
}
