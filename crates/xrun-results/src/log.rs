//! The log of a run, written to when the run itself does not.

use std::io::Write;
use std::path::Path;

use super::timestamp::now;
use xrun_core::files::{file, layout};
use xrun_core::printable;

/// Adds lines behind those of the log, each with the time. A run without a log is no reason to fail.
pub fn append(run: &Path, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let text: String = lines.iter().map(|line| format!("{} {}\n", now(), printable::line(line, 2000))).collect();
    let opened = file::open_own(&run.join(layout::LOG), std::fs::OpenOptions::new().create(true).append(true));
    let _ = opened.and_then(|mut file| file.write_all(text.as_bytes()));
}
