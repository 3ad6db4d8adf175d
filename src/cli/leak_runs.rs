//! Runs of `xrun leaks`, each in a separate process.
//!
//! The heap or the memory pool of another run must not influence the verdict. On CUDA, a run after one that leaked graphs in
//! the same process does not end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::terminal::Failure;
use super::{Overrides, child_run};
use crate::child;
use crate::exit::exit_code;
use crate::experiment::overrides::as_arguments;
use crate::experiment::{read, resolved};
use crate::files::scratch::Scratch;
use crate::results::format::Outcome;
use crate::results::read as results;
use crate::results::verdict::Verdict;

/// Outcome of one run.
#[derive(Clone, Debug)]
pub enum LeakRun {
    /// Verdict and directory of the run.
    Judged(Box<Verdict>, PathBuf),
    /// A signal stopped the run.
    Stopped,
}

/// Runner of leaky experiments and their controls.
pub struct LeakRuns {
    results: Scratch,
    overrides: Vec<String>,
    /// Control runs by experiment: equal ones are run once, and whoever needs one that goes on waits for it.
    controls: Mutex<BTreeMap<String, Arc<Mutex<Option<LeakRun>>>>>,
}

impl LeakRuns {
    pub fn new(overrides: &Overrides) -> Result<Self, Failure> {
        let results = Scratch::create(&std::env::temp_dir(), "xrun-leaks-").map_err(Failure::failed)?;
        let mut overrides = overrides.all();
        overrides.push("memory.fail_on=\"never\"".into());
        Ok(Self { results, overrides, controls: Mutex::default() })
    }

    /// Runs an experiment.
    pub fn leaky(&self, file: &Path) -> Result<LeakRun, Failure> {
        let (run, code) = self.run_process(file)?;
        if code == exit_code(Outcome::Interrupted) {
            return Ok(LeakRun::Stopped);
        }
        let failed = |why: &str| Failure::Failed(format!("{}: {why}", file.display()));
        let verdict = results::verdict(&run).map_err(Failure::failed)?;
        match (verdict, code) {
            (Some(verdict), 0) => Ok(LeakRun::Judged(Box::new(verdict), run)),
            _ => {
                let summary = results::summary(&run).ok().flatten();
                Err(failed(summary.as_ref().map_or("the run failed", |summary| &summary.message)))
            }
        }
    }

    /// Runs a control experiment, unless one that differs only in its name was run before.
    pub fn control(&self, file: &Path) -> Result<LeakRun, Failure> {
        let experiment = self.without_name(file)?;
        let known = self.controls.lock().unwrap_or_else(PoisonError::into_inner).entry(experiment).or_default().clone();
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = &*known {
            return Ok(outcome.clone());
        }
        let outcome = self.leaky(file)?;
        if matches!(outcome, LeakRun::Judged(..)) {
            *known = Some(outcome.clone());
        }
        Ok(outcome)
    }

    /// Text of the experiment with every value except its name and description.
    fn without_name(&self, file: &Path) -> Result<String, Failure> {
        let mut experiment = read::read(file, &self.overrides, super::environment())?.experiment;
        experiment.experiment.name.clear();
        experiment.experiment.description.clear();
        Ok(resolved::to_toml(&experiment, None))
    }

    fn run_process(&self, file: &Path) -> Result<(PathBuf, u8), Failure> {
        let mut command = child::command().map_err(Failure::failed)?;
        command.arg(file).arg("--results").arg(self.results.path()).arg("--no-hooks");
        command.args(self.overrides.iter().flat_map(|text| as_arguments(text)));
        let ended = child_run::run(command, &file.display().to_string())?;
        Ok((ended.run, ended.code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_that_differ_only_in_their_names_are_equal() {
        let directory = tempfile::tempdir().unwrap();
        let runs = LeakRuns::new(&Overrides { set: Vec::new(), device: Some("cpu".into()) }).unwrap();
        let control = |name: &str, steps: u64| {
            let file = directory.path().join(format!("{name}.bounded.toml"));
            let text = format!("[pipeline.dummy]\n\n[training]\nmax_steps = {steps}\n");
            crate::files::write::replace(&file, text.as_bytes()).unwrap();
            runs.without_name(&file).unwrap()
        };
        assert_eq!(control("one", 3), control("other", 3));
        assert_ne!(control("one", 3), control("longer", 4));
    }
}
