//! Commit and uncommitted changes of a checkout, read without executing anything of it.
//!
//! A checkout may come from elsewhere, and its configuration can name commands in many ways: filters, monitors, diff
//! drivers, submodules, included files. So git never reads that configuration. It gets a temporary directory in place
//! of `.git`, with a generated configuration, copies of `HEAD` and of the index, and symlinks to objects and
//! references. A few settings with known values are copied from the checkout. Files that a filter would convert,
//! submodules, and files that are likely to hold secrets are left out. (gitoxide would need no git program, but adds
//! about a hundred crates.)

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::secrets;
use xrun_core::dataset::cache;
use xrun_core::files::file;
use xrun_core::units::pluralize;

/// Maximum size of the patch; the rest is cut off.
const PATCH_BYTES_MAX: u64 = 1024 * 1024;
/// Time limit of a git command: reading a pipe in place of a file would never end.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of changed files or submodules; beyond it the patch is left out.
const PATHS_MAX: usize = 1000;
/// Maximum length of all their names together, as they go onto a command line.
const PATH_BYTES_MAX: u64 = 96 * 1024;
/// Maximum size of a configuration, `HEAD` or attributes file.
const SMALL_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum size of an index: some million files.
const INDEX_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Maximum number of parts of a split index.
const INDEX_PARTS_MAX: usize = 16;

const BOOLEAN: &[&str] = &["true", "false"];
/// Settings that decide how objects, references and files are read. None can name a program or a file.
const COPIED_SETTINGS: &[(&str, &[&str])] = &[
    ("extensions.objectformat", &["sha1", "sha256"]),
    ("extensions.refstorage", &["files", "reftable"]),
    ("core.filemode", BOOLEAN),
    ("core.symlinks", BOOLEAN),
    ("core.ignorecase", BOOLEAN),
    ("core.autocrlf", &["true", "false", "input"]),
    ("core.eol", &["lf", "crlf", "native"]),
];

/// State of the checkout that contains a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckoutState {
    /// Commit; `None` without git, without a checkout, or if git fails.
    pub commit: Option<String>,
    /// Uncommitted changes; `None` if there are none or they were not requested.
    pub patch: Option<String>,
    /// Changes that are not in the patch, for people.
    pub left_out: Option<String>,
}

/// Answer to the question whether git tracks files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// At least one file is tracked.
    Yes,
    /// No file is tracked, or there is no checkout.
    No,
    /// There is a checkout, and git failed.
    Unknown,
}

/// Returns the commit of a directory; with `patch` also its uncommitted changes.
pub fn checkout_state(directory: &Path, patch: bool) -> CheckoutState {
    let checkout = match Checkout::open(directory) {
        Ok(Some(checkout)) => checkout,
        Ok(None) => return CheckoutState::default(),
        Err(why) => {
            let left_out = patch.then(|| format!("the commit and all changes: {why}"));
            return CheckoutState { left_out, ..CheckoutState::default() };
        }
    };
    let Ok(commit) = checkout.text(&["rev-parse", "--verify", "HEAD^{commit}"], &[]) else {
        return CheckoutState::default();
    };
    let commit = Some(commit.trim().to_owned());
    if !patch {
        return CheckoutState { commit, ..CheckoutState::default() };
    }
    match checkout.changes() {
        Ok((patch, left_out)) => {
            CheckoutState { commit, patch: Some(patch).filter(|patch| !patch.is_empty()), left_out }
        }
        Err(why) => CheckoutState { commit, patch: None, left_out: Some(format!("all changes: {why}")) },
    }
}

/// Asks git whether files of a directory are tracked. Without a checkout they are not.
pub fn tracked(directory: &Path) -> Tracked {
    match Checkout::open(directory) {
        Ok(None) => Tracked::No,
        Ok(Some(checkout)) => {
            let files = checkout
                .run(directory, &["ls-files", "-z", "--", "."], &[], |out| out.take(1).read_to_end(&mut Vec::new()));
            match files {
                Ok(0) => Tracked::No,
                Ok(_) => Tracked::Yes,
                Err(_) => Tracked::Unknown,
            }
        }
        Err(_) => Tracked::Unknown,
    }
}

/// A checkout and the temporary directory that replaces its `.git`.
struct Checkout {
    root: PathBuf,
    git_directory: tempfile::TempDir,
}

impl Checkout {
    /// Returns `None` if there is no checkout.
    fn open(directory: &Path) -> io::Result<Option<Self>> {
        let directory = std::fs::canonicalize(directory)?;
        let Some(root) = directory.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok()) else {
            return Ok(None);
        };
        let original = original_git_directory(root)?;
        let shared = match read_small(&original.join("commondir"))? {
            Some(path) => original.join(path.trim_end()),
            None => original.clone(),
        };
        let checkout = Self { root: root.to_path_buf(), git_directory: temporary_directory()? };
        checkout.populate(&original, &shared)?;
        Ok(Some(checkout))
    }

    fn populate(&self, original: &Path, shared: &Path) -> io::Result<()> {
        let target = |name: &str| self.git_directory.path().join(name);
        let link = |from: PathBuf, name: &str| if from.exists() { symlink(&from, &target(name)) } else { Ok(()) };
        for name in ["objects", "refs", "packed-refs"] {
            link(shared.join(name), name)?;
        }
        // In a linked worktree this holds `HEAD` alone, so the commit is unknown there.
        link(original.join("reftable"), "reftable")?;
        let parts = std::fs::read_dir(original)?.flatten().map(|entry| entry.file_name());
        let parts = parts.filter(|name| name.to_string_lossy().starts_with("sharedindex."));
        for name in parts.take(INDEX_PARTS_MAX) {
            symlink(&original.join(&name), &self.git_directory.path().join(&name))?;
        }
        copy(&original.join("HEAD"), &target("HEAD"), SMALL_BYTES_MAX)?;
        copy(&original.join("index"), &target("index"), INDEX_BYTES_MAX)?;
        std::fs::create_dir(target("info"))?;
        copy(&shared.join("info/attributes"), &target("info/attributes"), SMALL_BYTES_MAX)?;
        // Read as a plain file: includes are not followed, and no repository configuration applies yet.
        let copied = target("original");
        copy(&shared.join("config"), &copied, SMALL_BYTES_MAX)?;
        let settings = self.settings(&copied, &["--list"])?;
        let of_worktree = target("original-worktree");
        if effective_value(&settings, "extensions.worktreeconfig").is_some() {
            copy(&original.join("config.worktree"), &of_worktree, SMALL_BYTES_MAX)?;
        }
        self.check_root(original, &[&settings, &self.settings(&of_worktree, &["--list"])?])?;
        // Normalised by git: `no`, `off` and `0` become `false`.
        let pattern = COPIED_SETTINGS.iter().filter(|(_, values)| *values == BOOLEAN).map(|(key, _)| *key);
        let pattern = format!("^({})$", pattern.collect::<Vec<_>>().join("|").replace('.', "\\."));
        let booleans = self.settings(&copied, &["--type=bool", "--get-regexp", &pattern]).unwrap_or_default();
        let configuration = configuration(&(settings + &booleans));
        xrun_core::files::write::replace(&target("config"), configuration.as_bytes()).map_err(|error| error.source)
    }

    /// Settings of a configuration file as `key
    /// value\0`; empty if there is no file.
    fn settings(&self, file: &Path, arguments: &[&str]) -> io::Result<String> {
        if !file.exists() {
            return Ok(String::new());
        }
        let file = file.to_string_lossy();
        self.text(&[&["config", "--file", &file, "--no-includes", "--null"], arguments].concat(), &[])
    }

    /// Rejects a `core.worktree` that names another directory: files there would be compared with the commit. A
    /// submodule names its own root.
    fn check_root(&self, original: &Path, settings: &[&str]) -> io::Result<()> {
        let named = settings.iter().rev().find_map(|settings| effective_value(settings, "core.worktree"));
        match named {
            Some(root) if std::fs::canonicalize(original.join(root)).ok().as_deref() != Some(self.root.as_path()) => {
                Err(io::Error::other("`core.worktree` of the checkout names another directory"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the patch and a description of the changes that are not in it.
    fn changes(&self) -> io::Result<(String, Option<String>)> {
        // Comparing a submodule with its commit would read the submodule's own configuration, so they are marked
        // unchanged in the copied index.
        let submodules = self.run(&self.root, &["ls-files", "--stage", "-z"], &[], submodules)?;
        if !submodules.is_empty() {
            self.text(&["update-index", "--assume-unchanged", "--"], &submodules)?;
        }
        let changed = self.run(&self.root, &["diff", "--name-only", "--no-renames", "-z", "HEAD", "--"], &[], paths)?;
        let (hidden, changed): (Vec<_>, Vec<_>) = changed.into_iter().partition(|path| secrets::is_secret_file(path));
        let filtered = match changed.is_empty() {
            true => Vec::new(),
            false => self.run(&self.root, &["check-attr", "-z", "filter", "--"], &changed, paths_with_filter)?,
        };
        let shown: Vec<String> = changed.into_iter().filter(|path| !filtered.contains(path)).collect();
        let patch = match shown.is_empty() {
            true => String::new(),
            false => {
                let words = ["--literal-pathspecs", "diff", "--no-renames", "--no-color", "HEAD", "--"];
                secrets::mask_text(&self.text(&words, &shown)?)
            }
        };
        let left_out =
            [(hidden.len(), "likely to hold secrets, by name"), (filtered.len(), "that a git filter would convert")];
        let left_out = left_out.iter().filter(|(files, _)| *files > 0);
        let left_out: Vec<String> =
            left_out.map(|(files, why)| format!("{} {why}", pluralize(*files as u64, "changed file"))).collect();
        Ok((patch, Some(left_out.join("; ")).filter(|text| !text.is_empty())))
    }

    fn text(&self, arguments: &[&str], paths: &[String]) -> io::Result<String> {
        self.run(&self.root, arguments, paths, |out| {
            let mut bytes = Vec::new();
            out.take(PATCH_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
    }

    /// Runs git and returns the result of `read` on its output. If `read` stops early, git's exit status is ignored.
    fn run<T: Send + 'static>(
        &self,
        directory: &Path,
        arguments: &[&str],
        paths: &[String],
        read: impl FnOnce(&mut dyn Read) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let mut command = Command::new("git");
        // Removes all variables that could name another repository, configuration or command.
        let inherited = std::env::vars_os().map(|(name, _)| name);
        inherited.filter(|name: &OsString| name.to_string_lossy().starts_with("GIT_")).for_each(|name| {
            command.env_remove(name);
        });
        command
            .arg("--no-pager")
            .arg("-C")
            .arg(directory)
            .args(arguments)
            .args(paths)
            .env("GIT_DIR", self.git_directory.path())
            .env("GIT_WORK_TREE", &self.root)
            .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_OPTIONAL_LOCKS", "0")])
            // Attributes as committed: a file in the checkout may be a pipe.
            .envs([("GIT_ATTR_SOURCE", "HEAD"), ("GIT_NO_REPLACE_OBJECTS", "1")])
            .envs([("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none"), ("GIT_TERMINAL_PROMPT", "0")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let Some(mut out) = child.stdout.take() else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let (answer, answered) = mpsc::sync_channel(1);
        // Not joined after a timeout: it may be blocked in a read.
        std::thread::Builder::new().name("xrun git".into()).spawn(move || {
            let read = read(&mut out);
            let rest = out.read(&mut [0]).unwrap_or_default();
            // Closes the pipe, so that a git that still writes ends.
            drop(out);
            let _ = answer.send((read, rest == 0));
        })?;
        match answered.recv_timeout(TIME_LIMIT) {
            Ok((read, at_end)) => {
                // Either git has closed its output and exits, or it is killed.
                if !at_end {
                    kill(&mut child);
                }
                let status = child.wait()?;
                match status.success() || !at_end {
                    true => read,
                    false => Err(io::Error::other("git could not read the checkout")),
                }
            }
            Err(_) => {
                kill(&mut child);
                let _ = child.wait();
                Err(io::Error::other(format!("git took more than {} s", TIME_LIMIT.as_secs())))
            }
        }
    }
}

/// Creates a directory in the temporary directory or, if that is missing or full, in the cache.
fn temporary_directory() -> io::Result<tempfile::TempDir> {
    tempfile::tempdir().or_else(|error| {
        let cache = cache::directory();
        let in_cache = cache::create(&cache).and_then(|()| tempfile::tempdir_in(&cache));
        in_cache.map_err(|_| io::Error::other(format!("no temporary directory could be created ({error}); set TMPDIR")))
    })
}

/// Effective value of a key. `settings`: output of `git config --null --list`.
fn effective_value<'a>(settings: &'a str, key: &str) -> Option<&'a str> {
    let pairs = settings.split('\0').filter_map(|setting| setting.split_once('\n'));
    pairs.rev().find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// Kills the process group of the child.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    // SAFETY: a signal to the group of a child that is not yet waited for.
    unsafe {
        libc::kill(-(child.id() as i32), libc::SIGKILL);
    }
    let _ = child.kill();
}

/// The directory `.git`, or the one that a file of that name refers to.
fn original_git_directory(root: &Path) -> io::Result<PathBuf> {
    let place = root.join(".git");
    if place.is_dir() {
        return Ok(place);
    }
    let text = read_small(&place)?.unwrap_or_default();
    let path = text.strip_prefix("gitdir:").ok_or_else(|| io::Error::other("`.git` names no directory"))?;
    Ok(root.join(path.trim()))
}

/// Reads a short file; `None` if it does not exist.
fn read_small(path: &Path) -> io::Result<Option<String>> {
    match file::bytes(path, SMALL_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned())),
    }
}

/// Copies a regular file, if it exists, with its modification time: git compares an index with the times of files.
fn copy(from: &Path, to: &Path, max_bytes: u64) -> io::Result<()> {
    let file = match file::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let changed = file.metadata()?.modified()?;
    let mut copy = file::open_own(to, OpenOptions::new().write(true).create_new(true))?;
    if io::copy(&mut file.take(max_bytes), &mut copy)? == max_bytes {
        return Err(io::Error::other("a file of the checkout is too large"));
    }
    copy.set_modified(changed)
}

#[cfg(unix)]
fn symlink(from: &Path, to: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(from, to)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Generated configuration. `settings`: the checkout's, as `git config --null --list` prints them.
fn configuration(settings: &str) -> String {
    let mut text = "[core]\n\trepositoryFormatVersion = 1\n\tbare = false\n".to_owned();
    for (key, values) in COPIED_SETTINGS {
        let last = effective_value(settings, key).map(str::to_lowercase);
        if let (Some(value), Some((section, name))) =
            (last.filter(|value| values.contains(&value.as_str())), key.split_once('.'))
        {
            text += &format!("[{section}]\n\t{name} = {value}\n");
        }
    }
    text
}

/// NUL-terminated texts that `keep` accepts, at most [`PATHS_MAX`].
fn nul_terminated<T>(out: &mut dyn Read, mut keep: impl FnMut(String) -> Option<T>) -> io::Result<Vec<T>> {
    let (mut reader, mut accepted, mut bytes, mut text) = (BufReader::new(out), Vec::new(), 0, Vec::new());
    loop {
        text.clear();
        let length = reader.by_ref().take(PATH_BYTES_MAX).read_until(0, &mut text)? as u64;
        let Some((0, text)) = text.split_last() else {
            return if text.is_empty() { Ok(accepted) } else { Err(io::Error::other("a file name is not terminated")) };
        };
        // A name that is not UTF-8 is skipped: no argument list could hold it.
        let Some(item) = std::str::from_utf8(text).ok().and_then(|text| keep(text.to_owned())) else { continue };
        accepted.push(item);
        bytes += length;
        if accepted.len() > PATHS_MAX || bytes > PATH_BYTES_MAX {
            return Err(io::Error::other("too many files"));
        }
    }
}

fn paths(out: &mut dyn Read) -> io::Result<Vec<String>> {
    nul_terminated(out, Some)
}

/// Parses the output of `ls-files --stage`.
fn submodules(out: &mut dyn Read) -> io::Result<Vec<String>> {
    nul_terminated(out, |line| Some(line.strip_prefix("160000 ")?.split_once('\t')?.1.to_owned()))
}

/// Parses the output of `check-attr`: a path, the attribute's name and its value in turn.
fn paths_with_filter(out: &mut dyn Read) -> io::Result<Vec<String>> {
    let (mut at, mut path) = (0, String::new());
    nul_terminated(out, |text| {
        at += 1;
        match at % 3 {
            1 => path = text,
            0 if text != "unspecified" && text != "unset" => return Some(std::mem::take(&mut path)),
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_values_of_known_settings_are_copied() {
        let original = "core.bare\nfalse\0core.filemode\nfalse\0core.fsmonitor\ntouch a\0extensions.objectformat\nsha256\0\
                      filter.x.clean\ntouch a\0core.eol\nlf\n[filter \"x\"]\0";
        let ours = configuration(original);
        let expected = "[core]\n\trepositoryFormatVersion = 1\n\tbare = false\n\
                        [extensions]\n\tobjectformat = sha256\n[core]\n\tfilemode = false\n";
        assert_eq!(ours, expected);
    }
}
