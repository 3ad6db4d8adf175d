//! Build script: records a digest of the sources and the git commit, and strips symbols of libraries.
//!
//! Without git (a tarball) the commit is empty; the digest still distinguishes programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// Sources of the program; the lock file has the versions of its libraries.
const SOURCES: &[&str] = &["src", "crates", "build.rs", "Cargo.toml"];

/// Environment variable that keeps all symbols, for profilers.
const KEEP_SYMBOLS: &str = "XRUN_KEEP_SYMBOLS";

fn main() {
    strip_library_symbols();
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut files = Vec::new();
    for name in SOURCES {
        println!("cargo:rerun-if-changed={name}");
        collect_files(&root.join(name), &mut files);
    }
    println!("cargo:rerun-if-changed=Cargo.lock");
    println!("cargo:rustc-env=XRUN_SOURCE_DIGEST={}", digest(&root, &mut files));
    let (commit, changed) = commit(&root).unwrap_or_default();
    println!("cargo:rustc-env=XRUN_BUILT_COMMIT={commit}");
    println!("cargo:rustc-env=XRUN_BUILT_WITH_CHANGES={changed}");
    write_examples(&root).expect("the list of examples is written");
}

/// Writes `examples.rs`: names and texts of the committed experiments that need no other file.
#[expect(clippy::disallowed_methods, reason = "cargo runs a build script that was interrupted again")]
fn write_examples(root: &Path) -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=experiments");
    let mut list = String::from("&[\n");
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(root.join("experiments"))? {
        paths.push(entry?.path());
    }
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let text = std::fs::read_to_string(path)?;
        // The trainer of a command is another file.
        if !text.contains("\nextends = ") && !text.contains("\n[pipeline.command]") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            list += &format!("    ({name:?}, include_str!({path:?})),\n");
        }
    }
    std::fs::write(PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("examples.rs"), list + "]\n")
}

/// Strips the symbols of libraries, which would be almost a third of the program. Those of xrun and the markers of short backtraces
/// are exported dynamically, where backtraces and the call stacks of allocations find them.
fn strip_library_symbols() {
    println!("cargo:rerun-if-env-changed={KEEP_SYMBOLS}");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|found| found == value);
    let release = is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if !release || std::env::var_os(KEEP_SYMBOLS).is_some() {
        return;
    }
    let exported = ["_ZN[0-9]xrun*", "_ZN[0-9][0-9]xrun*", "_ZN*_$LT$xrun*", "*_short_backtrace*"]
        .map(|pattern| format!("--export-dynamic-symbol={pattern}"));
    for argument in exported.into_iter().chain(["--strip-all".into()]) {
        println!("cargo:rustc-link-arg-bin=xrun=-Wl,{argument}");
    }
}

/// Collects all files below a path.
fn collect_files(path: &Path, into: &mut Vec<PathBuf>) {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect_files(&entry.path(), into)),
        Err(_) => into.push(path.to_owned()),
    }
}

/// Returns the SHA-256 of names and contents, in the order of the names.
fn digest(root: &Path, files: &mut [PathBuf]) -> String {
    files.sort();
    let mut hasher = Sha256::new();
    for path in files.iter() {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        let content = std::fs::read(path).unwrap_or_default();
        hasher.update(format!("{name}\n{}\n", content.len()));
        hasher.update(&content);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the commit, and `true` if the sources differ from it; `None` without git or if the directory is part of another
/// repository.
fn commit(root: &Path) -> Option<(String, String)> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let top = std::fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()?;
    if top != std::fs::canonicalize(root).ok()? {
        return None;
    }
    // As of the last build of changed sources: rerunning at each commit would rebuild the program.
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", "src", "crates", "build.rs", "Cargo.toml", "Cargo.lock"])?;
    Some((commit, (!changed.is_empty()).to_string()))
}
