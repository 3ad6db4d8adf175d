//! The program as it was built: version, sources, libraries, features.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use super::format::Code;
use super::git;
use xrun_core::dataset::digest::{digest, digest_of_file};

/// Facts about the build that only the package of the program knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildInfo {
    /// Version of xrun.
    pub version: &'static str,
    /// SHA-256 of the sources.
    pub source_digest: &'static str,
    /// Commit of the sources; empty without git.
    pub commit: &'static str,
    /// `true` if the sources differed from the commit, `false` if not; empty without git.
    pub with_changes: &'static str,
    /// Text of `Cargo.lock`.
    pub lock_file: &'static str,
    /// Features that may change a result, and whether this build has them.
    pub features: &'static [(&'static str, bool)],
}

static BUILD_INFO: OnceLock<BuildInfo> = OnceLock::new();

/// Registers how this program was built. The first call wins.
pub fn register(info: BuildInfo) {
    BUILD_INFO.get_or_init(|| info);
}

/// Returns the registered build; empty texts if the program registered none.
pub fn build_info() -> BuildInfo {
    BUILD_INFO.get().copied().unwrap_or_default()
}

/// SHA-256 of the lock file: identifies the versions of all libraries.
pub fn lock_digest() -> String {
    digest(build_info().lock_file.as_bytes())
}

/// `true` if the program has kinds from other crates, whose sources are unknown here.
static OTHER_KINDS: AtomicBool = AtomicBool::new(false);

/// SHA-256 of the program's own file. Hundreds of megabytes are hashed, so it is computed on demand.
static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let own = std::env::current_exe().ok().and_then(|path| digest_of_file(&path).ok());
    own.unwrap_or_default()
});

/// Records that this program has kinds from other crates.
pub fn register_foreign_kinds() {
    OTHER_KINDS.store(true, Relaxed);
}

/// Identifies the code: SHA-256 of xrun's sources, and of the whole program if it has kinds from other crates.
pub fn code_digest() -> String {
    match OTHER_KINDS.load(Relaxed) {
        true => digest(format!("{} {}", build_info().source_digest, *PROGRAM).as_bytes()),
        false => build_info().source_digest.to_owned(),
    }
}

/// The running program and the git checkout of `directory`; with `patch` also its uncommitted changes.
pub fn code(directory: &Path, patch: bool) -> Code {
    let state = git::checkout_state(directory, patch);
    let info = build_info();
    Code {
        xrun: info.version.to_owned(),
        git_commit: state.commit,
        git_patch: state.patch,
        git_left_out: state.left_out,
        features: info.features.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()).collect(),
        lock_digest: lock_digest(),
        source_digest: Some(code_digest()),
        built_commit: Some(info.commit.to_owned()).filter(|commit| !commit.is_empty()),
        built_with_changes: info.with_changes.parse().ok(),
    }
}
