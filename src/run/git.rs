//! At which commit is a checkout, and what was changed since? Asked so that nothing in the checkout is executed.
//!
//! A checkout may be somebody else's, and git runs commands that its configuration names: of a monitor, of differences,
//! of filters. None is run here, and nothing is fetched.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// Of uncommitted changes; more are cut off.
const PATCH_BYTES_MAX: u64 = 1024 * 1024;
/// Filters of a checkout; with more of them the patch is left out.
const FILTERS_MAX: usize = 64;

/// The commit of a folder, if it is in a checkout and git is there; with `patch` also what is changed.
pub fn state(folder: &Path, patch: bool) -> (Option<String>, Option<String>) {
    let commit = git(folder, &[], &["rev-parse", "HEAD"]).map(|text| text.trim().to_owned());
    let changed = commit.as_ref().filter(|_| patch).and_then(|_| changes(folder)).filter(|patch| !patch.is_empty());
    (commit, changed)
}

/// Whether files of a folder are committed in git, or about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    Yes,
    No,
    /// There is a checkout, and git does not say.
    Unknown,
}

/// Asks git; where there is no checkout, nothing is committed.
pub fn committed(folder: &Path) -> Committed {
    match git(folder, &[], &["ls-files", "--", "."]) {
        Some(files) if files.is_empty() => Committed::No,
        Some(_) => Committed::Yes,
        None if folder.ancestors().any(|above| above.join(".git").exists()) => Committed::Unknown,
        None => Committed::No,
    }
}

fn changes(folder: &Path) -> Option<String> {
    let harmless = without_filters(folder)?;
    git(folder, &harmless, &["diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "HEAD"])
}

/// Configuration that turns off the filters which the checkout itself defines; those of the user are his own.
fn without_filters(folder: &Path) -> Option<Vec<String>> {
    let keys = ["config", "--local", "--includes", "--name-only", "--null", "--get-regexp", "^filter\\."];
    // Fails where there is none.
    let found = git(folder, &[], &keys).unwrap_or_default();
    let mut names: Vec<&str> =
        found.split('\0').filter_map(|key| Some(key.strip_prefix("filter.")?.rsplit_once('.')?.0)).collect();
    names.sort_unstable();
    names.dedup();
    // A name with `=` cannot be set on a command line.
    let settable = names.len() <= FILTERS_MAX && names.iter().all(|name| !name.contains('='));
    let off = |name: &&str| {
        [format!("filter.{name}.clean="), format!("filter.{name}.process="), format!("filter.{name}.required=false")]
    };
    settable.then(|| names.iter().flat_map(off).collect())
}

/// What git says; never more than the cap, whatever it says.
fn git(folder: &Path, configuration: &[String], arguments: &[&str]) -> Option<String> {
    let harmless = ["core.fsmonitor=false", "core.hooksPath=/dev/null", "core.untrackedCache=false"];
    let configuration = harmless.iter().copied().chain(configuration.iter().map(String::as_str));
    let mut child = Command::new("git")
        .args(["--no-optional-locks", "--no-pager"])
        .args(configuration.flat_map(|set| ["-c", set]))
        .arg("-C")
        .arg(folder)
        .args(arguments)
        // A clone without all its objects would fetch them, by commands of its configuration.
        .envs([("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none"), ("GIT_TERMINAL_PROMPT", "0")])
        .env_remove("GIT_EXTERNAL_DIFF")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut bytes = Vec::new();
    let read = child.stdout.take()?.take(PATCH_BYTES_MAX).read_to_end(&mut bytes);
    // The pipe is closed here, so a git that still writes ends.
    let status = child.wait().ok()?;
    let cut_off = bytes.len() as u64 == PATCH_BYTES_MAX;
    (read.is_ok() && (status.success() || cut_off)).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
