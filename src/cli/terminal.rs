//! How is something said on the terminal? The only file that prints.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use crate::experiment::render;
use crate::printable;
use crate::probe::ProbeError;
use crate::problem::Problems;
use crate::results::format::Outcome;
use crate::stop::{EXIT_BAD_INPUT, exit_code};

/// Standard output for answers, standard error for everything else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal {
    pub quiet: bool,
    pub verbose: bool,
    /// Standard error is read by a program: each line there is an event as JSON.
    pub events: bool,
}

impl Terminal {
    /// An answer. What could not be written is told by [`delivered`], when all else is done.
    pub fn answer(self, text: &str) {
        let mut out = std::io::stdout().lock();
        let line_break = if text.ends_with('\n') { "" } else { "\n" };
        let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(line_break.as_bytes()));
        if let Err(error) = written.and_then(|()| out.flush()) {
            // The first one says why.
            let _ = NOT_WRITTEN.set(error);
        }
    }

    /// Characters in a line of standard output: `COLUMNS`, or what the terminal says; `None` when it is neither.
    pub fn width(self) -> Option<usize> {
        let shown = || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
        asked_width().or_else(shown)
    }

    /// An answer as indented JSON.
    pub fn json(self, value: &impl serde::Serialize) {
        // Records of ours always serialise: their keys are strings.
        self.answer(&safe(&serde_json::to_string_pretty(value).unwrap_or_default()));
    }

    /// A line for people; not with `--quiet`.
    pub fn say(self, text: &str) {
        if !self.quiet {
            self.note(text);
        }
    }

    /// A line for the curious; only with `--verbose`.
    pub fn detail(self, text: &str) {
        if self.verbose {
            self.note(text);
        }
    }

    fn note(self, text: &str) {
        match self.events {
            true => self.event(&serde_json::json!({ "event": "note", "text": text })),
            false => self.line(&plain(text)),
        }
    }

    /// A line of JSON.
    pub fn event(self, value: &serde_json::Value) {
        self.line(&safe(&value.to_string()));
    }

    /// Always said.
    pub fn error(self, text: &str) {
        if self.events {
            return self.event(&serde_json::json!({ "event": "error", "message": text }));
        }
        let (start, end) = if coloured() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        self.line(&format!("{start}error{end}: {}", plain(text)));
    }

    /// What is wrong with a file, with excerpts.
    pub fn problems(self, problems: &Problems) {
        if self.events {
            return self.event(&serde_json::json!({ "event": "problems", "problems": render::json(problems) }));
        }
        self.line(render::text(problems, coloured(), shown_error_width()).trim_end());
    }

    /// A line as it is: made of safe parts by the caller.
    pub fn line(self, text: &str) {
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "{text}");
    }
}

/// Why an answer did not reach standard output.
static NOT_WRITTEN: OnceLock<io::Error> = OnceLock::new();

/// The exit code, when an answer did not reach standard output. A reader that has gone away (`xrun ls | head`) ends the
/// program in silence, as it ends other Unix tools: by SIGPIPE. Anything else is said, and 0 becomes 1.
pub fn delivered(code: u8) -> u8 {
    match NOT_WRITTEN.get() {
        None => code,
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            end_by_pipe();
            code
        }
        Some(error) => {
            Terminal::default().error(&format!("the answer cannot be written to standard output: {error}"));
            if code == 0 { exit_code(Outcome::Failed) } else { code }
        }
    }
}

#[cfg(unix)]
fn end_by_pipe() {
    // SAFETY: the default action of a signal is no code of ours; everything is written and closed by now.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
}

#[cfg(not(unix))]
fn end_by_pipe() {}

/// Whether standard error takes colours.
pub fn coloured() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    // For logs that show colours and are no terminal.
    let forced = set("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    (is_terminal() || forced) && set("NO_COLOR").is_none()
}

/// Characters of a line on standard output: `COLUMNS`, or what the terminal says, or what is comfortable to read.
pub fn width() -> usize {
    Terminal::default().width().unwrap_or(WIDTH_WITHOUT_TERMINAL)
}

/// What the environment asks for.
fn asked_width() -> Option<usize> {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0)
}

const WIDTH_WITHOUT_TERMINAL: usize = 120;

/// Characters of a line on standard error.
pub fn error_width() -> usize {
    shown_error_width().unwrap_or(WIDTH_WITHOUT_TERMINAL)
}

fn shown_error_width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| usize::from(width.0))
}

/// Whether progress can be redrawn.
pub fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Untrusted text cannot drive the terminal: control characters are shown, not obeyed.
pub fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => safe.push(character),
            control if control.is_control() => safe.extend(control.escape_default()),
            // Marks that turn the direction of the text around.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => safe.extend(character.escape_unicode()),
            other => safe.push(other),
        }
    }
    safe
}

/// JSON that means the same, and that does nothing on a terminal: what stands in its texts comes from others. Control
/// characters below U+0020 are escaped in JSON already.
fn safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\n' => safe.push(character),
            _ if printable::dangerous(character) => {
                let mut units = [0; 2];
                let units = character.encode_utf16(&mut units);
                safe.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            other => safe.push(other),
        }
    }
    safe
}

/// Why a command has no answer.
#[derive(Debug)]
pub enum Failure {
    /// What a person wrote is wrong.
    Problems(Problems),
    /// The command line asks for something that is not there.
    Usage(String),
    /// Data, device or disk.
    Failed(String),
    /// The device has no memory for even the model.
    OutOfMemory(String),
    /// By a signal, before there was a run.
    Interrupted(String),
}

impl Failure {
    /// Says it, and answers with the exit code.
    pub fn tell(&self, terminal: &Terminal) -> u8 {
        match self {
            Self::Problems(problems) => terminal.problems(problems),
            Self::Usage(message) | Self::Failed(message) | Self::OutOfMemory(message) => terminal.error(message),
            Self::Interrupted(message) => {
                terminal.error(&format!("{}: {message}", Outcome::Interrupted.words()));
            }
        }
        self.exit_code()
    }

    /// The same for a program that asked for JSON.
    pub fn as_json(&self) -> serde_json::Value {
        let (message, problems) = match self {
            Self::Problems(problems) => {
                let count = problems.iter().count() + problems.left_out;
                let first = problems.iter().next().map_or_else(String::new, ToString::to_string);
                let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
                (format!("{first}{more}"), render::json(problems))
            }
            Self::Usage(message) | Self::Failed(message) | Self::OutOfMemory(message) | Self::Interrupted(message) => {
                (message.clone(), serde_json::json!([]))
            }
        };
        serde_json::json!({ "exit_code": self.exit_code(), "message": message, "problems": problems })
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Problems(_) | Self::Usage(_) => EXIT_BAD_INPUT,
            Self::Failed(_) => exit_code(Outcome::Failed),
            Self::OutOfMemory(_) => exit_code(Outcome::MemoryLimit),
            Self::Interrupted(_) => exit_code(Outcome::Interrupted),
        }
    }

    /// From any error of the environment.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::Stopped => Self::Interrupted(error.to_string()),
            other => Self::failed(other),
        }
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Problems(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_means_the_same_and_turns_nothing_around() {
        let value = serde_json::json!({ "name": "a\u{202e}b\u{9b}2J\u{feff} è 猫", "list": [1, "\n\u{7f}"] });
        let text = safe(&serde_json::to_string_pretty(&value).unwrap());
        assert!(text.contains("a\\u202eb\\u009b2J\\ufeff è 猫") && text.contains("\\u007f"), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(plain("a\x1b[2Jb\u{7}\u{202e}c\n"), "a\\u{1b}[2Jb\\u{7}\\u{202e}c\n");
    }
}
