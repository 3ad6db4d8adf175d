//! Creation of a run's directory and of the records that are written there before the first step.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use super::fingerprint::fingerprint;
use super::fork::Fork;
use super::launch::{self, Extent, Launch};
use super::manifest;
use super::prepare::{Opened, StartError};
use crate::directory;
use crate::directory::RunDirectory;
use xrun_core::experiment::read::CheckedExperiment;
use xrun_core::experiment::resolved;
use xrun_core::files::layout;
use xrun_results::command_line;
use xrun_results::format::{LoopState, Manifest};
use xrun_results::timestamp;
use xrun_results::trust;

/// Location of a new run's directory.
#[derive(Clone, Copy, Debug)]
pub enum RunLocation<'a> {
    /// Below this results directory, as the newest run of its experiment.
    Results(&'a Path),
    /// Below this results directory, among the reproductions of its experiment.
    Reproductions(&'a Path),
    /// Exactly this directory.
    Exact(&'a Path),
}

/// Request to create a run.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'a> {
    /// Location of the run's directory.
    pub location: RunLocation<'a>,
    /// Text of the experiment file.
    pub text: &'a [u8],
    /// Origin of each value of the experiment, by dotted key.
    pub origins: &'a BTreeMap<String, String>,
    /// Extent of the training.
    pub extent: Extent,
    /// Signs the run as one whose programs this user chose.
    pub sign: bool,
    /// Checkpoint of another run from which this one starts; `None` starts at step 0.
    pub fork: Option<&'a Fork>,
}

/// Run whose directory has been created.
#[derive(Debug)]
pub struct CreatedRun {
    /// Directory of the run.
    pub directory: RunDirectory,
    /// Contents of `manifest.json`.
    pub manifest: Manifest,
    state: LoopState,
    extent: Extent,
}

impl<'a> NewRun<'a> {
    /// Run of all steps of a checked experiment.
    pub fn new(checked: &'a CheckedExperiment, location: RunLocation<'a>) -> Self {
        Self { location, text: &checked.text, origins: &checked.origins, extent: Extent::Whole, sign: true, fork: None }
    }

    /// Creates the directory and writes experiment, plan and manifest there.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn create(&self, opened: &Opened, parameters: u64) -> Result<CreatedRun, StartError> {
        let plan = &opened.plan;
        let resolved = resolved::to_toml(&plan.experiment, None);
        let fingerprint = fingerprint(plan);
        let name = &plan.experiment.experiment.name;
        let now = timestamp::time();
        let directory = match self.location {
            RunLocation::Exact(path) => directory::create_at(path),
            RunLocation::Results(results) => directory::create(results, name, &fingerprint, now),
            RunLocation::Reproductions(results) => {
                directory::create(&results.join(name), layout::REPRODUCTIONS, &fingerprint, now)
            }
        };
        let directory = directory.map_err(StartError::failed)?;
        // First: if the kernel kills this process for memory, the note tells whose run it was.
        directory.note_process(0);
        let command = command_line::command();
        let mut manifest =
            manifest::manifest(plan, &directory.id, &fingerprint, &opened.chosen, &command, self.origins);
        manifest.until = match self.extent {
            Extent::Until(step) => Some(step),
            Extent::Whole | Extent::Probe(_) => None,
        };
        manifest.parent = self.fork.map(|fork| fork.parent.clone());
        launch::write_inputs(&directory.path, self.text, &resolved, &manifest, plan, parameters)
            .map_err(StartError::failed)?;
        if self.sign {
            trust::sign_run(&directory.path, &plan.experiment);
        }
        let state = match self.fork {
            None => LoopState { run: manifest.run_id(), fingerprint, ..LoopState::default() },
            Some(fork) => fork.start(&directory.path, manifest.run_id(), fingerprint).map_err(StartError::failed)?,
        };
        Ok(CreatedRun { directory, manifest, state, extent: self.extent })
    }
}

impl CreatedRun {
    /// Launch of its training. `started` is the start of the program, from which `training.time_limit` counts.
    pub fn launch<'a>(&'a self, opened: &'a Opened, started: Instant) -> Launch<'a> {
        Launch {
            plan: &opened.plan,
            ledger: &opened.ledger,
            directory: &self.directory,
            manifest: &self.manifest,
            state: self.state.clone(),
            segment: 0,
            gpu: opened.gpu(),
            started,
            extent: self.extent,
        }
    }
}
