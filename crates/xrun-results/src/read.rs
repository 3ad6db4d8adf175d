//! Reading the records of a run directory, also of a killed run.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::allocations::AllocationRecord;
use super::explanation::Explanation;
use super::format::{
    ClassIndex, ImageEntry, ImageIndex, LoopState, Manifest, MemoryLine, MetricsLine, PlanFile, PostMortem, Summary,
    VERSION, WrittenLines,
};
use super::notes::Notes;
use super::process::ProcessRecord;
use super::verdict::{LineDamage, Verdict};
use xrun_core::files::checksum::LineSum;
use xrun_core::files::{checksum, file, layout};
use xrun_core::printable;
use xrun_core::task::confusion::ClassResult;

/// Error of reading a file of a result.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is missing or cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The record is damaged or was changed.
    #[error("{} is damaged: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Description of the damage, for people; with the line number for `.jsonl` files.
        message: String,
    },
    /// Lines are missing, doubled or out of order; each is whole.
    #[error("{} is damaged: {damage}; restore the file from a copy", path.display())]
    Lines {
        /// The file.
        path: PathBuf,
        /// Number of lines.
        damage: LineDamage,
    },
    /// The record was written by a newer xrun.
    #[error("{} was written by a newer xrun (format {found}, this one reads up to {VERSION}); update xrun", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Format version stated by the record.
        found: u64,
    },
}

/// Maximum size of a record.
const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum length of a line; reading stops at a longer one.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum length of an error message. Messages quote files from elsewhere, so they are escaped: no line breaks or
/// escape sequences.
const MESSAGE_CHARACTERS_MAX: usize = 400;

impl ReadError {
    /// Returns `true` if the file does not exist, which is not damage.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == ErrorKind::NotFound)
    }

    /// Returns `true` if the file may be intact: the system cannot read it now, or a newer xrun wrote it. Then nothing is
    /// removed, replaced or started anew because of it.
    pub fn may_be_intact(&self) -> bool {
        !self.is_missing() && matches!(self, Self::File { .. } | Self::Newer { .. })
    }

    /// Error for a damaged file.
    pub fn content(path: &Path, message: &str) -> Self {
        Self::Content { path: path.to_path_buf(), message: printable::line(message, MESSAGE_CHARACTERS_MAX) }
    }
}

/// A record as JSON, after checking its checksum: a damaged byte may change any value.
pub(crate) fn value(path: &Path) -> Result<Value, ReadError> {
    let bytes =
        file::bytes(path, RECORD_BYTES_MAX).map_err(|source| ReadError::File { path: path.to_path_buf(), source })?;
    checksum::check_record(&bytes).map_err(|_| ReadError::content(path, checksum::DAMAGED))?;
    serde_json::from_slice(&bytes).map_err(|error| ReadError::content(path, &error.to_string()))
}

fn record<T: DeserializeOwned>(path: PathBuf) -> Result<T, ReadError> {
    let value = value(&path)?;
    match value.get("version").and_then(Value::as_u64) {
        Some(found) if found > u64::from(VERSION) => Err(ReadError::Newer { path, found }),
        _ => serde_json::from_value(value).map_err(|error| ReadError::content(&path, &error.to_string())),
    }
}

/// Record that may be missing: `None` if it is, but not if it cannot be read.
fn optional<T>(record: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match record {
        Err(error) if error.is_missing() => Ok(None),
        record => record.map(Some),
    }
}

/// `manifest.json` of a run.
pub fn manifest(run: &Path) -> Result<Manifest, ReadError> {
    record(run.join(layout::MANIFEST))
}

/// `plan.json` of a run.
pub fn plan(run: &Path) -> Result<PlanFile, ReadError> {
    record(run.join(layout::PLAN))
}

/// `summary.json` of a run; `None` while the run is running and after a kill.
pub fn summary(run: &Path) -> Result<Option<Summary>, ReadError> {
    optional(record(run.join(layout::SUMMARY)))
}

/// `verdict.json` of a run; `None` while the run is running and after a kill.
pub fn verdict(run: &Path) -> Result<Option<Verdict>, ReadError> {
    optional(record(run.join(layout::VERDICT)))
}

/// `allocations.json` of a run; `None` unless growth of the heap was suspected.
pub fn allocations(run: &Path) -> Result<Option<AllocationRecord>, ReadError> {
    optional(record(run.join(layout::ALLOCATIONS)))
}

/// `post_mortem.json` of a run; `None` unless a memory limit ended it.
pub fn post_mortem(run: &Path) -> Result<Option<PostMortem>, ReadError> {
    optional(record(run.join(layout::POST_MORTEM)))
}

/// `explanation.json` of a run; `None` unless the growth of a Python program was explained.
pub fn explanation(run: &Path) -> Result<Option<Explanation>, ReadError> {
    optional(record(run.join(layout::EXPLANATION)))
}

/// Notes and tags of a run; empty if there are none.
pub fn notes(run: &Path) -> Result<Notes, ReadError> {
    optional(record(run.join(layout::NOTES))).map(Option::unwrap_or_default)
}

/// `process.json` of a run: facts about its newest process; `None` if there is none.
pub fn process(run: &Path) -> Result<Option<ProcessRecord>, ReadError> {
    optional(record(run.join(layout::PROCESS)))
}

/// Images of the last validation; empty if a run has none.
pub fn images(run: &Path) -> Result<Vec<ImageEntry>, ReadError> {
    let index = optional(record::<ImageIndex>(run.join(layout::IMAGES).join(layout::IMAGES_INDEX)));
    index.map(|index| index.map_or_else(Vec::new, |index| index.images))
}

/// Classes of the last validation; empty if a run has none.
pub fn classes(run: &Path) -> Result<Vec<ClassResult>, ReadError> {
    let index = optional(record::<ClassIndex>(run.join(layout::CLASSES)));
    index.map(|index| index.map_or_else(Vec::new, |index| index.classes))
}

/// `state.json` of a checkpoint's directory.
pub fn loop_state(checkpoint: &Path) -> Result<LoopState, ReadError> {
    record(checkpoint.join(layout::LOOP_STATE))
}

/// Lines that are known to have been written to a file.
#[derive(Clone, Copy, Debug)]
pub struct KnownLines {
    /// All lines, or those up to a checkpoint.
    pub sum: LineSum,
    /// Nothing was written after them.
    pub complete: bool,
}

/// Lines that a run is known to have written: by its summary, or without one by its newest checkpoint.
fn known_lines(run: &Path, select: fn(WrittenLines) -> LineSum) -> Option<KnownLines> {
    if let Ok(Some(summary)) = summary(run) {
        return summary.lines.map(|lines| KnownLines { sum: select(lines), complete: true });
    }
    let newest = checkpoints(run).unwrap_or_default().into_iter().rev().find_map(|(_, path)| loop_state(&path).ok());
    newest.and_then(|state| state.lines).map(|lines| KnownLines { sum: select(lines), complete: false })
}

/// Comparison of the lines of a file with those known.
struct LineCheck<P> {
    known: KnownLines,
    found: LineSum,
    damage: LineDamage,
    previous: Option<u32>,
    highest: Option<P>,
}

impl<P: PartialOrd> LineCheck<P> {
    fn new(known: KnownLines, path: &Path) -> Self {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let damage = LineDamage { file, written: known.sum.lines, ..LineDamage::default() };
        Self { known, found: LineSum::default(), damage, previous: None, highest: None }
    }

    /// Adds a line and its position in the run, `None` for a damaged one.
    fn add(&mut self, line: &[u8], position: Option<P>) {
        if !self.known.complete && self.found.lines == self.known.sum.lines {
            return;
        }
        self.found.add(line);
        let mut single = LineSum::default();
        single.add(line);
        self.damage.damaged += u64::from(position.is_none());
        if self.previous.replace(single.crc32) == Some(single.crc32) {
            self.damage.doubled += 1;
        } else if position.is_some() && position < self.highest {
            self.damage.out_of_order += 1;
        } else if position.is_some() {
            self.highest = position;
        }
    }

    fn end(mut self) -> Option<LineDamage> {
        let (known, found) = (self.known.sum, self.found);
        // Up to a checkpoint later lines take the place of missing ones.
        let repeated = if self.known.complete { self.damage.doubled } else { 0 };
        self.damage.missing = known.lines.saturating_sub(found.lines - repeated);
        // Damaged lines are reported one by one.
        let explained = found.lines == known.lines && self.damage.damaged > 0;
        (found != known && !explained).then_some(self.damage)
    }
}

/// Iterates over the records of a `.jsonl` file. A last line truncated by a kill is skipped. A damaged line is an
/// error, and reading continues after it.
pub fn lines<T: DeserializeOwned>(path: PathBuf) -> Result<impl Iterator<Item = Result<T, ReadError>>, ReadError> {
    checked_lines(path, None, |_| ())
}

/// As [`lines`]; where they are not those known, the last item is [`ReadError::Lines`]. `position` increases in a run.
fn checked_lines<T: DeserializeOwned, P: PartialOrd>(
    path: PathBuf,
    known: Option<KnownLines>,
    position: fn(&T) -> P,
) -> Result<impl Iterator<Item = Result<T, ReadError>>, ReadError> {
    let file = file::open(&path).map_err(|source| ReadError::File { path: path.clone(), source })?;
    let mut reader = BufReader::new(file);
    let (mut number, mut ended) = (0_u64, false);
    let mut check = known.map(|known| LineCheck::new(known, &path));
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        number += 1;
        let content = |message: String| ReadError::content(&path, &format!("line {number}: {message}"));
        while !ended {
            match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(_) if line.last() != Some(&b'\n') => {
                    ended = true;
                    let too_long = line.len() as u64 == LINE_BYTES_MAX;
                    let damage = if too_long { "too long" } else { checksum::DAMAGED };
                    if too_long || is_line_with_damaged_end(&line) {
                        return Some(Err(content(damage.into())));
                    }
                }
                Ok(_) => {
                    let record = parse_line(&line).map_err(content);
                    if let Some(check) = &mut check {
                        check.add(&line, record.as_ref().ok().map(position));
                    }
                    return Some(record);
                }
                Err(source) => {
                    // Reading on would repeat the same error forever.
                    (ended, check) = (true, None);
                    return Some(Err(ReadError::File { path: path.clone(), source }));
                }
            }
        }
        check.take()?.end().map(|damage| Err(ReadError::Lines { path: path.clone(), damage }))
    }))
}

/// Lines of a file that were not handled by [`for_each`].
#[derive(Debug, Default)]
pub struct Skipped {
    /// Number of damaged lines.
    pub lines: u64,
    /// Error of the first of them.
    pub first: Option<ReadError>,
    /// Difference from the lines that were written.
    pub damage: Option<LineDamage>,
    /// Reason why the file, or the rest of it, cannot be read.
    pub error: Option<ReadError>,
}

/// Calls `handle` for each sound line of a file. A missing file is no error.
pub fn for_each<T>(
    lines: Result<impl Iterator<Item = Result<T, ReadError>>, ReadError>,
    mut handle: impl FnMut(T),
) -> Skipped {
    let mut skipped = Skipped::default();
    match lines {
        Err(error) => skipped.error = Some(error).filter(|error| !error.is_missing()),
        Ok(lines) => lines.for_each(|line| match line {
            Ok(line) => handle(line),
            Err(error) => skipped.add(error),
        }),
    }
    skipped
}

impl Skipped {
    /// Adds the error of a line.
    pub fn add(&mut self, error: ReadError) {
        match error {
            ReadError::Content { .. } => {
                self.lines += 1;
                self.first.get_or_insert(error);
            }
            ReadError::Lines { damage, .. } => self.damage = Some(damage),
            error => self.error = Some(error),
        }
    }
}

/// Parses a line, with or without its line break, and checks its checksum.
pub fn parse_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    checksum::check_line(line.strip_suffix(b"\n").unwrap_or(line)).map_err(|_| checksum::DAMAGED.to_owned())?;
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

/// Returns `true` if the end of a file is a valid line followed by one more byte: its line break was damaged. A kill
/// leaves only the beginning of a line.
pub fn is_line_with_damaged_end(line: &[u8]) -> bool {
    line.split_last().is_some_and(|(_, before)| checksum::check_line(before) == Ok(true))
}

/// Records of `metrics.jsonl`, compared with what the run is known to have written. A line is an error if it is damaged, and
/// the last item if lines are missing, doubled or out of order.
pub fn metrics(run: &Path) -> Result<impl Iterator<Item = Result<MetricsLine, ReadError>> + use<>, ReadError> {
    // First, because a running process only appends.
    let known = known_lines(run, |lines| lines.metrics);
    metrics_with(run, known)
}

/// As [`metrics`], compared with these lines.
pub fn metrics_with(
    run: &Path,
    known: Option<KnownLines>,
) -> Result<impl Iterator<Item = Result<MetricsLine, ReadError>> + use<>, ReadError> {
    let position = |line: &MetricsLine| (line.step(), matches!(line, MetricsLine::Validation { .. }));
    checked_lines(run.join(layout::METRICS), known, position)
}

/// Records of `memory.jsonl`, as [`metrics`].
pub fn memory(run: &Path) -> Result<impl Iterator<Item = Result<MemoryLine, ReadError>> + use<>, ReadError> {
    memory_with(run, known_lines(run, |lines| lines.memory))
}

/// As [`memory`], compared with these lines.
pub fn memory_with(
    run: &Path,
    known: Option<KnownLines>,
) -> Result<impl Iterator<Item = Result<MemoryLine, ReadError>> + use<>, ReadError> {
    checked_lines(run.join(layout::MEMORY), known, memory_position)
}

fn memory_position(line: &MemoryLine) -> (u32, u64) {
    (line.segment, line.time_us)
}

/// Memory samples of a file with any name. In the directory of a run they are compared with what it wrote.
pub fn memory_file(path: &Path) -> Result<impl Iterator<Item = Result<MemoryLine, ReadError>> + use<>, ReadError> {
    let run = path.parent().filter(|_| path.file_name().is_some_and(|name| name == layout::MEMORY));
    let known = run.and_then(|run| known_lines(run, |lines| lines.memory));
    checked_lines(path.to_path_buf(), known, memory_position)
}

/// Steps and directories of a run's complete checkpoints, oldest first; empty if their directory is missing.
///
/// # Errors
/// The directory or an entry cannot be read, so that checkpoints may be missing from the list.
pub fn checkpoints(run: &Path) -> Result<Vec<(u64, PathBuf)>, ReadError> {
    let directory = run.join(layout::CHECKPOINTS);
    let unreadable = |path: &Path, source| ReadError::File { path: path.to_path_buf(), source };
    let entries = optional(std::fs::read_dir(&directory).map_err(|source| unreadable(&directory, source)))?;
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten() {
        let path = entry.map_err(|source| unreadable(&directory, source))?.path();
        let step = path.file_name().and_then(|name| layout::checkpoint_step(name.to_str()?));
        let state = path.join(layout::LOOP_STATE);
        match step.map(|step| std::fs::symlink_metadata(&state).map(|_| step)) {
            Some(Ok(step)) => found.push((step, path)),
            Some(Err(error)) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(unreadable(&state, error));
            }
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

/// Number of damaged checkpoints that resumes have set aside.
pub fn damaged_checkpoints(run: &Path) -> u64 {
    let entries = std::fs::read_dir(run.join(layout::CHECKPOINTS)).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(layout::DAMAGED)).count() as u64
}

/// Maximum number of samples in [`newest_memory`].
const NEWEST_MAX: usize = 32;

/// Newest memory samples of a run.
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
