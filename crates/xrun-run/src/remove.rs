//! A run goes: only what is proven to be one, and never one that is running, committed in git, part of a sweep, or behind a
//! link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use xrun_core::dataset::digest::digest;
use xrun_core::files::layout;
use xrun_core::files::write::WriteError;
use xrun_core::printable;
use xrun_results::format::Manifest;
use xrun_results::git;
use xrun_results::git::Committed;
use xrun_results::{index, read};
use xrun_watch::directory;

/// A folder on its way out; a kill in between leaves it, and nothing lists it.
const REMOVING: &str = ".removing-";

/// Why a run stays.
#[derive(Debug, thiserror::Error)]
pub enum Stays {
    #[error("it is not a run: {0}")]
    NoRun(String),
    #[error("a process is writing it; stop that first")]
    Running,
    #[error("files of it are committed in git; `git rm -r` takes them out")]
    Committed,
    #[error("it is in a git checkout, and git does not say whether files of it are committed")]
    Unknown,
    #[error("it is a link; remove what it leads to yourself")]
    Link,
    #[error("it belongs to a sweep, which would run it again; remove the sweep's folder")]
    OfSweep,
    #[error("it was resumed or replaced after it was looked at")]
    Changed,
    #[error("it is gone already")]
    Gone,
    #[error("cannot remove {}: {source}", path.display())]
    Failed { path: PathBuf, source: io::Error },
}

impl Stays {
    fn failed(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            _ => Self::Failed { path: path.to_path_buf(), source },
        }
    }
}

impl From<WriteError> for Stays {
    fn from(error: WriteError) -> Self {
        match error.source.kind() {
            io::ErrorKind::WouldBlock => Self::Running,
            _ => Self::failed(&error.path, error.source),
        }
    }
}

/// A run that may go, as it was looked at.
#[derive(Debug)]
pub struct Removable {
    /// The run's folder.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// SHA-256 of its manifest, which a resume writes again.
    manifest: String,
}

/// Proves that a folder is a run of this program: it has the lock of one, and a manifest that reads and is of the run with
/// the folder's name. Whatever else lies where runs do is somebody's own.
///
/// # Errors
/// It is not, or cannot be looked at.
pub fn proven(run: &Path) -> Result<(), Stays> {
    manifest_of(run, run.file_name().unwrap_or_default()).map(drop)
}

fn manifest_of(folder: &Path, name: &OsStr) -> Result<Manifest, Stays> {
    let found = std::fs::symlink_metadata(folder).map_err(|error| Stays::failed(folder, error))?;
    if found.is_symlink() {
        return Err(Stays::Link);
    }
    let manifest = match [layout::LOCK, layout::MANIFEST].iter().find(|file| !is_file(&folder.join(file))) {
        Some(missing) => Err(format!("it has no file {missing}")),
        None => read::manifest(folder).map_err(|error| error.to_string()),
    };
    match manifest {
        Ok(manifest) if OsStr::new(&manifest.run) == name => Ok(manifest),
        // Another process may remove it at this moment.
        _ if !folder.exists() => Err(Stays::Gone),
        Ok(manifest) => Err(Stays::NoRun(format!(
            "its {} is that of a run called {}",
            layout::MANIFEST,
            printable::line(&manifest.run, 100)
        ))),
        Err(why) => Err(Stays::NoRun(why)),
    }
}

/// Links are not followed: they would prove another folder.
fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Looks at a run and everything that may keep it but its lock; returns the digest of its manifest.
fn looked_at(run: &Path) -> Result<String, Stays> {
    let manifest = manifest_of(run, run.file_name().unwrap_or_default())?;
    if is_of_sweep(run) {
        return Err(Stays::OfSweep);
    }
    match git::committed(run) {
        Committed::Yes => Err(Stays::Committed),
        Committed::Unknown => Err(Stays::Unknown),
        Committed::No => Ok(digest_of(&manifest)),
    }
}

fn digest_of(manifest: &Manifest) -> String {
    digest(&serde_json::to_vec(manifest).unwrap_or_default())
}

/// By the record of the sweep and not by names: an experiment may be called `sweeps`.
fn is_of_sweep(run: &Path) -> bool {
    let points = run.parent().filter(|parent| parent.file_name() == Some(OsStr::new(layout::POINTS)));
    points.and_then(Path::parent).is_some_and(|sweep| sweep.join(layout::SWEEP).is_file())
}

/// A run that may go.
///
/// # Errors
/// Why it stays.
pub fn may_go(run: &Path) -> Result<Removable, Stays> {
    let manifest = looked_at(run)?;
    drop(directory::lock_run(run)?);
    Ok(Removable { path: run.to_path_buf(), bytes: bytes(run), manifest })
}

/// Removes it. What `latest` meant becomes the newest that is left.
///
/// # Errors
/// Why it stays, or what of it cannot be removed.
pub fn remove(run: &Removable) -> Result<(), Stays> {
    let Removable { path, manifest, .. } = run;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Stays::Link) };
    if looked_at(path)? != *manifest {
        return Err(Stays::Changed);
    }
    // Held until it is gone, so that nobody resumes it meanwhile.
    let lock = directory::lock_run(path)?;
    let mut aside = OsString::from(REMOVING);
    aside.push(name);
    let aside = parent.join(aside);
    std::fs::rename(path, &aside).map_err(|error| Stays::failed(path, error))?;
    // Under its new name nobody else works on it: it goes only if it is what was looked at, and what is locked.
    let same = is_this(&lock, &aside.join(layout::LOCK))
        && manifest_of(&aside, name).is_ok_and(|found| digest_of(&found) == *manifest);
    if !same {
        std::fs::rename(&aside, path).map_err(|error| Stays::failed(&aside, error))?;
        return Err(Stays::Changed);
    }
    let cleared = clear(&aside, Some(lock));
    point_latest_elsewhere(parent, name)?;
    cleared
}

/// Removes a folder that was set aside, and what proves that it was a run last: a kill in between leaves what is known
/// again. Another process may do the same.
fn clear(folder: &Path, lock: Option<File>) -> Result<(), Stays> {
    let gone = |path: &Path, result: io::Result<()>| match result.map_err(|error| Stays::failed(path, error)) {
        Err(Stays::Gone) => Ok(()),
        other => other,
    };
    let entries = std::fs::read_dir(folder).map_err(|error| Stays::failed(folder, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| Stays::failed(folder, error))?;
        let path = entry.path();
        if [layout::LOCK, layout::MANIFEST].iter().any(|proof| entry.file_name() == *proof) {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        gone(&path, if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) })?;
    }
    let [manifest, locked] = [layout::MANIFEST, layout::LOCK].map(|file| folder.join(file));
    gone(&manifest, std::fs::remove_file(&manifest))?;
    // A network file system keeps a file that is open, and with it the folder.
    drop(lock);
    gone(&locked, std::fs::remove_file(&locked))?;
    gone(folder, std::fs::remove_dir(folder))
}

fn point_latest_elsewhere(parent: &Path, gone: &OsStr) -> Result<(), Stays> {
    let latest = parent.join(layout::LATEST);
    if std::fs::read_link(&latest).is_ok_and(|target| target.as_os_str() == gone) {
        match newest(parent) {
            Some(newest) => directory::link_latest(parent, &newest),
            None => match std::fs::remove_file(&latest).map_err(|error| Stays::failed(&latest, error)) {
                Ok(()) | Err(Stays::Gone) => {}
                Err(error) => return Err(error),
            },
        }
    }
    Ok(())
}

/// The newest run that is left beside it, also one that has only begun: names begin with the time.
fn newest(parent: &Path) -> Option<String> {
    let entries = std::fs::read_dir(parent).ok()?.flatten();
    let runs = entries.filter(|entry| entry.path().join(layout::LOCK).is_file());
    let names = runs.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.') && name != layout::LATEST).max()
}

/// Folders that a removal left when it was killed.
#[derive(Debug, Default)]
pub struct LeftOver {
    /// Those that are surely what is left of a run.
    pub rests: Vec<PathBuf>,
    /// How many have such a name and are not, or cannot be told.
    pub others: u64,
}

/// Returns the leftovers of killed removals, in the folders of all experiments, or of one.
pub fn left_over(results: &Path, experiment: Option<&str>) -> LeftOver {
    let within = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut left = LeftOver::default();
    let named = |name: &OsStr| experiment.is_none_or(|one| name == one) && !name.to_string_lossy().starts_with('.');
    for parent in within(results).filter(|entry| named(&entry.file_name())) {
        // A link to the folder of an experiment is followed, as where runs are listed.
        let Ok(parent) = std::fs::canonicalize(parent.path()) else { continue };
        for entry in within(&parent).filter(|entry| name_before(&entry.path()).is_some()) {
            let path = entry.path();
            match may_be_cleared(&path) {
                // Another process is at it, or was.
                _ if index::is_locked(&path) => {}
                Err(Stays::Gone) => {}
                Ok(()) if git::committed(&path) == Committed::No => left.rests.push(path),
                _ => left.others += 1,
            }
        }
    }
    left.rests.sort();
    left.rests.dedup();
    left
}

/// Name of the folder of a run before it was set aside.
fn name_before(folder: &Path) -> Option<&OsStr> {
    folder.file_name()?.to_str()?.strip_prefix(REMOVING).map(OsStr::new)
}

/// A rest proves itself as a run does, or there is nothing in it to lose: [`clear`] takes the proof last.
fn may_be_cleared(folder: &Path) -> Result<(), Stays> {
    let proof = manifest_of(folder, name_before(folder).unwrap_or_default()).map(drop);
    let is_bare = |entry: io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let empty = entry.metadata().is_ok_and(|found| found.is_file() && found.len() == 0);
            entry.file_name() == layout::LOCK && empty
        })
    };
    match proof {
        Err(Stays::NoRun(_)) if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_bare)) => Ok(()),
        proof => proof,
    }
}

/// Removes the rest of a run.
///
/// # Errors
/// Why it stays, or what of it cannot be removed.
pub fn remove_rest(folder: &Path) -> Result<(), Stays> {
    // Of a rest whose lock went already, there is nothing else.
    let lock = match directory::lock_run(folder).map_err(Stays::from) {
        Err(Stays::Gone) => None,
        lock => Some(lock?),
    };
    may_be_cleared(folder)?;
    clear(folder, lock)?;
    match (folder.parent(), name_before(folder)) {
        (Some(parent), Some(name)) => point_latest_elsewhere(parent, name),
        _ => Ok(()),
    }
}

/// Whether an open file is the one at a path.
#[cfg(unix)]
fn is_this(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let at = std::fs::symlink_metadata(path);
    open.metadata().ok().zip(at.ok()).is_some_and(|(a, b)| (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

#[cfg(not(unix))]
fn is_this(_: &File, path: &Path) -> bool {
    is_file(path)
}

/// Of all files, links not followed.
pub fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;

    fn run(results: &tempfile::TempDir) -> PathBuf {
        let run = directory::create(results.path(), "trial", "abcdef", chrono::Utc::now()).unwrap();
        describe(&run.path, "2026-11-21T00:00:00Z");
        run.path.clone()
    }

    fn describe(run: &Path, started: &str) {
        let code = serde_json::json!({ "xrun": "1", "features": [], "lock_digest": "" });
        let host = serde_json::json!({ "name": "", "system": "", "processor": "", "instruction_sets": "", "cores": 1 });
        let device = serde_json::json!({ "chosen": "cpu", "because": "", "name": "" });
        let record = serde_json::json!({
            "version": 1, "experiment": "trial", "description": "", "run": run.file_name().unwrap().to_str(),
            "fingerprint": "abcdef", "seed": 1, "command": [], "working_directory": "/", "started": started,
            "resumed": [], "resume_commands": [], "code": code, "host": host, "device": device, "data": {},
            "data_skipped": {}, "origins": {},
        });
        write::replace_json(&run.join(layout::MANIFEST), &record).unwrap();
    }

    #[test]
    fn what_changed_or_went_since_it_was_looked_at_is_not_removed() {
        let results = tempfile::tempdir().unwrap();
        let path = run(&results);
        let removable = may_go(&path).unwrap();
        describe(&path, "2026-11-22T00:00:00Z");
        assert!(matches!(remove(&removable), Err(Stays::Changed)));
        let (one, other) = (may_go(&path).unwrap(), may_go(&path).unwrap());
        let held = directory::reopen(&path).unwrap();
        assert!(matches!(remove(&one), Err(Stays::Running)) && path.exists());
        drop(held);
        remove(&one).unwrap();
        assert!(!path.exists() && matches!(remove(&other), Err(Stays::Gone)));
        assert!(matches!(may_go(&path), Err(Stays::Gone)));
        assert!(std::fs::read_dir(results.path().join("trial")).unwrap().next().is_none(), "`latest` went, too");
    }

    #[test]
    #[cfg(unix)]
    fn neither_a_link_nor_linked_proof_proves_a_run() {
        let results = tempfile::tempdir().unwrap();
        let path = run(&results);
        let link = path.with_file_name("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(proven(&link), Err(Stays::Link)));
        let manifest = path.join(layout::MANIFEST);
        std::fs::rename(&manifest, results.path().join("manifest")).unwrap();
        std::os::unix::fs::symlink(results.path().join("manifest"), &manifest).unwrap();
        assert!(matches!(proven(&path), Err(Stays::NoRun(_))));
    }

    #[test]
    fn every_state_that_a_kill_may_leave_is_known_again() {
        let results = tempfile::tempdir().unwrap();
        let path = run(&results);
        let aside = path.with_file_name(format!("{REMOVING}{}", path.file_name().unwrap().to_str().unwrap()));
        std::fs::rename(&path, &aside).unwrap();
        let known = || left_over(results.path(), Some("trial")).rests == [std::fs::canonicalize(&aside).unwrap()];
        assert!(known() && left_over(results.path(), Some("other")).rests.is_empty());
        std::fs::remove_file(aside.join(layout::MANIFEST)).unwrap();
        assert!(known());
        std::fs::remove_file(aside.join(layout::LOCK)).unwrap();
        assert!(known());
        write::replace(&aside.join("mine"), b"mine").unwrap();
        assert!(!known() && matches!(remove_rest(&aside), Err(Stays::NoRun(_))));
        std::fs::remove_file(aside.join("mine")).unwrap();
        remove_rest(&aside).unwrap();
        assert!(!aside.exists());
    }
}
