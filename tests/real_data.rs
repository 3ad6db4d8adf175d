//! Directories of the public data sets that some tests read; `docs/data.md` lists sources, licences and sizes.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The file or directory `path` below the directory that `XRUN_REAL_DATA` names. Where there is none, it says that this test
/// is skipped and why, past the capture of `cargo test`, so that `.ci/run` can count it.
pub fn real_data(path: &str) -> Option<PathBuf> {
    let why = match std::env::var_os("XRUN_REAL_DATA") {
        None => format!("XRUN_REAL_DATA is not set; it names a directory that has {path} (docs/data.md)"),
        Some(directory) => {
            let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).join(path);
            if whole.exists() {
                return Some(whole);
            }
            format!("{} is not there (docs/data.md says where to get it)", whole.display())
        }
    };
    let thread = std::thread::current();
    let mut terminal = std::io::stderr().lock();
    writeln!(terminal, "SKIPPED: {}: {why}", thread.name().unwrap_or("a test")).unwrap();
    None
}
