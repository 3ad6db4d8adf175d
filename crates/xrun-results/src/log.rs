//! Appending to the log of a run from outside the run.

use std::io::Write;
use std::path::Path;

use super::timestamp::now;
use xrun_core::files::{file, layout};
use xrun_core::printable;

/// Appends lines to the log, each with the time. Errors are ignored: a missing log must not fail a command.
pub fn append(run: &Path, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let text: String = lines.iter().map(|line| format!("{} {}\n", now(), printable::line(line, 2000))).collect();
    let opened = file::open_own(&run.join(layout::LOG), std::fs::OpenOptions::new().create(true).append(true));
    let _ = opened.and_then(|mut file| file.write_all(text.as_bytes()));
}
