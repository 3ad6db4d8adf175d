//! Runs of `dev leaks`, each in a separate process.
//!
//! The heap or the memory pool of another run must not influence the verdict. On CUDA, a run after one that leaked graphs in
//! the same process does not end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::Result;
use xrun_core::experiment::leaks::ExpectedGrowth;
use xrun_results::read;
use xrun_results::verdict::Verdict;

/// A run with its verdict.
#[derive(Clone, Debug)]
pub struct Judged {
    /// First step at which each series was suspected of growing, by its name.
    pub suspected_at: BTreeMap<String, u64>,
    /// Verdict on the run.
    pub verdict: Verdict,
    /// Directory of the run.
    pub run: PathBuf,
}

/// Runner of leaky experiments and their controls.
pub struct LeakRuns {
    program: PathBuf,
    device: String,
    results: TempDir,
    /// Control runs by experiment: equal ones are run once, and whoever needs one that goes on waits for it.
    controls: Mutex<BTreeMap<String, Arc<Mutex<Option<Judged>>>>>,
}

impl LeakRuns {
    pub fn new(program: PathBuf, device: String) -> Result<Self> {
        Ok(Self { program, device, results: tempfile::tempdir()?, controls: Mutex::default() })
    }

    /// Expectations of a leaky experiment.
    pub fn expected(&self, file: &Path) -> Result<ExpectedGrowth> {
        let expected = self.resolved(file)?.get_mut("leaks").and_then(|leaks| leaks.as_table_mut()?.remove("expected"));
        let missing = || format!("{} has no [leaks.expected] with the expected growth", file.display());
        Ok(ExpectedGrowth::deserialize(expected.ok_or_else(missing)?)?)
    }

    /// Runs an experiment.
    pub fn run(&self, file: &Path) -> Result<Judged> {
        let mut command = self.command(file, &[]);
        command.arg("--results").arg(self.results.path());
        command.args(["--force", "--quiet", "--json", "--progress", "json", "--fail-on", "never"]);
        let output = command.stderr(Stdio::piped()).output()?;
        let answer: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{}: the run printed no JSON: {error}", file.display()))?;
        let run = PathBuf::from(answer["run"].as_str().unwrap_or_default());
        match read::verdict(&run)? {
            Some(verdict) if output.status.success() => {
                Ok(Judged { suspected_at: suspected_at(&output.stderr), verdict, run })
            }
            _ => Err(format!("{}: {}", file.display(), answer["message"].as_str().unwrap_or("the run failed")).into()),
        }
    }

    /// Runs a control experiment, unless one that differs only in its name was run before.
    pub fn control(&self, file: &Path) -> Result<Judged> {
        let mut experiment = self.resolved(file)?;
        if let Some(section) = experiment.get_mut("experiment").and_then(toml::Value::as_table_mut) {
            section.retain(|key, _| key != "name" && key != "description");
        }
        let key = experiment.to_string();
        let known = self.controls.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judged) = &*known {
            return Ok(judged.clone());
        }
        let judged = self.run(file)?;
        *known = Some(judged.clone());
        Ok(judged)
    }

    /// Experiment with every value.
    fn resolved(&self, file: &Path) -> Result<toml::Table> {
        let Output { status, stdout, .. } =
            self.command(file, &["check"]).args(["--resolved", "--no-data"]).output()?;
        if !status.success() {
            return Err(format!("{} is not valid", file.display()).into());
        }
        Ok(toml::from_str(&String::from_utf8(stdout)?)?)
    }

    fn command(&self, file: &Path, subcommand: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(subcommand).arg(file).args(["--device", &self.device]).stderr(Stdio::inherit());
        command
    }
}

/// First step at which each series was suspected, by the events of a run.
fn suspected_at(events: &[u8]) -> BTreeMap<String, u64> {
    let mut first = BTreeMap::new();
    for line in events.split(|byte| *byte == b'\n') {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
        if let (Some(step), Some(suspects)) = (event["step"].as_u64(), event["suspects"].as_array()) {
            for series in suspects.iter().filter_map(Value::as_str) {
                first.entry(series.to_owned()).or_insert(step);
            }
        }
    }
    first
}
