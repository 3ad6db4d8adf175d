//! Where is kept what can be made again: generated data, probes?

use std::path::PathBuf;

/// `XRUN_CACHE`, or the user's cache folder, or the temporary folder.
pub fn folder() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("XRUN_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("xrun")))
        .or_else(|| named("HOME").map(|folder| folder.join(".cache/xrun")))
        .unwrap_or_else(|| std::env::temp_dir().join("xrun"))
}
