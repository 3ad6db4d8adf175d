//! Commit and uncommitted changes of a checkout, read without executing anything of it.
//!
//! A checkout may come from elsewhere, and its configuration can name commands that `git diff` executes. Configuration of the
//! user and of the system is not read, monitors and hooks are switched off, and a checkout whose own configuration names
//! filters, diff drivers, monitors or further files gets no patch. Submodules, and files that are likely to hold secrets, are
//! left out. (gitoxide would need no git program, but adds about a hundred crates.)

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::secrets;
use xrun_core::dataset::cache;
use xrun_core::files::file;
use xrun_core::files::scratch::Scratch;
use xrun_core::units::pluralize;

/// Maximum size of the patch; the rest is cut off.
const PATCH_BYTES_MAX: u64 = 1024 * 1024;
/// Time limit of a git command: reading a pipe in place of a file would never end.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of changed files; beyond it the patch is left out.
const PATHS_MAX: usize = 1000;
/// Maximum length of all their names together, as they go onto a command line.
const PATH_BYTES_MAX: usize = 96 * 1024;
/// Maximum size of the file `.git` of a linked worktree or submodule.
const LINK_BYTES_MAX: u64 = 64 * 1024;
/// Maximum size of an index: some million files.
const INDEX_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Arguments of every git command: programs that git would start for reading and writing an index.
const NO_PROGRAMS: &[&str] = &["--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
/// Settings with which a checkout gets no patch, as first and last part of the key: they name programs that `git diff` runs,
/// objects to fetch, or files with further settings.
const EXECUTING_SETTINGS: &[(&str, &str)] = &[
    ("filter.", ""),
    ("diff.", ".command"),
    ("diff.", ".textconv"),
    ("diff.external", ""),
    ("core.fsmonitor", ""),
    ("include", ".path"),
    ("remote.", ".promisor"),
    ("extensions.partialclone", ""),
    ("extensions.worktreeconfig", ""),
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
    // Not peeled, so that no object is read or fetched.
    let Ok(commit) = checkout.text(&["rev-parse", "--verify", "HEAD"], &[]) else { return CheckoutState::default() };
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
        Ok(Some(checkout)) => match output(checkout.command(directory, &["ls-files", "-z", "--", "."], &[])) {
            Ok(files) if files.is_empty() => Tracked::No,
            Ok(_) => Tracked::Yes,
            Err(_) => Tracked::Unknown,
        },
        Err(_) => Tracked::Unknown,
    }
}

/// A checkout, with a copy of its index, which `git diff` would otherwise write.
struct Checkout {
    root: PathBuf,
    git_directory: PathBuf,
    temporary: Scratch,
    /// Output of `git config --list --null` without included files.
    settings: String,
}

impl Checkout {
    /// Returns `None` if there is no checkout.
    fn open(directory: &Path) -> io::Result<Option<Self>> {
        let directory = std::fs::canonicalize(directory)?;
        let Some(root) = directory.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok()) else {
            return Ok(None);
        };
        let git_directory = git_directory(root)?;
        let shared = match read_small(&git_directory.join("commondir"))? {
            Some(path) => git_directory.join(path.trim_end()),
            None => git_directory.clone(),
        };
        let temporary = temporary_directory()?;
        copy(&git_directory.join("index"), &temporary.path().join("index"))?;
        let mut checkout = Self { root: root.to_path_buf(), git_directory, temporary, settings: String::new() };
        checkout.settings = checkout.configuration(&shared.join("config"))?;
        checkout.check_root()?;
        Ok(Some(checkout))
    }

    /// Settings of a configuration file, which git reads as a plain file.
    fn configuration(&self, file: &Path) -> io::Result<String> {
        let file = file.to_string_lossy();
        let words = ["config", "--file", &file, "--no-includes", "--null", "--list"];
        let mut command = self.command(&self.root, &words, &[]);
        command.env("GIT_DIR", self.temporary.path());
        output(command)
    }

    /// Rejects a `core.worktree` that names another directory: files there would be compared with the commit. A
    /// submodule names its own root.
    fn check_root(&self) -> io::Result<()> {
        match self.settings().filter(|(key, _)| *key == "core.worktree").last() {
            Some((_, root))
                if std::fs::canonicalize(self.git_directory.join(root)).ok().as_ref() != Some(&self.root) =>
            {
                Err(io::Error::other("`core.worktree` of the checkout names another directory"))
            }
            _ => Ok(()),
        }
    }

    fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings
            .split('\0')
            .filter(|setting| !setting.is_empty())
            .map(|one| one.split_once('\n').unwrap_or((one, "")))
    }

    /// Returns the patch and a description of the changes that are not in it.
    fn changes(&self) -> io::Result<(String, Option<String>)> {
        let is_off = |value: &str| ["false", "no", "off", "0"].contains(&value);
        let executing = self.settings().find(|(key, value)| {
            let matches = |(first, last): &(&str, &str)| key.starts_with(first) && key.ends_with(last);
            EXECUTING_SETTINGS.iter().any(matches) && !is_off(value)
        });
        if let Some((key, _)) = executing {
            let why = format!("the checkout sets `{key}`, with which git could execute or fetch something");
            return Err(io::Error::other(why));
        }
        let diff = ["--literal-pathspecs", "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all"];
        let diff = [&diff[..], &["--no-renames", "--no-color"]].concat();
        let names = [&diff[..], &["--name-only", "-z", "HEAD", "--"]].concat();
        let changed = self.text(&names, &[])?;
        if changed.len() > PATH_BYTES_MAX || changed.matches('\0').count() > PATHS_MAX {
            return Err(io::Error::other("too many files"));
        }
        // A name that is not UTF-8 is skipped: no argument list could hold it.
        let is_text = |path: &&str| !path.is_empty() && !path.contains(char::REPLACEMENT_CHARACTER);
        let changed = changed.split('\0').filter(is_text).map(str::to_owned);
        let (hidden, shown): (Vec<_>, Vec<_>) = changed.partition(|path| secrets::is_secret_file(path));
        let patch = match shown.is_empty() {
            true => String::new(),
            false => secrets::mask_text(&self.text(&[&diff[..], &["HEAD", "--"]].concat(), &shown)?),
        };
        let files = pluralize(hidden.len() as u64, "changed file");
        let left_out = format!("{files} likely to hold secrets, by name");
        Ok((patch, (!hidden.is_empty()).then_some(left_out)))
    }

    fn text(&self, arguments: &[&str], paths: &[String]) -> io::Result<String> {
        output(self.command(&self.root, arguments, paths))
    }

    fn command(&self, directory: &Path, arguments: &[&str], paths: &[String]) -> Command {
        let mut command = Command::new("git");
        // Removes all variables that could name another repository, configuration or command.
        let inherited = std::env::vars_os().map(|(name, _)| name);
        inherited.filter(|name: &OsString| name.to_string_lossy().starts_with("GIT_")).for_each(|name| {
            command.env_remove(name);
        });
        command
            .args(NO_PROGRAMS)
            .arg("-C")
            .arg(directory)
            .args(arguments)
            .args(paths)
            .env("GIT_DIR", &self.git_directory)
            .env("GIT_WORK_TREE", &self.root)
            .env("GIT_INDEX_FILE", self.temporary.path().join("index"))
            .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_OPTIONAL_LOCKS", "0")])
            // Attributes as committed: a file in the checkout may be a pipe.
            .envs([("GIT_ATTR_SOURCE", "HEAD"), ("GIT_NO_REPLACE_OBJECTS", "1")])
            .envs([("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none"), ("GIT_TERMINAL_PROMPT", "0")]);
        command
    }
}

/// Runs git and returns its output, at most [`PATCH_BYTES_MAX`]. If there is more, git's exit status is ignored.
fn output(mut command: Command) -> io::Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    let Some(mut out) = child.stdout.take() else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let (answer, answered) = mpsc::sync_channel(1);
    // Not joined after a timeout: it may be blocked in a read.
    std::thread::Builder::new().name("xrun git".into()).spawn(move || {
        let mut bytes = Vec::new();
        let read = out.by_ref().take(PATCH_BYTES_MAX).read_to_end(&mut bytes);
        let read = read.map(|_| String::from_utf8_lossy(&bytes).into_owned());
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

/// Creates a directory in the temporary directory or, if that is missing or full, in the cache.
fn temporary_directory() -> io::Result<Scratch> {
    let create = |parent: &Path| Scratch::create(parent, "xrun-git-");
    create(&std::env::temp_dir()).or_else(|error| {
        let cache = cache::directory();
        let in_cache = cache::create(&cache).and_then(|()| create(&cache));
        in_cache.map_err(|_| io::Error::other(format!("no temporary directory could be created ({error}); set TMPDIR")))
    })
}

/// Kills the process group of the child.
fn kill(child: &mut Child) {
    // SAFETY: a signal to the group of a child that is not yet waited for.
    unsafe {
        libc::kill(-(child.id() as i32), libc::SIGKILL);
    }
    let _ = child.kill();
}

/// The directory `.git`, or the one that a file of that name refers to.
fn git_directory(root: &Path) -> io::Result<PathBuf> {
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
    match file::bytes(path, LINK_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned())),
    }
}

/// Copies a regular file, if it exists, with its modification time: git compares an index with the times of files.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let file = match file::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let changed = file.metadata()?.modified()?;
    let mut copy = file::open_own(to, OpenOptions::new().write(true).create_new(true))?;
    if io::copy(&mut file.take(INDEX_BYTES_MAX), &mut copy)? == INDEX_BYTES_MAX {
        return Err(io::Error::other("the index of the checkout is too large"));
    }
    copy.set_modified(changed)
}
