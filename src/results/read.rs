//! Directory -> records, also of a run that was killed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::format::{LoopState, Manifest, MemoryLine, MetricsLine, PlanFile, PostMortem, Summary, VERSION};
use super::layout;
use super::verdict::Verdict;

/// A file of a result could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{} is not what it should be: {message}", path.display())]
    Content { path: PathBuf, message: String },
    #[error("{} was written by a newer xrun (format {found}, this one reads up to {VERSION}); update xrun", path.display())]
    Newer { path: PathBuf, found: u64 },
}

/// Larger records than this are not ours.
const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longer lines are read as far as this, and so end the file.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

fn record<T: DeserializeOwned>(path: PathBuf) -> Result<T, ReadError> {
    let file_error = |source| ReadError::File { path: path.clone(), source };
    let length = std::fs::metadata(&path).map_err(file_error)?.len();
    if length > RECORD_BYTES_MAX {
        return Err(ReadError::Content { message: format!("{length} bytes long"), path });
    }
    let text = std::fs::read_to_string(&path).map_err(file_error)?;
    let content_error =
        |error: serde_json::Error| ReadError::Content { path: path.clone(), message: error.to_string() };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(content_error)?;
    if let Some(found) = value.get("version").and_then(serde_json::Value::as_u64)
        && found > u64::from(VERSION)
    {
        return Err(ReadError::Newer { path: path.clone(), found });
    }
    serde_json::from_value(value).map_err(content_error)
}

pub fn manifest(run: &Path) -> Result<Manifest, ReadError> {
    record(run.join(layout::MANIFEST))
}

pub fn plan(run: &Path) -> Result<PlanFile, ReadError> {
    record(run.join(layout::PLAN))
}

/// `None` while the run goes on, and after a kill.
pub fn summary(run: &Path) -> Result<Option<Summary>, ReadError> {
    let path = run.join(layout::SUMMARY);
    if path.exists() { record(path).map(Some) } else { Ok(None) }
}

/// `None` while the run goes on, after a kill, and of runs that an older xrun wrote.
pub fn verdict(run: &Path) -> Result<Option<Verdict>, ReadError> {
    let path = run.join(layout::VERDICT);
    if path.exists() { record(path).map(Some) } else { Ok(None) }
}

/// `None` unless a memory limit ended the run.
pub fn post_mortem(run: &Path) -> Result<Option<PostMortem>, ReadError> {
    let path = run.join(layout::POST_MORTEM);
    if path.exists() { record(path).map(Some) } else { Ok(None) }
}

pub fn loop_state(checkpoint: &Path) -> Result<LoopState, ReadError> {
    record(checkpoint.join(layout::LOOP_STATE))
}

/// The lines of a file, one at a time; a last line that was cut off by a kill is left out.
pub fn lines<T: DeserializeOwned>(path: PathBuf) -> Result<impl Iterator<Item = Result<T, ReadError>>, ReadError> {
    let file = File::open(&path).map_err(|source| ReadError::File { path: path.clone(), source })?;
    let mut reader = BufReader::new(file);
    let mut number = 0;
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        number += 1;
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) if line.last() != Some(&b'\n') => None,
            Ok(_) => Some(serde_json::from_slice(&line).map_err(|error| ReadError::Content {
                path: path.clone(),
                message: format!("line {number}: {error}"),
            })),
            Err(source) => Some(Err(ReadError::File { path: path.clone(), source })),
        }
    }))
}

pub fn metrics(run: &Path) -> Result<impl Iterator<Item = Result<MetricsLine, ReadError>>, ReadError> {
    lines(run.join(layout::METRICS))
}

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
