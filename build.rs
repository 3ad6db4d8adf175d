//! Which code is this program made of? A digest of its sources, and the commit where there is git.
//!
//! Without git (a tarball) the commit is left empty and the digest still tells two programs apart.

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// What the program is made of besides its libraries, whose versions the lock file has.
const SOURCES: &[&str] = &["src", "crates", "build.rs", "Cargo.toml"];

/// Keeps all symbols, for a profiler that names every function.
const KEEP_SYMBOLS: &str = "XRUN_KEEP_SYMBOLS";

fn main() {
    leave_symbols_out();
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut files = Vec::new();
    for name in SOURCES {
        println!("cargo:rerun-if-changed={name}");
        collect(&root.join(name), &mut files);
    }
    println!("cargo:rerun-if-changed=Cargo.lock");
    println!("cargo:rustc-env=XRUN_SOURCE_DIGEST={}", digest(&root, &mut files));
    let (commit, changed) = commit(&root).unwrap_or_default();
    println!("cargo:rustc-env=XRUN_BUILT_COMMIT={commit}");
    println!("cargo:rustc-env=XRUN_BUILT_WITH_CHANGES={changed}");
}

/// Nearly a third of the program would be the names of functions of libraries. Ours stay, and the marks between which a
/// backtrace is printed: `xrun` exports them, and a backtrace reads exported names where there are no others.
fn leave_symbols_out() {
    println!("cargo:rerun-if-env-changed={KEEP_SYMBOLS}");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|found| found == value);
    let release = is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if !release || std::env::var_os(KEEP_SYMBOLS).is_some() {
        return;
    }
    let kept =
        ["_ZN[0-9]xrun*", "_ZN[0-9][0-9]xrun*", "*_short_backtrace*"].map(|of| format!("--export-dynamic-symbol={of}"));
    for argument in kept.into_iter().chain(["--strip-all".into()]) {
        println!("cargo:rustc-link-arg-bin=xrun=-Wl,{argument}");
    }
}

fn collect(path: &Path, into: &mut Vec<PathBuf>) {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), into)),
        Err(_) => into.push(path.to_owned()),
    }
}

/// SHA-256 over names and contents, in the order of the names.
fn digest(root: &Path, files: &mut [PathBuf]) -> String {
    files.sort();
    let mut all = Sha256::new();
    for path in files.iter() {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        let content = std::fs::read(path).unwrap_or_default();
        all.update(format!("{name}\n{}\n", content.len()));
        all.update(&content);
    }
    all.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The commit, and `true` when the sources differ from it. `None` without git, or where the folder is part of somebody
/// else's repository.
fn commit(root: &Path) -> Option<(String, String)> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let top = std::fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()?;
    if top != std::fs::canonicalize(root).ok()? {
        return None;
    }
    // Not asked again at each commit, which would build everything anew: as of the last build of changed sources.
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", "src", "crates", "build.rs", "Cargo.toml", "Cargo.lock"])?;
    Some((commit, (!changed.is_empty()).to_string()))
}
