//! Directory -> records, also of a run that was killed.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::format::{
    LoopState, Manifest, MemoryLine, MetricsLine, PictureEntry, Pictures, PlanFile, PostMortem, Summary, VERSION,
};
use super::notes::Notes;
use super::process::ProcessNote;
use super::verdict::Verdict;
use xrun_core::files::{file, layout, seal};
use xrun_core::printable;

/// A file of a result could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is missing or cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// A record that is damaged, or another thing than was written.
    #[error("{} is not what it should be: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, for people; of lines with the number of the line.
        message: String,
    },
    /// A later xrun wrote the record.
    #[error("{} was written by a newer xrun (format {found}, this one reads up to {VERSION}); update xrun", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of the format that it states.
        found: u64,
    },
}

/// Larger records than this are not ours.
const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longer lines are read as far as this, and so end the file.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

/// More characters of a message about a damaged file help nobody, and a file from elsewhere must not write lines of its
/// own on a terminal.
const MESSAGE_CHARACTERS_MAX: usize = 400;

impl ReadError {
    /// There is no such file, which is no damage.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }

    /// A file is there and is not what it should be.
    pub fn content(path: &Path, message: &str) -> Self {
        Self::Content { path: path.to_path_buf(), message: printable::line(message, MESSAGE_CHARACTERS_MAX) }
    }
}

/// What is looked at first.
#[derive(serde::Deserialize)]
struct OfVersion {
    version: Option<u64>,
}

fn record<T: DeserializeOwned>(path: PathBuf) -> Result<T, ReadError> {
    let bytes =
        file::bytes(&path, RECORD_BYTES_MAX).map_err(|source| ReadError::File { path: path.clone(), source })?;
    // First: what a damaged byte does to a value is anybody's guess.
    seal::check_record(&bytes).map_err(|_| ReadError::content(&path, seal::DAMAGED))?;
    let content_error = |error: serde_json::Error| ReadError::content(&path, &error.to_string());
    let version = serde_json::from_slice::<OfVersion>(&bytes).ok().and_then(|of| of.version);
    if version.is_none_or(|version| version <= u64::from(VERSION))
        && let Ok(record) = serde_json::from_slice(&bytes)
    {
        return Ok(record);
    }
    // Again, more slowly, to find out why not.
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(content_error)?;
    if let Some(found) = value.get("version").and_then(serde_json::Value::as_u64)
        && found > u64::from(VERSION)
    {
        return Err(ReadError::Newer { path: path.clone(), found });
    }
    serde_json::from_value(value).map_err(content_error)
}

/// `manifest.json` of a run.
pub fn manifest(run: &Path) -> Result<Manifest, ReadError> {
    record(run.join(layout::MANIFEST))
}

/// `plan.json` of a run.
pub fn plan(run: &Path) -> Result<PlanFile, ReadError> {
    record(run.join(layout::PLAN))
}

/// `None` while the run goes on, and after a kill.
pub fn summary(run: &Path) -> Result<Option<Summary>, ReadError> {
    let path = run.join(layout::SUMMARY);
    if path.exists() { record(path).map(Some) } else { Ok(None) }
}

/// `None` while the run goes on, and after a kill.
pub fn verdict(run: &Path) -> Result<Option<Verdict>, ReadError> {
    let path = run.join(layout::VERDICT);
    if path.exists() { record(path).map(Some) } else { Ok(None) }
}

/// `None` unless a memory limit ended the run.
pub fn post_mortem(run: &Path) -> Result<Option<PostMortem>, ReadError> {
    let path = run.join(layout::POST_MORTEM);
    if path.exists() { record(path).map(Some) } else { Ok(None) }
}

/// Notes and tags; none where nobody wrote any.
pub fn notes(run: &Path) -> Result<Notes, ReadError> {
    let path = run.join(layout::NOTES);
    if path.exists() { record(path) } else { Ok(Notes::default()) }
}

/// What was noted of the newest process at its start; `None` where nothing was.
pub fn process(run: &Path) -> Result<Option<ProcessNote>, ReadError> {
    let path = run.join(layout::PROCESS);
    if path.exists() { record(path).map(Some) } else { Ok(None) }
}

/// Pictures of the last validation; none where a run has no such folder.
pub fn pictures(run: &Path) -> Result<Vec<PictureEntry>, ReadError> {
    let path = run.join(layout::PICTURES).join(layout::PICTURES_INDEX);
    if !path.exists() {
        return Ok(Vec::new());
    }
    record::<Pictures>(path).map(|found| found.pictures)
}

/// `state.json` of a checkpoint's folder.
pub fn loop_state(checkpoint: &Path) -> Result<LoopState, ReadError> {
    record(checkpoint.join(layout::LOOP_STATE))
}

/// The lines of a file, one at a time; a last line that was cut off by a kill is left out. A line that is not what was
/// written is an error, and those after it are read on.
pub fn lines<T: DeserializeOwned>(path: PathBuf) -> Result<impl Iterator<Item = Result<T, ReadError>>, ReadError> {
    let file = file::open(&path).map_err(|source| ReadError::File { path: path.clone(), source })?;
    let mut reader = BufReader::new(file);
    let (mut number, mut ended) = (0_u64, false);
    Ok(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut line = Vec::new();
        number += 1;
        let content = |message: String| ReadError::content(&path, &format!("line {number}: {message}"));
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) if line.last() != Some(&b'\n') => {
                ended = true;
                let too_long = line.len() as u64 == LINE_BYTES_MAX;
                let damage = if too_long { "is too long" } else { seal::DAMAGED };
                (too_long || is_whole_but_for_its_end(&line)).then(|| Err(content(damage.into())))
            }
            Ok(_) => Some(parsed(&line).map_err(content)),
            Err(source) => {
                // Reading on would give the same error for ever.
                ended = true;
                Some(Err(ReadError::File { path: path.clone(), source }))
            }
        }
    }))
}

/// A line, with or without its line break, as what it says.
pub fn parsed<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    seal::check_line(line.strip_suffix(b"\n").unwrap_or(line)).map_err(|_| seal::DAMAGED.to_owned())?;
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

/// Whether the end of a file is a line with its check and one more byte: its line break was damaged. A kill leaves the
/// beginning of a line, and nothing behind it.
pub fn is_whole_but_for_its_end(line: &[u8]) -> bool {
    line.split_last().is_some_and(|(_, before)| seal::check_line(before) == Ok(true))
}

/// `metrics.jsonl` of a run, as [`lines`] gives it.
pub fn metrics(run: &Path) -> Result<impl Iterator<Item = Result<MetricsLine, ReadError>>, ReadError> {
    lines(run.join(layout::METRICS))
}

/// `memory.jsonl` of a run, as [`lines`] gives it.
pub fn memory(run: &Path) -> Result<impl Iterator<Item = Result<MemoryLine, ReadError>>, ReadError> {
    memory_file(&run.join(layout::MEMORY))
}

/// Samples of a file with any name.
pub fn memory_file(path: &Path) -> Result<impl Iterator<Item = Result<MemoryLine, ReadError>> + use<>, ReadError> {
    lines(path.to_path_buf())
}

/// The whole checkpoints of a run, oldest first.
pub fn checkpoints(run: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(run.join(layout::CHECKPOINTS)) else { return Vec::new() };
    let mut found: Vec<(u64, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((layout::checkpoint_step(entry.file_name().to_str()?)?, entry.path())))
        .filter(|(_, path)| path.join(layout::LOOP_STATE).is_file())
        .collect();
    found.sort();
    found
}

/// Samples that are shown of the end of a run.
const NEWEST_MAX: usize = 32;

/// The newest samples of a run, as they are on the disk.
pub fn newest_memory(run: &Path) -> Vec<MemoryLine> {
    let mut newest = VecDeque::with_capacity(NEWEST_MAX);
    for line in memory(run).into_iter().flatten().flatten() {
        if newest.len() == NEWEST_MAX {
            newest.pop_front();
        }
        newest.push_back(line);
    }
    newest.into()
}
