//! The record of a sweep, `sweep.toml`: written before the first run and never changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::plan::SweepPlan;
use super::search::{self, proposals};
use super::slurm;
use super::trials::{RUNS_MAX, RunId, masked, order};
use crate::records::search::Search;
use crate::records::sweep::SweepRecord;
use xrun_core::dataset::digest::digest;
use xrun_core::experiment::axes::{Axis, AxisValues};
use xrun_core::experiment::read_sweep::{SweepFile, written};
use xrun_core::experiment::resolved;
use xrun_core::experiment::sweep;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{checksum, file, layout};
use xrun_core::printable;
use xrun_results::format::VERSION;
use xrun_results::read::ReadError;
use xrun_results::resolved as resolved_text;
use xrun_results::timestamp;
use xrun_results::timestamp::now;
use xrun_results::trust;
use xrun_results::trust::SignedContents;
use xrun_run::directory;
use xrun_run::directory::RunDirectory;

/// A larger record was not written by xrun.
const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A directory is not that of a sweep, or its record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The record is missing, damaged or from a later xrun, or another process works on the sweep: a message.
    #[error("{0}")]
    Refused(String),
    /// The lock cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl RecordError {
    fn invalid(path: &Path, message: &str) -> Self {
        Self::Refused(format!("{} is invalid: {message}", path.display()))
    }
}

impl SweepRecord {
    /// The record of a checked and planned sweep. `command` has the arguments that started the sweep.
    pub fn new(sweep_file: &SweepFile, planned: &SweepPlan, command: Vec<String>) -> Self {
        let SweepFile { base, sweep, axes, .. } = sweep_file;
        // Method tpe has not chosen any yet.
        let trials = if sweep.method == sweep::SweepMethod::Tpe { &[] } else { planned.trials.as_slice() };
        // The order does not matter where results decide; drawn trials are in random order already.
        let order = match sweep.method.is_search() {
            true => (1..=trials.len() as u64).map(|trial| RunId { trial, repeat: 1 }).collect(),
            false => order(trials.len() as u64, sweep.repeats, sweep.seed),
        };
        Self {
            version: VERSION,
            experiment: base.experiment.name.clone(),
            created: now(),
            xrun: env!("CARGO_PKG_VERSION").into(),
            command,
            working_directory: std::env::current_dir().unwrap_or_default().display().to_string(),
            method: sweep.method.as_str().into(),
            seed: sweep.seed,
            repeats: sweep.repeats,
            experiment_seed: base.experiment.seed,
            keys: axes.iter().map(|axis| axis.key.clone()).collect(),
            trials: trials.iter().map(|trial| trial.values.clone()).collect(),
            order: order.into_iter().map(|run| [run.trial, run.repeat]).collect(),
            search: search::search_from(sweep_file, &planned.rungs),
        }
    }

    /// All runs, in the order in which they are started.
    pub fn runs(&self) -> impl Iterator<Item = RunId> + '_ {
        self.order.iter().map(|&[trial, repeat]| RunId { trial, repeat })
    }

    /// Number of runs that the sweep will have, at most: method `tpe` may run out of different trials.
    pub fn runs_at_most(&self) -> usize {
        let samples = self.search.as_ref().map_or(0, |search| usize::try_from(search.trials).unwrap_or(usize::MAX));
        // Lists have a limited number of combinations.
        let space = self.search.as_ref().and_then(Search::trials_of_lists).unwrap_or(usize::MAX);
        self.order.len().max(samples.min(space))
    }

    /// The values of a trial, which is counted from 1.
    pub fn values(&self, trial: u64) -> &[Value] {
        &self.trials[trial as usize - 1]
    }

    /// The settings of a run that differ from the base, as `section.key=value`.
    pub fn overrides(&self, run: RunId) -> Vec<String> {
        let seed = self.experiment_seed.wrapping_add(run.repeat as u32 - 1);
        let seed = (run.repeat > 1).then(|| format!("experiment.seed={seed}"));
        let values = self.keys.iter().zip(self.values(run.trial));
        // A sweep measures its runs: a probe before each would only double the start of a short one.
        let probe = std::iter::once("memory.probe=false".to_owned());
        probe.chain(values.map(|(key, value)| format!("{key}={}", written(value)))).chain(seed).collect()
    }

    /// Creates the sweep's directory with its record; `sweep.toml` is written last.
    pub fn create(&self, results: &Path, sweep_file: &SweepFile) -> Result<RunDirectory, WriteError> {
        let base = resolved::to_toml(&sweep_file.base, None);
        let text = self.to_toml();
        let name = digest(format!("{base}\n{text}").as_bytes());
        let directory = directory::create(&results.join(&self.experiment), layout::SWEEPS, &name, timestamp::time())?;
        let trials = directory.path.join(layout::TRIALS);
        write::create_new_directory(&trials)?;
        resolved_text::write(&directory.path.join(layout::BASE), &checksum::text(&base))?;
        let path = directory.path.join(layout::SWEEP);
        // Trials are lists without keys: nothing else could recognize secrets in them.
        match sweep_file.axes.iter().any(names_secrets) {
            true => write::replace_private(&path, &checksum::text(&text))?,
            false => resolved_text::write(&path, &checksum::text(&text))?,
        }
        Ok(directory)
    }

    /// Locks the directory of a sweep and reads its record.
    pub fn open(directory: &Path) -> Result<(RunDirectory, Self), RecordError> {
        let record = Self::read(directory)?;
        let held = directory::reopen(directory).map_err(|error| match error.source.kind() {
            std::io::ErrorKind::WouldBlock => RecordError::Refused(format!(
                "another process works on the sweep {}; wait for it or stop it first",
                directory.display()
            )),
            _ => error.into(),
        })?;
        Ok((held, record))
    }

    /// Reads the record of a sweep without locking its directory.
    ///
    /// # Errors
    /// The file is missing, damaged or from a later xrun.
    pub fn read(directory: &Path) -> Result<Self, RecordError> {
        let path = directory.join(layout::SWEEP);
        if !path.is_file() {
            let (directory, file) = (directory.display(), layout::SWEEP);
            return Err(RecordError::Refused(format!("{directory} is not the directory of a sweep: it has no {file}")));
        }
        let content = |message: String| RecordError::invalid(&path, &message);
        let bytes = file::bytes(&path, RECORD_BYTES_MAX).map_err(|error| content(error.to_string()))?;
        checksum::check_text(&bytes).map_err(|_| content(checksum::DAMAGED.into()))?;
        // Its runs are of the base that it was made with.
        let base = resolved_text::read_sealed(&directory.join(layout::BASE));
        if let Err(ReadError::Content { path, message }) = base {
            return Err(RecordError::invalid(&path, &message));
        }
        let text = String::from_utf8(bytes).map_err(|_| content("is not UTF-8".into()))?;
        let mut record: Self = toml::from_str(&text).map_err(|error| content(printable::line(error.message(), 400)))?;
        if record.version > VERSION {
            return Err(RecordError::Refused(format!(
                "{} was written by a newer xrun (format {}, this one reads up to {VERSION}); update xrun",
                path.display(),
                record.version
            )));
        }
        // Keys become arguments of `-s`, and a key that names a program is recognized by its spelling.
        let plain = |key: &String| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if let Some(odd) = record.keys.iter().find(|key| !plain(key)) {
            return Err(content(format!("`{}` is not a key", printable::line(odd, 100))));
        }
        if directory.join(layout::TRIALS).is_symlink() {
            return Err(content(format!("`{}` in the same directory is a symlink", layout::TRIALS)));
        }
        proposals::read_into(directory, &mut record).map_err(|error| match error {
            ReadError::Content { path, message } => RecordError::invalid(&path, &message),
            error => content(error.to_string()),
        })?;
        let count = record.trials.len() as u64;
        let known =
            |&[trial, repeat]: &[u64; 2]| (1..=count).contains(&trial) && (1..=record.repeats).contains(&repeat);
        let runs = count.checked_mul(record.repeats).filter(|runs| *runs <= RUNS_MAX);
        let each_once = record.order.iter().collect::<BTreeSet<_>>().len() as u64;
        if runs != Some(each_once) || runs != Some(record.order.len() as u64) {
            return Err(content(format!(
                "its order has {} runs, {each_once} of them different, and it should have {count} trials times {} \
                 repeats, at most {RUNS_MAX}",
                record.order.len(),
                record.repeats
            )));
        }
        if !record.order.iter().all(known) || record.trials.iter().any(|trial| trial.len() != record.keys.len()) {
            return Err(content("its trials and its order do not match".into()));
        }
        if let Some(wrong) = record.search.as_ref().and_then(|search| search.invalid_reason(record.keys.len())) {
            return Err(content(wrong.into()));
        }
        Ok(record)
    }

    fn to_toml(&self) -> String {
        // Text, numbers and lists of them always serialise.
        toml::to_string(self).unwrap_or_default()
    }
}

fn names_secrets(axis: &Axis) -> bool {
    matches!(&axis.values, AxisValues::List(list) if list.iter().any(|swept| masked(&axis.key, &swept.value) != swept.value))
}

/// Signs the sweep as created by this user.
///
/// # Errors
/// The reason why it cannot be signed.
pub fn sign(sweep: &Path) -> Result<(), String> {
    vouched(sweep).map_or(Ok(()), |vouched| trust::sign(sweep, &vouched))
}

/// Checks that this user created the sweep and that no program it names was changed.
///
/// # Errors
/// The reason why that is not known.
pub fn check_creator(sweep: &Path) -> Result<(), String> {
    trust::check(sweep, vouched(sweep))
}

/// The content that names programs. The rest of `slurm.toml` may be edited.
fn vouched(sweep: &Path) -> Option<SignedContents> {
    let slurm = slurm::read_settings(sweep).ok()?;
    Some(SignedContents {
        files: &[layout::BASE, layout::SWEEP],
        words: slurm.map_or_else(Vec::new, |slurm| slurm.extra_lines),
    })
}

/// The directory of a run.
pub fn run_directory(sweep: &Path, run: RunId) -> PathBuf {
    sweep.join(layout::TRIALS).join(run.to_string())
}

/// The sweep whose run has this directory, if it is one of a sweep.
pub fn sweep_of(run: &Path) -> Option<&Path> {
    run.ancestors().nth(2).filter(|sweep| sweep.join(layout::SWEEP).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::search::Dimension;
    use crate::records::search::{SearchMethod, TpeSearch};
    use proptest::prelude::*;
    use serde_json::json;
    use xrun_core::experiment::number_range::NumberRange;
    use xrun_core::task::metric::Direction;

    #[test]
    fn chosen_trials_are_read_with_the_record_and_a_damaged_one_is_named() {
        let space = vec![
            Dimension::Range(NumberRange { from: 1e-4, to: 0.1, logarithmic: true, integer: false }),
            Dimension::Choice(vec![json!("a"), json!(2), json!([1, 2])]),
        ];
        let method = SearchMethod::Tpe(TpeSearch { startup: 3, gamma: 0.25, candidates: 24, space });
        let mut record = SweepRecord {
            method: "tpe".into(),
            repeats: 1,
            keys: vec!["a".into(), "b".into()],
            search: Some(Search { metric: "loss".into(), direction: Direction::Lower, trials: 5, method }),
            ..SweepRecord::default()
        };
        let directory = tempfile::tempdir().unwrap();
        write::replace(&directory.path().join(layout::SWEEP), record.to_toml().as_bytes()).unwrap();
        assert_eq!(SweepRecord::read(directory.path()).unwrap(), record, "before the first trial");
        for trial in 1..=2 {
            proposals::append(directory.path(), &mut record, vec![json!(0.001), json!("a")], vec![trial]).unwrap();
        }
        assert_eq!(SweepRecord::read(directory.path()).unwrap(), record);
        assert_eq!((record.trials.len(), record.order.as_slice()), (2, &[[1, 1], [2, 1]][..]));
        let path = directory.path().join(layout::PROPOSALS);
        let text = std::fs::read_to_string(&path).unwrap();
        write::replace(&path, text.replacen("0.001", "0.002", 1).as_bytes()).unwrap();
        let error = SweepRecord::read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("proposals.jsonl") && error.contains("line 1"), "{error}");
        write::replace(&path, &text.as_bytes()[..text.len() - 3]).unwrap();
        assert_eq!(SweepRecord::read(directory.path()).unwrap().trials.len(), 1, "a line that a kill cut off");
    }

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was(
            numbers in proptest::collection::vec((any::<i64>(), any::<f64>().prop_filter("finite", |x| x.is_finite()), ".{0,12}"), 1..6),
            seed in any::<u32>(),
        ) {
            let record = SweepRecord {
                created: now(),
                command: vec!["xrun".into(), "a \"b\"\nc".into()],
                working_directory: "/tmp/è".into(),
                seed,
                repeats: 2,
                experiment_seed: u32::MAX,
                keys: ["a.b", "c", "d", "e"].map(str::to_owned).to_vec(),
                trials: numbers.iter().map(|(n, x, text)| vec![json!(n), json!(x), json!(text), json!([1, 2])]).collect(),
                order: order(numbers.len() as u64, 2, seed).into_iter().map(|run| [run.trial, run.repeat]).collect(),
                search: (seed % 2 == 0).then(|| Search {
                    metric: "a \"b\"".into(),
                    direction: Direction::Lower,
                    trials: 3,
                    method: SearchMethod::Asha { rungs: vec![1, 4, 16], reduction_factor: 4 },
                }),
                ..SweepRecord::default()
            };
            let directory = tempfile::tempdir().unwrap();
            write::replace(&directory.path().join(layout::SWEEP), record.to_toml().as_bytes()).unwrap();
            prop_assert_eq!(SweepRecord::read(directory.path()).unwrap(), record.clone());
            let set = record.overrides(RunId { trial: 1, repeat: 2 });
            prop_assert_eq!(set.last().unwrap(), "experiment.seed=0");
        }
    }
}
