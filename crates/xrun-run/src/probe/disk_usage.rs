//! Disk space that a probe used, by kind of file.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use xrun_core::files::{file, layout};
use xrun_results::format::DiskDemand;
use xrun_results::read;

/// Directories nested deeper than this are not part of a run.
const DEPTH_MAX: usize = 6;
/// Largest number of bytes of a file in which lines are counted. A probe is short.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Measures the only run below `results`; `None` if it has no checkpoint.
pub fn measure(results: &Path) -> Option<DiskDemand> {
    let run = directories(results)
        .iter()
        .flat_map(|experiment| directories(experiment))
        .find(|run| run.join(layout::MANIFEST).is_file())?;
    let checkpoint = read::checkpoints(&run).ok()?.iter().map(|(_, path)| size(path, DEPTH_MAX)).max()?;
    let (memory, metrics) = (run.join(layout::MEMORY), run.join(layout::METRICS));
    // Event files have samples and metrics; the samples are the larger part.
    let events = size(&run.join(layout::TENSORBOARD), DEPTH_MAX);
    let growing: u64 = [layout::MEMORY, layout::METRICS, layout::CHECKPOINTS, layout::TENSORBOARD]
        .iter()
        .map(|name| size(&run.join(name), DEPTH_MAX))
        .sum();
    Some(DiskDemand {
        checkpoint,
        sample: mean_line(&memory).saturating_add(events.checked_div(lines(&memory)).unwrap_or_default()),
        metrics_line: mean_line(&metrics),
        rest: size(&run, DEPTH_MAX).saturating_sub(growing),
    })
}

/// Directories in a directory, without symlinks such as `latest`.
fn directories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Bytes of a file, or of all files below a directory.
fn size(path: &Path, depth: usize) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    if found.is_file() {
        return found.len();
    }
    if !found.is_dir() || depth == 0 {
        return 0;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size(&entry.path(), depth - 1)).fold(0, u64::saturating_add)
}

/// Mean number of bytes in a line, rounded up; 0 without lines.
fn mean_line(path: &Path) -> u64 {
    size(path, 0).checked_div(lines(path)).map_or(0, |mean| mean + 1)
}

fn lines(path: &Path) -> u64 {
    let Ok(file) = file::open(path) else { return 0 };
    let bytes = BufReader::new(file.take(READ_BYTES_MAX)).bytes().map_while(Result::ok);
    bytes.filter(|byte| *byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;

    #[test]
    fn checkpoints_lines_and_other_files_are_measured_separately() {
        let results = tempfile::tempdir().unwrap();
        assert_eq!(measure(results.path()), None);
        let run = results.path().join("stage2/2026-11-21T07-56-17_57d022");
        let put = |name: &str, bytes: usize| {
            fs::create_dir_all(run.join(name).parent().unwrap()).unwrap();
            write::replace(&run.join(name), &vec![b'x'; bytes]).unwrap();
        };
        put("manifest.json", 300);
        put("checkpoints/step_00000001/state.json", 10);
        put("checkpoints/step_00000002/state.json", 10);
        put("checkpoints/step_00000002/model/weights", 90);
        write::replace(&run.join("memory.jsonl"), b"123456789\n1234567\n").unwrap();
        let found = measure(results.path()).unwrap();
        assert_eq!(found, DiskDemand { checkpoint: 100, sample: 10, metrics_line: 0, rest: 300 });
    }
}
