//! A run that begins: its folder, and what is written there before the first step.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use super::fingerprint::fingerprint;
use super::launch::{self, Launch};
use super::manifest;
use super::prepare::{NotStarted, Opened};
use xrun_core::experiment::read::Checked;
use xrun_core::experiment::resolved;
use xrun_core::files::layout;
use xrun_results::command_line;
use xrun_results::format::LoopState;
use xrun_results::timestamp;
use xrun_results::trust;
use xrun_watch::directory;
use xrun_watch::directory::RunDirectory;

/// Where the directory of a run is made.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Below these results, as the newest of its experiment.
    Results(&'a Path),
    /// Below these results, apart from the runs of its experiment.
    Reproductions(&'a Path),
    /// Exactly this folder.
    Folder(&'a Path),
}

/// Where its directory is made, and what is written there as it was given.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'a> {
    /// Where the run's folder is made.
    pub place: Place<'a>,
    /// The author's file.
    pub text: &'a [u8],
    /// Where each value of the experiment came from, by dotted key.
    pub origins: &'a BTreeMap<String, String>,
    /// Ends the run after this many steps, with the plan of all of them: a probe.
    pub stop_after: Option<u64>,
    /// Stops the run after this step, to go on later as if it had not stopped.
    pub until: Option<u64>,
    /// Whether this user chose the programs that it names, and not the creator of another folder.
    pub own: bool,
}

/// A run whose directory is there.
#[derive(Debug)]
pub struct Begun {
    /// The folder of its results.
    pub directory: RunDirectory,
    state: LoopState,
    stop_after: Option<u64>,
    until: Option<u64>,
}

impl<'a> NewRun<'a> {
    /// All steps of an experiment that was read.
    pub fn of(checked: &'a Checked, place: Place<'a>) -> Self {
        Self { place, text: &checked.text, origins: &checked.origins, stop_after: None, until: None, own: true }
    }

    /// Makes the directory and describes the run there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&self, opened: &Opened, parameters: u64) -> Result<Begun, NotStarted> {
        let plan = &opened.plan;
        let resolved = resolved::to_toml(&plan.experiment, None);
        let fingerprint = fingerprint(plan);
        let name = &plan.experiment.experiment.name;
        let now = timestamp::time();
        let directory = match self.place {
            Place::Folder(path) => directory::create_at(path),
            Place::Results(results) => directory::create(results, name, &fingerprint, now),
            Place::Reproductions(results) => {
                directory::create(&results.join(name), layout::REPRODUCTIONS, &fingerprint, now)
            }
        };
        let directory = directory.map_err(NotStarted::failed)?;
        // First of all: what follows takes memory.
        directory.note_process(0);
        let command = command_line::command();
        let mut manifest =
            manifest::manifest(plan, &directory.id, &fingerprint, &opened.chosen, &command, self.origins);
        manifest.until = self.until;
        launch::describe(&directory.path, self.text, &resolved, &manifest, plan, parameters)
            .map_err(NotStarted::failed)?;
        if self.own {
            trust::sign_run(&directory.path, &plan.experiment);
        }
        let state = LoopState { run: manifest.whose(), fingerprint, ..LoopState::default() };
        Ok(Begun { directory, state, stop_after: self.stop_after, until: self.until })
    }
}

impl Begun {
    /// Only its directory, for what is no task.
    pub fn into_directory(self) -> RunDirectory {
        self.directory
    }

    /// What trains it. `started` is when the program began: `training.time_limit` counts from there.
    pub fn launch<'a>(&'a self, opened: &'a Opened, started: Instant) -> Launch<'a> {
        Launch {
            plan: &opened.plan,
            ledger: &opened.ledger,
            directory: &self.directory,
            state: self.state.clone(),
            segment: 0,
            gpu: opened.gpu(),
            started,
            stop_after: self.stop_after,
            until: self.until,
        }
    }
}
