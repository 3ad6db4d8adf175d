//! What is a sweep to do? `sweep.toml`, written before the first run and never changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::plan::PlannedPoint;
use super::points::{RUNS_MAX, RunId, order};
use crate::data::digest::digest;
use crate::experiment::read_sweep::{Family, written};
use crate::experiment::resolved;
use crate::results::format::VERSION;
use crate::results::read::ReadError;
use crate::results::sweep::Record;
use crate::results::write::{self, WriteError};
use crate::results::{file, layout, printable, resolved as resolved_text, seal};
use crate::run::directory::{self, RunDirectory};
use crate::run::manifest::{self, now};

/// A record larger than this is not ours.
const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A folder is not that of a sweep, or its record does not read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The folder has no `sweep.toml`.
    #[error("{} is not the folder of a sweep: it has no {}", folder.display(), layout::SWEEP)]
    NotASweep {
        /// The folder that was named.
        folder: PathBuf,
    },
    /// `sweep.toml` cannot be read, is damaged, or contradicts itself.
    #[error("{} is not what it should be: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, for people.
        message: String,
    },
    /// A later xrun wrote it.
    #[error("{} was written by a newer xrun (format {found}, this one reads up to {VERSION}); update xrun", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of the format that it states.
        found: u32,
    },
    /// The lock on the folder is held, so a process works on the sweep.
    #[error("another process works on the sweep {}; wait for it or stop it first", folder.display())]
    Busy {
        /// The folder of the sweep.
        folder: PathBuf,
    },
    /// The record or the lock cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Record {
    /// The record of a checked family. `command` are the words that started the sweep.
    pub fn new(family: &Family, points: &[PlannedPoint], command: Vec<String>) -> Self {
        let Family { base, sweep, axes, .. } = family;
        Self {
            version: VERSION,
            experiment: base.experiment.name.clone(),
            created: now(),
            xrun: env!("CARGO_PKG_VERSION").into(),
            command,
            working_directory: std::env::current_dir().unwrap_or_default().display().to_string(),
            mode: sweep.mode.word().into(),
            seed: sweep.seed,
            repeats: sweep.repeats,
            experiment_seed: base.experiment.seed,
            keys: axes.iter().map(|axis| axis.key.clone()).collect(),
            points: points.iter().map(|point| point.values.clone()).collect(),
            order: order(points.len() as u64, sweep.repeats, sweep.seed)
                .into_iter()
                .map(|run| [run.point, run.repeat])
                .collect(),
        }
    }

    /// All runs, in the order in which they are started.
    pub fn runs(&self) -> impl Iterator<Item = RunId> + '_ {
        self.order.iter().map(|&[point, repeat]| RunId { point, repeat })
    }

    /// The values of a point, which is counted from 1.
    pub fn values(&self, point: u64) -> &[Value] {
        &self.points[point as usize - 1]
    }

    /// What `-s` sets for a run, besides the base.
    pub fn overrides(&self, run: RunId) -> Vec<String> {
        let seed = self.experiment_seed.wrapping_add(run.repeat as u32 - 1);
        let seed = (run.repeat > 1).then(|| format!("experiment.seed={seed}"));
        let values = self.keys.iter().zip(self.values(run.point));
        // What a run measures needs no forecast, and a probe before each would double the start of a short one.
        let probe = std::iter::once("memory.probe=false".to_owned());
        probe.chain(values.map(|(key, value)| format!("{key}={}", written(value)))).chain(seed).collect()
    }

    /// Makes the sweep's folder and writes down what is to be done; `sweep.toml` is the last file.
    pub fn create(&self, results: &Path, family: &Family) -> Result<RunDirectory, WriteError> {
        let base = resolved::to_toml(&family.base, None);
        let text = self.to_toml();
        let name = digest(format!("{base}\n{text}").as_bytes());
        let folder = directory::create(&results.join(&self.experiment), layout::SWEEPS, &name, manifest::time())?;
        let points = folder.path.join(layout::POINTS);
        write::at(&points, std::fs::create_dir(&points))?;
        write::replace(&folder.path.join(layout::BASE), &seal::text(&base))?;
        write::replace(&folder.path.join(layout::SWEEP), &seal::text(&text))?;
        Ok(folder)
    }

    /// Takes hold of the folder of a sweep and reads what is to be done.
    pub fn open(folder: &Path) -> Result<(RunDirectory, Self), RecordError> {
        let record = Self::read(folder)?;
        let held = directory::reopen(folder).map_err(|error| match error.source.kind() {
            std::io::ErrorKind::WouldBlock => RecordError::Busy { folder: folder.to_path_buf() },
            _ => error.into(),
        })?;
        Ok((held, record))
    }

    /// Reads `sweep.toml` of a folder without locking the folder.
    ///
    /// # Errors
    /// The file is missing, damaged or from a later xrun.
    pub fn read(folder: &Path) -> Result<Self, RecordError> {
        let path = folder.join(layout::SWEEP);
        if !path.is_file() {
            return Err(RecordError::NotASweep { folder: folder.to_path_buf() });
        }
        let content = |message: String| RecordError::Content { path: path.clone(), message };
        let bytes = file::bytes(&path, RECORD_BYTES_MAX).map_err(|error| content(error.to_string()))?;
        seal::check_text(&bytes).map_err(|_| content(seal::DAMAGED.into()))?;
        // Its runs are those of the points that it was made of.
        let base = resolved_text::sealed_text(&folder.join(layout::BASE));
        if let Err(ReadError::Content { path, message }) = base {
            return Err(RecordError::Content { path, message });
        }
        let text = String::from_utf8(bytes).map_err(|_| content("is not UTF-8".into()))?;
        let record: Self = toml::from_str(&text).map_err(|error| content(printable::line(error.message(), 400)))?;
        if record.version > VERSION {
            return Err(RecordError::Newer { path, found: record.version });
        }
        let count = record.points.len() as u64;
        let known =
            |&[point, repeat]: &[u64; 2]| (1..=count).contains(&point) && (1..=record.repeats).contains(&repeat);
        let runs = count.checked_mul(record.repeats).filter(|runs| *runs <= RUNS_MAX);
        let each_once = record.order.iter().collect::<BTreeSet<_>>().len() as u64;
        if runs != Some(each_once) || runs != Some(record.order.len() as u64) {
            return Err(content(format!(
                "its order has {} runs, {each_once} of them different, and it should have {count} points times {} \
                 repeats, at most {RUNS_MAX}",
                record.order.len(),
                record.repeats
            )));
        }
        if !record.order.iter().all(known) || record.points.iter().any(|point| point.len() != record.keys.len()) {
            return Err(content("its points and its order do not fit together".into()));
        }
        Ok(record)
    }

    /// A line a point: the file is to be read by people, too.
    fn to_toml(&self) -> String {
        let head = Self { points: Vec::new(), order: Vec::new(), ..self.clone() };
        // Text, numbers and lists of text always serialise.
        let head = toml::to_string(&head).unwrap_or_default();
        let kept = head.lines().filter(|line| !line.starts_with("points = ") && !line.starts_with("order = "));
        let mut text: String = kept.flat_map(|line| [line, "\n"]).collect();
        text.push_str("points = [\n");
        for values in &self.points {
            text.push_str(&format!("    [{}],\n", values.iter().map(written).collect::<Vec<_>>().join(", ")));
        }
        text.push_str("]\norder = [\n");
        for [point, repeat] in &self.order {
            text.push_str(&format!("    [{point}, {repeat}],\n"));
        }
        text.push_str("]\n");
        text
    }
}

/// Where a run of a sweep writes.
pub fn run_folder(sweep: &Path, run: RunId) -> PathBuf {
    sweep.join(layout::POINTS).join(run.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was(
            numbers in proptest::collection::vec((any::<i64>(), any::<f64>().prop_filter("finite", |x| x.is_finite()), ".{0,12}"), 1..6),
            seed in any::<u32>(),
        ) {
            let record = Record {
                version: VERSION,
                experiment: "sample".into(),
                created: now(),
                xrun: "1".into(),
                command: vec!["xrun".into(), "a \"b\"\nc".into()],
                working_directory: "/tmp/è".into(),
                mode: "grid".into(),
                seed,
                repeats: 2,
                experiment_seed: u32::MAX,
                keys: ["a.b", "c", "d", "e"].map(str::to_owned).to_vec(),
                points: numbers.iter().map(|(n, x, text)| vec![json!(n), json!(x), json!(text), json!([1, 2])]).collect(),
                order: order(numbers.len() as u64, 2, seed).into_iter().map(|run| [run.point, run.repeat]).collect(),
            };
            let folder = tempfile::tempdir().unwrap();
            write::replace(&folder.path().join(layout::SWEEP), record.to_toml().as_bytes()).unwrap();
            prop_assert_eq!(Record::read(folder.path()).unwrap(), record.clone());
            let set = record.overrides(RunId { point: 1, repeat: 2 });
            prop_assert_eq!(set.last().unwrap(), "experiment.seed=0");
        }
    }
}
