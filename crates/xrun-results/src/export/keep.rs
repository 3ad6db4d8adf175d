//! Copy of a run for version control: its small files, without names of the machine and of its directories.
//!
//! Unlike a public copy ([`super::public`]), it keeps the command, the author's file and the log, and `xrun reproduce` can run
//! it again. Checkpoints, images and the lines of the memory trace are left out; the report still has the curves.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ExportError;
use super::public::read_record;
use crate::proof;
use crate::read;
use crate::report::{self, ReportError};
use crate::resolved;
use crate::secrets;
use xrun_core::files::scratch::Scratch;
use xrun_core::files::{checksum, file, layout, sums, write};
use xrun_core::printable;

const RECORDS: &[&str] = &[layout::MANIFEST, layout::PLAN, layout::VERDICT, layout::POST_MORTEM, layout::SUMMARY];
/// Texts and lines, which have no checksum over replaced names.
const TEXTS: &[&str] = &[layout::EXPERIMENT, layout::LOG];
/// Files that are copied as they are; the trace is removed after the report is written.
const LINES: &[&str] = &[layout::METRICS, layout::MEMORY];
const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Name of the machine in the copy.
const MACHINE: &str = "a machine";
/// Directory in the copy in which the command was called.
const PROJECT: &str = "/project";
/// Directory of the public data sets (`XRUN_REAL_DATA`) in the copy.
const DATA: &str = "/data";
/// Home directory of the user in the copy.
const HOME: &str = "/home/user";

/// Error of keeping a run.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A file cannot be read or written.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The copy exists already.
    #[error("{} exists already; replace it with --replace, or choose a name with --name NAME", path.display())]
    Exists {
        /// Directory of the copy.
        path: PathBuf,
    },
    /// What is to be replaced is not proven to be a kept copy.
    #[error("{} is not replaced, because it is not proven to be a kept result: {reason}; move it away, or choose a name with --name NAME", path.display())]
    Foreign {
        /// Directory that was to be replaced.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The run has not ended, or is one that was kept already.
    #[error("{}: {reason}", run.display())]
    NotKept {
        /// Directory of the run.
        run: PathBuf,
        /// Reason.
        reason: &'static str,
    },
}

impl From<write::WriteError> for KeepError {
    fn from(error: write::WriteError) -> Self {
        Self::Export(error.into())
    }
}

impl From<read::ReadError> for KeepError {
    fn from(error: read::ReadError) -> Self {
        Self::Export(error.into())
    }
}

/// Writes the copy to `results/reference/<name>`; returns its directory. `replace` allows an older copy of this name.
///
/// # Errors
/// The run has not ended, a record is damaged, the copy exists, or it cannot be written.
pub fn keep(run: &Path, results: &Path, name: &str, replace: bool) -> Result<PathBuf, KeepError> {
    let refuse = |reason| Err(KeepError::NotKept { run: run.to_path_buf(), reason });
    if read::summary(run)?.is_none() {
        return refuse("the run has not ended");
    }
    if !run.join(layout::MEMORY).is_file() {
        return refuse("the run has no memory trace, from which the report is drawn; a kept result is not kept again");
    }
    let path = results.join(layout::REFERENCE).join(name);
    install(&path, replace, is_kept_run, |copy| {
        copy_files(run, copy)?;
        report::write(copy)?;
        name_final_place(copy, &path)?;
        for name in [layout::MEMORY, sums::SUMS].map(|name| copy.join(name)) {
            if name.exists() {
                write::with_path(&name, std::fs::remove_file(&name))?;
            }
        }
        Ok(())
    })?;
    Ok(path)
}

/// Fills a temporary directory and puts it at `path`: half a copy would look like a result. An older copy is exchanged for
/// it, so that at each instant one of them is there.
fn install(
    path: &Path,
    replace: bool,
    is_own: impl Fn(&Path) -> Result<(), String>,
    fill: impl FnOnce(&Path) -> Result<(), KeepError>,
) -> Result<(), KeepError> {
    let exists = path.symlink_metadata().is_ok();
    let check = |found: &Path| {
        is_own(found)
            .map_err(|reason| KeepError::Foreign { path: path.to_path_buf(), reason: printable::line(&reason, 400) })
    };
    match exists {
        true if !replace => return Err(KeepError::Exists { path: path.to_path_buf() }),
        true => check(path)?,
        false => {}
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    write::create_directories(parent)?;
    let unfinished = write::with_path(parent, Scratch::create(parent, write::WRITING))?;
    let copy = unfinished.path().join(path.file_name().unwrap_or_default());
    write::with_path(&copy, std::fs::create_dir(&copy))?;
    fill(&copy)?;
    write::with_path(&copy, write::sync_directory(&copy))?;
    if exists {
        write::exchange(&copy, path)?;
        // Another process may have changed it since the check.
        if let Err(error) = check(&copy) {
            write::exchange(&copy, path)?;
            return Err(error);
        }
    } else {
        write::with_path(path, std::fs::rename(&copy, path))?;
    }
    Ok(write::with_path(parent, write::sync_directory(parent))?)
}

fn is_kept_run(copy: &Path) -> Result<(), String> {
    proof::manifest_of(copy, &[layout::SUMMARY]).map_err(|error| error.to_string())?;
    let generated = [layout::REPORT, layout::MEMORY_EPOCHS, layout::RESOLVED, layout::METRICS];
    proof::has_only(copy, &[RECORDS, TEXTS, &generated].concat())
}

fn is_kept_table(copy: &Path) -> Result<(), String> {
    proof::has_only(copy, &[layout::TABLE_JSON])?;
    let table = read_record(&copy.join(layout::TABLE_JSON)).map_err(|error| error.to_string())?;
    let is_table = ["experiment", "sweep", "rows"].iter().all(|key| table.get(key).is_some());
    if is_table { Ok(()) } else { Err(format!("{} is not the table of a sweep", layout::TABLE_JSON)) }
}

/// Writes the table of a sweep to `results/reference/<name>`; returns
/// the directory.
///
/// # Errors
/// The sweep has no table, a file is damaged, the copy exists, or it cannot be written.
pub fn keep_table(sweep: &Path, results: &Path, name: &str, replace: bool) -> Result<PathBuf, KeepError> {
    if !sweep.join(layout::TABLE_JSON).is_file() {
        let reason = "the sweep has no table yet; `xrun sweep --collect` writes it";
        return Err(KeepError::NotKept { run: sweep.to_path_buf(), reason });
    }
    let path = results.join(layout::REFERENCE).join(name);
    install(&path, replace, is_kept_table, |copy| {
        let mut table = read_record(&sweep.join(layout::TABLE_JSON))?;
        let working_directory =
            std::env::current_dir().map_or_else(|_| String::new(), |path| path.display().to_string());
        Names::new(working_directory, String::new()).replace_in(&mut table);
        Ok(write::replace(&copy.join(layout::TABLE_JSON), table.to_string().as_bytes())?)
    })?;
    Ok(path)
}

fn copy_files(run: &Path, copy: &Path) -> Result<(), KeepError> {
    let names = Names::of(run)?;
    for name in RECORDS.iter().filter(|name| run.join(name).exists()) {
        let mut value = read_record(&run.join(name))?;
        names.replace_in(&mut value);
        if *name == layout::MANIFEST {
            names.shorten_manifest(&mut value);
        }
        write::replace_json(&copy.join(name), &value)?;
    }
    if run.join(layout::RESOLVED).exists() {
        let text = resolved::read_text(run)?;
        let text = secrets::mask_experiment(checksum::without_checksum(&text));
        write::replace(&copy.join(layout::RESOLVED), &checksum::text(&names.text(&text)))?;
    }
    for name in TEXTS.iter().filter(|name| run.join(name).exists()) {
        let path = run.join(name);
        let bytes = write::with_path(&path, file::bytes(&path, TEXT_BYTES_MAX))?;
        let text = String::from_utf8_lossy(&bytes);
        let masked = if *name == layout::EXPERIMENT {
            secrets::mask_experiment(&text).into_owned()
        } else {
            secrets::mask_text(&text)
        };
        write::replace(&copy.join(name), names.text(&masked).as_bytes())?;
    }
    for name in LINES.iter().filter(|name| run.join(name).exists()) {
        let path = run.join(name);
        let mut lines = write::with_path(&path, file::open(&path))?;
        write::replace_with(&copy.join(name), |out| io::copy(&mut lines, out).map(drop))?;
    }
    Ok(())
}

/// Replaces the temporary directory in the report by that of the copy.
fn name_final_place(copy: &Path, path: &Path) -> Result<(), KeepError> {
    let page = copy.join(layout::REPORT);
    let bytes = write::with_path(&page, file::bytes(&page, TEXT_BYTES_MAX))?;
    let shown = |path: &Path| printable::line(&path.display().to_string(), 400);
    let text = String::from_utf8_lossy(&bytes).replace(&shown(copy), &shown(path));
    Ok(write::replace(&page, text.as_bytes())?)
}

/// Names of the machine and of its directories, with their replacements.
struct Names {
    machine: String,
    /// Directories, longest first.
    directories: Vec<(String, &'static str)>,
}

impl Names {
    fn of(run: &Path) -> Result<Self, KeepError> {
        let manifest = read::manifest(run)?;
        Ok(Self::new(manifest.working_directory, manifest.host.name))
    }

    fn new(working_directory: String, machine: String) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| value.len() > 1);
        let canonical = |path: String| std::fs::canonicalize(&path).map_or(path, |found| found.display().to_string());
        let mut directories: Vec<(String, &str)> = [
            Some((working_directory, PROJECT)),
            variable("XRUN_REAL_DATA").map(|data| (canonical(data), DATA)),
            variable("HOME").map(|home| (home, HOME)),
        ]
        .into_iter()
        .flatten()
        .filter(|(path, _)| path.len() > 1)
        .collect();
        directories.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self { machine, directories }
    }

    fn text(&self, text: &str) -> String {
        self.directories.iter().fold(text.to_owned(), |text, (path, by)| replace_directory(&text, path, by))
    }

    fn replace_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.replace_in(one)),
            Value::Object(members) => members.values_mut().for_each(|one| self.replace_in(one)),
            _ => {}
        }
    }

    /// Replaces the name of the machine, and the path of the program by its name.
    fn shorten_manifest(&self, manifest: &mut Value) {
        if let Some(name) = manifest.pointer_mut("/host/name").filter(|name| **name == self.machine) {
            *name = MACHINE.into();
        }
        if let Some(program) = manifest.pointer_mut("/command/0")
            && let Some(name) = program.as_str().and_then(|path| path.rsplit('/').next()).map(str::to_owned)
        {
            *program = name.into();
        }
    }
}

/// Replaces a directory where it is not the beginning of another name.
fn replace_directory(text: &str, path: &str, by: &str) -> String {
    let mut rest = text;
    let mut replaced = String::new();
    while let Some(at) = rest.find(path) {
        let after = &rest[at + path.len()..];
        let continues = after.starts_with(|next: char| next.is_alphanumeric() || "_-".contains(next));
        replaced.push_str(&rest[..at]);
        replaced.push_str(if continues { path } else { by });
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{PLAIN, finished};

    #[test]
    fn directories_are_replaced_as_a_whole() {
        let replaced = |text: &str| replace_directory(text, "/home/ada/work", PROJECT);
        assert_eq!(replaced("/home/ada/work/a.toml, \"/home/ada/work\""), "/project/a.toml, \"/project\"");
        assert_eq!(replaced("/home/ada/work2/a and /home/ada/work-b"), "/home/ada/work2/a and /home/ada/work-b");
    }

    #[test]
    fn a_copy_has_the_small_files_and_no_name_of_the_machine() {
        let results = tempfile::tempdir().unwrap();
        let run = finished(results.path(), PLAIN);
        let kept = keep(&run, results.path(), "trial", false).unwrap();
        assert_eq!(kept, results.path().join("reference/trial"));
        let manifest = read::manifest(&kept).unwrap();
        assert_eq!((manifest.host.name.as_str(), manifest.working_directory.as_str()), (MACHINE, PROJECT));
        for name in [layout::MEMORY, layout::CHECKPOINTS, layout::LOCK] {
            assert!(!kept.join(name).exists(), "{name}");
        }
        let page = std::fs::read_to_string(kept.join(layout::REPORT)).unwrap();
        assert!(page.contains("reference/trial") && !page.contains(write::WRITING), "{page}");
        assert!(page.contains("<svg"), "the curves are drawn from the trace, which is left out");
        assert_eq!(read::summary(&kept).unwrap(), read::summary(&run).unwrap());
        let lines = |run: &Path| std::fs::read(run.join(layout::METRICS)).unwrap();
        assert_eq!(lines(&kept), lines(&run));
    }

    #[test]
    fn a_result_is_replaced_only_on_request() {
        let results = tempfile::tempdir().unwrap();
        let run = finished(results.path(), PLAIN);
        let kept = keep(&run, results.path(), "trial", false).unwrap();
        assert!(matches!(keep(&run, results.path(), "trial", false), Err(KeepError::Exists { path }) if path == kept));
        assert_eq!(keep(&run, results.path(), "trial", true).unwrap(), kept);
        assert!(matches!(keep(&kept, results.path(), "again", false), Err(KeepError::NotKept { .. })));
        let names = || std::fs::read_dir(results.path().join("reference")).unwrap().count();
        assert_eq!(names(), 1, "no temporary directory is left");
        // At each place where a kill could fall, there is a whole copy.
        let whole = || read::summary(&kept).unwrap().unwrap();
        let checked = std::cell::Cell::new(0);
        let is_own = |copy: &Path| {
            whole();
            checked.set(checked.get() + 1);
            is_kept_run(copy)
        };
        let files = |copy: &Path| {
            copy_files(&run, copy)
                .and_then(|()| Ok(write::with_path(copy, std::fs::remove_file(copy.join(layout::MEMORY)))?))
        };
        let fill = |copy: &Path| {
            whole();
            files(copy)
        };
        install(&kept, true, is_own, fill).unwrap();
        assert_eq!((checked.get(), names(), kept.join(layout::REPORT).exists()), (2, 1, false), "this is the new one");
        // A file that was added while the copy was written.
        let add = |copy: &Path| {
            write::replace(&kept.join("README.md"), b"mine").unwrap();
            files(copy)
        };
        assert!(matches!(install(&kept, true, is_kept_run, add), Err(KeepError::Foreign { .. })));
        assert!(kept.join("README.md").exists() && names() == 1);
    }
}
