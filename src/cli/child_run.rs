//! A run in a separate process, whose heap and memory pool no other run influences.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::terminal::Failure;
use crate::exit::exit_code;
use crate::results::format::Outcome;

/// Run of a process that has ended.
#[derive(Debug)]
pub struct ChildRun {
    /// Directory of the run.
    pub run: PathBuf,
    /// Exit code.
    pub code: u8,
    /// Last message.
    pub message: String,
}

/// Runs `command`, a `run` or `fork`, to its end without progress, even if its plan does not fit. `name` stands in the error.
pub fn run(mut command: Command, name: &str) -> Result<ChildRun, Failure> {
    command.args(["-q", "--json", "--force", "--progress", "none"]);
    let output = command.stderr(Stdio::inherit()).output().map_err(Failure::failed)?;
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| Failure::Failed(format!("{name}: the run printed no JSON")))?;
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let code = output.status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ChildRun {
        run: PathBuf::from(text("run")),
        code: code.unwrap_or(exit_code(Outcome::Failed)),
        message: text("message"),
    })
}
