//! The program as it was built: version, sources, libraries, features.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use super::format::Code;
use super::git;
use xrun_core::dataset::digest::{digest, digest_of_file};

/// The facts of a build that only the package of the program knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Built {
    /// The version of xrun.
    pub version: &'static str,
    /// SHA-256 of the sources.
    pub source_digest: &'static str,
    /// The commit of the sources; empty without git.
    pub commit: &'static str,
    /// Whether the sources differed from the commit: `true`, `false`, or empty without git.
    pub with_changes: &'static str,
    /// The text of `Cargo.lock`.
    pub lock_file: &'static str,
    /// Features that a result may depend on, and whether this build has them.
    pub features: &'static [(&'static str, bool)],
}

static BUILT: OnceLock<Built> = OnceLock::new();

/// Says how this program was built. The first call counts.
pub fn register(built: Built) {
    BUILT.get_or_init(|| built);
}

/// How this program was built; empty texts in a program that did not say.
pub fn built() -> Built {
    BUILT.get().copied().unwrap_or_default()
}

/// Identifies the versions of all libraries that this program was built with.
pub fn lock_digest() -> String {
    digest(built().lock_file.as_bytes())
}

/// Whether kinds of other crates are in this program: their sources are unknown here.
static OTHER_KINDS: AtomicBool = AtomicBool::new(false);

/// The digest of the program's own file. Of hundreds of megabytes, so only a run asks for it.
static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let own = std::env::current_exe().ok().and_then(|path| digest_of_file(&path).ok());
    own.unwrap_or_default()
});

/// Says that this program has kinds that are not xrun's own.
pub fn has_other_kinds() {
    OTHER_KINDS.store(true, Relaxed);
}

/// Identifies the code that answers: xrun's sources, and the program as a whole where kinds of other crates are in it.
pub fn code_digest() -> String {
    match OTHER_KINDS.load(Relaxed) {
        true => digest(format!("{} {}", built().source_digest, *PROGRAM).as_bytes()),
        false => built().source_digest.to_owned(),
    }
}

/// The program that runs, and the checkout it is run in; with `patch` also what was changed there since its commit.
pub fn code(folder: &Path, patch: bool) -> Code {
    let state = git::state(folder, patch);
    let built = built();
    Code {
        xrun: built.version.to_owned(),
        git_commit: state.commit,
        git_patch: state.patch,
        git_left_out: state.left_out,
        features: built.features.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()).collect(),
        lock_digest: lock_digest(),
        source_digest: Some(code_digest()),
        built_commit: Some(built.commit.to_owned()).filter(|commit| !commit.is_empty()),
        built_with_changes: built.with_changes.parse().ok(),
    }
}
