//! Pipeline `command`: a program of the user, which `xrun_watch::command` runs.

use std::path::{Path, PathBuf};

use crate::bounded::ledger::Ledger;
use crate::dataset::digest::digest_of_file;
use crate::experiment::Experiment;
use crate::experiment::command;
use crate::experiment::command::named;
use crate::experiment::pipeline::{Opening, PipelineFacts, PipelineKind, Prepared};
use crate::problem::Problems;
use crate::settings::command::Command;
use crate::settings::variant::{Kind, Paths};
use crate::task::metric::PlannedMetric;
use crate::task::{Task, TaskError, TaskFacts};

/// Key whose placeholder passes the number of steps to the command.
const MAX_STEPS: &str = "training.max_steps";
/// Maximum number of files among the arguments that identify the program: scripts and configuration, not data sets.
const FILES_MAX: usize = 16;
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Steps of a probe: enough for allocators and loaders to settle.
const PROBE_STEPS: u64 = 8;

impl PipelineKind for Command {
    fn kind() -> &'static Kind<dyn PipelineKind> {
        // The command's own batch size is in its arguments.
        const FACTS: PipelineFacts = PipelineFacts { batch_size: Some(1), ..PipelineFacts::NONE };
        const { &Kind::<dyn PipelineKind>::new::<Self>("command", FACTS) }
    }

    fn command(&self) -> Option<&Command> {
        Some(self)
    }

    fn paths(&mut self) -> Paths<'_> {
        vec![("working_directory", &mut self.working_directory)]
    }

    fn check(&self, experiment: &Experiment, problems: &mut Problems) {
        command::check(self, "pipeline.command", experiment, problems);
    }

    fn prepare(&self, experiment: &Experiment, _: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        let steps = experiment.training.max_steps.filter(|_| named(self).contains(MAX_STEPS));
        let mut facts = TaskFacts::new(steps.unwrap_or(1), &[]);
        facts.steps_are_known = steps.is_some();
        facts.probe_steps = PROBE_STEPS;
        facts.data_digests = digests(self)?;
        facts.declared_metrics =
            self.metrics.iter().map(|(name, direction)| PlannedMetric::plain(name, *direction)).collect();
        Ok((facts, Box::new(NoTask)))
    }
}

/// Prepared state of a command, which is run instead.
struct NoTask;

impl Prepared for NoTask {
    fn open(self: Box<Self>, _: Opening<'_>) -> Result<Box<dyn Task>, TaskError> {
        Err(TaskError::Data("pipeline `command` has no task to open".into()))
    }
}

/// Digests of the files among the arguments.
fn digests(settings: &Command) -> Result<Vec<(String, String)>, TaskError> {
    let directory = settings.working_directory.as_ref().map(PathBuf::from).unwrap_or_default();
    let is_small = |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.len() <= FILE_BYTES_MAX);
    let files = settings.program.iter().filter(|word| is_small(&directory.join(word))).take(FILES_MAX);
    let digests = files.map(|word| Ok((word.clone(), digest_of_file(&directory.join(word))?)));
    digests.collect()
}
