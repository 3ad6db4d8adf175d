//! Resources of the trials of a sweep: forecasts of memory, and the decisions that follow from them.
//!
//! ```text
//! probe_group::probe_group an experiment         -> the trials that share a probe
//! forecasts::Forecasts     probes                -> the memory of each trial, and the sizes for Slurm, in `memory.toml`
//! co_schedule::CoSchedule  forecasts, a budget   -> the runs that fit side by side on this machine
//! retry::decide            a run that died       -> one retry with more memory, or none since memory was growing
//! ```

pub mod co_schedule;
pub mod forecasts;
pub mod probe_group;
pub mod retry;

use std::path::{Path, PathBuf};

use crate::records::read_text;
use crate::records::sweep_memory::SweepMemory;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::printable;
use xrun_results::format::VERSION;

/// Largest file: 10,000 trials with a forecast each.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Margin above a forecast: a quarter, and at least this number of bytes.
const MARGIN_FRACTION: u64 = 4;
const MARGIN_MIN: u64 = 256 << 20;

/// `memory.toml` of a sweep cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{} is invalid: {message}; correct the file, or remove it for new forecasts", path.display())]
pub struct SweepMemoryError {
    /// The file.
    pub path: PathBuf,
    /// The reason, as a message.
    pub message: String,
}

/// Reads `memory.toml` of a sweep; `None` where there is none.
///
/// # Errors
/// The file cannot be read or is invalid.
pub fn read_memory(sweep: &Path) -> Result<Option<SweepMemory>, SweepMemoryError> {
    let path = sweep.join(layout::SWEEP_MEMORY);
    let wrong = |message: &str| SweepMemoryError { path: path.clone(), message: printable::line(message, 400) };
    let Some(text) = read_text(&path, FILE_BYTES_MAX).map_err(|message| wrong(&message))? else { return Ok(None) };
    let memory: SweepMemory = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or_else(String::new, |span| {
            let line = text.get(..span.start).map_or(0, |before| before.matches('\n').count()) + 1;
            format!("line {line}: ")
        });
        wrong(&format!("{at}{}", error.message()))
    })?;
    if memory.version > VERSION {
        return Err(wrong("it was written by a newer xrun; update xrun"));
    }
    memory.invalid_reason().map_or(Ok(Some(memory)), |why| Err(wrong(why)))
}

/// Writes `memory.toml` of a sweep.
///
/// # Errors
/// The file cannot be written.
pub fn write_memory(sweep: &Path, memory: &SweepMemory) -> Result<(), WriteError> {
    // Sizes, numbers and lists of numbers always serialise.
    let text = toml::to_string(memory).unwrap_or_default();
    let head = "# Forecast memory of the trials, and the sizes that Slurm is asked for. Sizes may be edited: `sweep --resume` \
                reads them.\n";
    write::replace(&sweep.join(layout::SWEEP_MEMORY), format!("{head}{text}").as_bytes())
}

/// Memory to ask for, for a forecast in bytes: a quarter more, at least 256 MiB more, in whole mebibytes, the unit of Slurm.
pub fn with_margin(needed: u64) -> u64 {
    let margin = (needed / MARGIN_FRACTION).max(MARGIN_MIN);
    needed.saturating_add(margin).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::sweep_memory::{AskedSize, TrialsNeed};
    use xrun_core::units::Bytes;

    #[test]
    fn the_margin_is_a_quarter_and_at_least_256_mebibytes() {
        assert_eq!(with_margin(40 << 20), 296 << 20);
        assert_eq!(with_margin(8 << 30), 10 << 30);
        assert_eq!(with_margin((8 << 30) + 1), (10 << 30) + (1 << 20));
    }

    #[test]
    fn the_record_reads_back_and_an_invalid_file_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_memory(directory.path()).unwrap(), None);
        let memory = SweepMemory {
            version: VERSION,
            sizes: vec![AskedSize { memory: Bytes(300 << 20), trials: vec![1, 2] }],
            forecasts: vec![
                TrialsNeed { host: Bytes(12_345_678), device: None, probed: Some(1), because: None, trials: vec![1] },
                TrialsNeed {
                    host: Bytes(5),
                    device: Some(Bytes(7)),
                    probed: None,
                    because: Some("a \"b\"".into()),
                    trials: vec![2],
                },
            ],
        };
        write_memory(directory.path(), &memory).unwrap();
        assert_eq!(read_memory(directory.path()).unwrap(), Some(memory));
        let path = directory.path().join(layout::SWEEP_MEMORY);
        for (text, part) in [
            ("version = 1\n[[sizes]]\nmemory = \"much\"\ntrials = [1]\n", "line 3: "),
            ("version = 1\n[[sizes]]\nmemory = 0\ntrials = [1]\n", "more memory than 0"),
            ("version = 999\n", "newer xrun"),
            ("version = 1\nsize = 3\n", "unknown field `size`"),
        ] {
            write::replace(&path, text.as_bytes()).unwrap();
            let error = read_memory(directory.path()).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("memory.toml"), "{error}");
        }
    }
}
