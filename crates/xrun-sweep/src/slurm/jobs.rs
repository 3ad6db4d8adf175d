//! The jobs of a sweep in the queue, by their names.
//!
//! A job of a search is an array of one task. Its name says after which step the run stops, since the run's directory cannot say
//! it before the process has begun.

use std::path::Path;

use super::arrays::Arrays;
use super::queue::{self, QueuedTask};
use super::{SlurmError, read_settings};
use crate::records::sweep::SweepRecord;

/// The names of the jobs of a sweep: for each step after which runs of a search stop, of which `None` is their end.
#[derive(Clone, Debug)]
pub struct JobNames(Vec<(Option<u64>, Arrays)>);

impl JobNames {
    /// The jobs of a sweep, cut into arrays as `slurm.toml` says.
    ///
    /// # Errors
    /// `slurm.toml` cannot be read.
    pub fn new(sweep: &Path, record: &SweepRecord) -> Result<Self, SlurmError> {
        let size = read_settings(sweep)?.and_then(|settings| settings.array_size);
        let arrays = Arrays::new(sweep, record.runs_at_most(), size);
        let Some(search) = &record.search else { return Ok(Self(vec![(None, arrays)])) };
        let before_end = search.rungs().split_last().map_or(&[][..], |(_, before)| before);
        Ok(Self::stopping_at(&arrays, before_end.iter().copied().map(Some).chain([None])))
    }

    fn stopping_at(arrays: &Arrays, stops: impl Iterator<Item = Option<u64>>) -> Self {
        Self(stops.map(|until| (until, arrays.clone().going_to(until))).collect())
    }

    /// The arrays of jobs that stop after this step; `None` is the end of their runs.
    pub fn arrays(&self, until: Option<u64>) -> &Arrays {
        let at = self.0.iter().position(|(stop, _)| *stop == until);
        &self.0[at.unwrap_or(self.0.len() - 1)].1
    }

    /// The tasks of the sweep in the queue.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn tasks(&self) -> Result<Vec<QueuedTask>, SlurmError> {
        let names: Vec<String> = self.0.iter().map(|(_, arrays)| arrays.names()).collect();
        Ok(queue::lines(&names.join(","))?.lines().filter_map(|line| self.task(line)).collect())
    }

    fn task(&self, line: &str) -> Option<QueuedTask> {
        self.0.iter().find_map(|(until, arrays)| queue::task(line, arrays, *until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(stops: &[Option<u64>]) -> JobNames {
        let arrays = Arrays::new(Path::new("/results/s/one"), 30, Some(10));
        JobNames::stopping_at(&arrays, stops.iter().copied())
    }

    #[test]
    fn the_queue_alone_identifies_the_run_of_a_job_and_its_last_step() {
        let jobs = jobs(&[Some(2), Some(24), None]);
        let read = |line: &str| jobs.task(line).map(|task| (task.place, task.until));
        assert_eq!(read("12|3|PENDING|xrun_one_to_2_from_20|Priority"), Some((23, Some(2))));
        assert_eq!(read("12|3|RUNNING|xrun_one_to_24|None"), Some((3, Some(24))));
        assert_eq!(read("12|3|RUNNING|xrun_one_to_end_from_10|None"), Some((13, None)));
        for other in ["xrun_one", "xrun_one_from_10", "xrun_one_to_8", "xrun_two_to_24"] {
            assert_eq!(read(&format!("12|3|RUNNING|{other}|None")), None, "{other}");
        }
        for until in [Some(2), Some(24), None] {
            let arrays = jobs.arrays(until);
            let (first, task) = arrays.block(29);
            let name = arrays.name(first);
            assert_eq!((first, read(&format!("7|{task}|RUNNING|{name}|None"))), (20, Some((29, until))), "{name}");
        }
    }
}
