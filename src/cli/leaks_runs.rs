//! The runs of `xrun leaks`, each in a process of its own.
//!
//! Another run's heap or memory pool must not be in what is judged, and on CUDA a run behind one that kept graphs in the
//! same process does not end.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::Overrides;
use super::terminal::Failure;
use crate::child;
use crate::experiment::overrides::as_words;
use crate::experiment::{read, resolved};
use crate::results::format::Outcome;
use crate::results::read as results;
use crate::results::verdict::Verdict;
use crate::stop::exit_code;

/// What came of one.
#[derive(Clone, Debug)]
pub enum Ran {
    /// Its verdict and its directory.
    Judged(Verdict, PathBuf),
    /// A signal stopped it.
    Stopped,
}

/// Runs, and what bounded twins came to: one for each twin that differs from the others.
pub struct Runs {
    results: tempfile::TempDir,
    overrides: Vec<String>,
    bounded: Vec<(String, Verdict, PathBuf)>,
}

impl Runs {
    pub fn new(overrides: &Overrides) -> Result<Self, Failure> {
        let results = tempfile::tempdir().map_err(Failure::failed)?;
        let mut overrides = overrides.all();
        overrides.push("memory.fail_on=\"never\"".into());
        Ok(Self { results, overrides, bounded: Vec::new() })
    }

    pub fn leaky(&self, file: &Path) -> Result<Ran, Failure> {
        let (run, code) = self.in_a_process(file)?;
        if code == exit_code(Outcome::Interrupted) {
            return Ok(Ran::Stopped);
        }
        let failed = |why: &str| Failure::Failed(format!("{}: {why}", file.display()));
        let verdict = results::verdict(&run).map_err(Failure::failed)?;
        match (verdict, code) {
            (Some(verdict), 0) => Ok(Ran::Judged(verdict, run)),
            _ => {
                let summary = results::summary(&run).ok().flatten();
                Err(failed(summary.as_ref().map_or("the run failed", |summary| &summary.message)))
            }
        }
    }

    /// As [`Self::leaky`]. Twins that are the same experiment under other names are run once.
    pub fn bounded(&mut self, file: &Path) -> Result<Ran, Failure> {
        let same = self.but_for_its_name(file)?;
        if let Some((_, verdict, run)) = self.bounded.iter().find(|(known, ..)| *known == same) {
            return Ok(Ran::Judged(verdict.clone(), run.clone()));
        }
        let ran = self.leaky(file)?;
        if let Ran::Judged(verdict, run) = &ran {
            self.bounded.push((same, verdict.clone(), run.clone()));
        }
        Ok(ran)
    }

    /// Every value of the experiment except what it is called.
    fn but_for_its_name(&self, file: &Path) -> Result<String, Failure> {
        let mut experiment = read::read(file, &self.overrides, super::environment())?.experiment;
        experiment.experiment.name.clear();
        experiment.experiment.description.clear();
        Ok(resolved::to_toml(&experiment, None))
    }

    fn in_a_process(&self, file: &Path) -> Result<(PathBuf, u8), Failure> {
        let mut command = child::command().map_err(Failure::failed)?;
        command.arg(file).arg("--results").arg(self.results.path()).args([
            "-q",
            "--json",
            "--no-hooks",
            "--progress",
            "none",
        ]);
        command.args(self.overrides.iter().flat_map(|text| as_words(text)));
        let output = command.stderr(Stdio::inherit()).output().map_err(Failure::failed)?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| Failure::Failed(format!("{}: the run gave no answer", file.display())))?;
        let run = PathBuf::from(answer["run"].as_str().unwrap_or_default());
        let code = output.status.code().and_then(|code| u8::try_from(code).ok());
        Ok((run, code.unwrap_or(exit_code(Outcome::Failed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_that_differ_in_nothing_but_their_names_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs::new(&Overrides { set: Vec::new(), device: Some("cpu".into()) }).unwrap();
        let twin = |name: &str, steps: u64| {
            let file = folder.path().join(format!("{name}.bounded.toml"));
            let text = format!("[pipeline.dummy]\n\n[training]\nmax_steps = {steps}\n");
            crate::files::write::replace(&file, text.as_bytes()).unwrap();
            runs.but_for_its_name(&file).unwrap()
        };
        assert_eq!(twin("one", 3), twin("other", 3));
        assert_ne!(twin("one", 3), twin("longer", 4));
    }
}
