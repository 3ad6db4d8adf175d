//! Pipeline `command`: a program of the user, which `xrun_watch::command` runs.

use std::path::{Path, PathBuf};

use crate::bounded::ledger::Ledger;
use crate::dataset::digest::digest_of_file;
use crate::device::DeviceKind;
use crate::experiment::Experiment;
use crate::experiment::command;
use crate::experiment::command::named;
use crate::experiment::pipeline::PipelineKind;
use crate::problem::Problems;
use crate::settings::command::Command as Settings;
use crate::task::metric::PlannedMetric;
use crate::task::{Metric, Task, TaskError, TaskFacts};

/// `[pipeline.command]`.
#[derive(Debug)]
pub struct Command;

/// Key whose placeholder passes the number of steps to the command.
const MAX_STEPS: &str = "training.max_steps";
/// Maximum number of files among the arguments that identify the program: scripts and configuration, not data sets.
const FILES_MAX: usize = 16;
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Steps of a probe: enough for allocators and loaders to settle.
const PROBE_STEPS: u64 = 8;

impl PipelineKind for Command {
    const NAME: &'static str = "command";
    const METRICS: &'static [Metric] = &[];
    // The command's own batch size is in its arguments.
    const BATCH_SIZE: Option<usize> = Some(1);
    type Settings = Settings;
    type Prepared = ();

    fn command(settings: &Settings) -> Option<&Settings> {
        Some(settings)
    }

    fn paths(settings: &mut Settings) -> Vec<(&'static str, &mut Option<String>)> {
        vec![("working_directory", &mut settings.working_directory)]
    }

    fn check(settings: &Settings, experiment: &Experiment, problems: &mut Problems) {
        command::check(settings, &format!("pipeline.{}", Self::NAME), experiment, problems);
    }

    fn prepare(settings: &Settings, experiment: &Experiment, _: &Ledger) -> Result<(TaskFacts, ()), TaskError> {
        let steps = experiment.training.max_steps.filter(|_| named(settings).contains(MAX_STEPS));
        let mut facts = TaskFacts::new(steps.unwrap_or(1), &[]);
        facts.steps_are_known = steps.is_some();
        facts.probe_steps = PROBE_STEPS;
        facts.data_digests = digests(settings)?;
        facts.declared_metrics =
            settings.metrics.iter().map(|(name, direction)| PlannedMetric::plain(name, *direction)).collect();
        Ok((facts, ()))
    }

    fn open(_: (), _: &Experiment, _: DeviceKind, _: &Ledger, _: u64) -> Result<Box<dyn Task>, TaskError> {
        Err(TaskError::Data("pipeline `command` has no task to open".into()))
    }
}

/// Digests of the files among the arguments.
fn digests(settings: &Settings) -> Result<Vec<(String, String)>, TaskError> {
    let directory = settings.working_directory.as_ref().map(PathBuf::from).unwrap_or_default();
    let is_small = |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.len() <= FILE_BYTES_MAX);
    let files = settings.program.iter().filter(|word| is_small(&directory.join(word))).take(FILES_MAX);
    let digests = files.map(|word| Ok((word.clone(), digest_of_file(&directory.join(word))?)));
    digests.collect()
}
