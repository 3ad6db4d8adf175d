//! Output on the terminal. This is the only file that prints.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use super::problems;
use crate::exit::{EXIT_BAD_INPUT, EXIT_DOES_NOT_FIT, exit_code};
use crate::printable;
use crate::probe::ProbeError;
use crate::problem::Problems;
use crate::report::width;
use crate::results::format::Outcome;
use crate::results::index::IndexError;
use crate::results::verdict::{Tone, TrainingVerdictWord, VerdictWord};

/// Terminal output: stdout for answers, stderr for everything else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal {
    /// Print errors only.
    pub quiet: bool,
    /// Print details as well.
    pub verbose: bool,
    /// Print each line of stderr as a JSON event.
    pub events: bool,
}

impl Terminal {
    /// Prints an answer on stdout. An error is reported by [`final_exit_code`] when everything else is done.
    pub fn print(self, text: &str) {
        let mut out = std::io::stdout().lock();
        let text = &coloured(text, out.is_terminal());
        let line_break = if text.ends_with('\n') { "" } else { "\n" };
        let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(line_break.as_bytes()));
        if let Err(error) = written.and_then(|()| out.flush()) {
            // The first error is the cause.
            let _ = WRITE_ERROR.set(error);
        }
    }

    /// Width of stdout in characters, by `COLUMNS` or the terminal; `None` if neither is known.
    pub fn width(self) -> Option<usize> {
        let shown = || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
        let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
        set.or_else(shown)
    }

    /// Prints an answer as indented JSON.
    pub fn json(self, value: &impl serde::Serialize) {
        // Cannot fail: all maps have strings as keys.
        self.print(&escape_json(&serde_json::to_string_pretty(value).unwrap_or_default()));
    }

    /// Prints an array as indented JSON, value by value.
    pub fn json_array(self, values: impl Iterator<Item = serde_json::Value>) {
        let mut values = values.peekable();
        let mut begin = "[";
        while let Some(value) = values.next() {
            let one = escape_json(&serde_json::to_string_pretty(&[value]).unwrap_or_default());
            let one = one.trim_start_matches('[').trim_end_matches(']').trim_end();
            let end = if values.peek().is_some() { "," } else { "\n]" };
            self.print(&format!("{begin}{}{end}", if begin.is_empty() { one.trim_start_matches('\n') } else { one }));
            begin = "";
        }
        if begin == "[" {
            self.print("[]");
        }
    }

    /// Prints an answer: `value` with `--json`, and the text otherwise.
    pub fn answer(self, json: bool, value: &impl serde::Serialize, text: impl FnOnce() -> String) {
        match json {
            true => self.json(value),
            false => self.print(&text()),
        }
    }

    /// Prints a message, except with `--quiet`.
    pub fn info(self, text: &str) {
        if !self.quiet {
            self.note(text);
        }
    }

    /// Prints a message only with `--verbose`.
    pub fn detail(self, text: &str) {
        if self.verbose {
            self.note(text);
        }
    }

    /// Ends a line that another program has begun on stderr.
    pub fn end_line(self) {
        if !self.quiet && !self.events {
            self.line("");
        }
    }

    fn note(self, text: &str) {
        match self.events {
            true => self.event(&serde_json::json!({ "event": "note", "text": text })),
            false => self.line(&coloured(&folded(&printable::lines(text)), stderr_is_terminal())),
        }
    }

    /// Prints a JSON event on stderr.
    pub fn event(self, value: &serde_json::Value) {
        self.line(&escape_json(&value.to_string()));
    }

    /// Prints an error.
    pub fn error(self, text: &str) {
        if self.events {
            return self.event(&serde_json::json!({ "event": "error", "message": text }));
        }
        let (start, end) = if has_colours(stderr_is_terminal()) { (RED, PLAIN) } else { ("", "") };
        let text = folded(&format!("error: {}", printable::lines(text)));
        self.line(&format!("{start}error{end}{}", text.trim_start_matches("error")));
    }

    /// Prints the problems of a file, with excerpts.
    pub fn problems(self, problems: &Problems) {
        if self.events {
            return self.event(&serde_json::json!({ "event": "problems", "problems": problems::json(problems) }));
        }
        self.line(problems::text(problems, has_colours(stderr_is_terminal()), stderr_terminal_width()).trim_end());
    }

    /// Prints a line unescaped. The caller must have escaped untrusted parts.
    pub fn line(self, text: &str) {
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "{text}");
    }
}

const GREEN: &str = "\x1b[1;32m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const PLAIN: &str = "\x1b[0m";

/// Text in which verdicts have their colours, where they are a cell of a table or begin a value: green if memory is bounded, red
/// if it grows. The same text where a stream shows no colours.
fn coloured(text: &str, is_terminal: bool) -> String {
    if !has_colours(is_terminal) {
        return text.to_owned();
    }
    let of_training = TrainingVerdictWord::ALL.iter().map(|word| word.word());
    let words: Vec<_> = VerdictWord::ALL.iter().map(|word| word.word()).chain(of_training).collect();
    let cell = |cell: &str| {
        let value = cell.split(": ").next().unwrap_or_default().trim();
        let value = value.trim_start_matches("verdict ").trim_start_matches("training ");
        let Some(word) = words.iter().find(|word| word.text == value) else { return cell.to_owned() };
        let colour = match word.tone {
            Tone::Good => GREEN,
            Tone::Busy => YELLOW,
            Tone::Bad => RED,
        };
        cell.replacen(value, &format!("{colour}{value}{PLAIN}"), 1)
    };
    let line = |line: &str| line.split("  ").map(cell).collect::<Vec<_>>().join("  ");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Text for stderr with its lines wrapped at words, if stderr is a terminal. Paths stay whole.
fn folded(text: &str) -> String {
    let width = stderr_terminal_width();
    let line = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len() + INDENT;
        width::fold(line, width.filter(|width| *width > 2 * indent), indent)
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Indentation of the wrapped part of a line.
const INDENT: usize = 2;

/// First error of writing to stdout.
static WRITE_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Exit code with errors of stdout taken into account. A closed pipe (`xrun ls | head`) ends the program by SIGPIPE, as for
/// other Unix tools; any other error is printed, and 0 becomes 1.
pub fn final_exit_code(code: u8) -> u8 {
    match WRITE_ERROR.get() {
        None => code,
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            raise_sigpipe();
            code
        }
        Some(error) => {
            Terminal::default().error(&format!("cannot write to stdout: {error}"));
            if code == 0 { exit_code(Outcome::Failed) } else { code }
        }
    }
}

fn raise_sigpipe() {
    // SAFETY: the default action runs no code of this program, and all files are written by now.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
}

/// Returns true if a stream shows colours.
fn has_colours(is_terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    // For logs that show colours but are not terminals.
    let forced = set("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    (is_terminal || forced) && set("NO_COLOR").is_none()
}

/// Width of stdout in characters, by `COLUMNS`, the terminal or a default.
pub fn stdout_width() -> usize {
    Terminal::default().width().unwrap_or(WIDTH_WITHOUT_TERMINAL)
}

const WIDTH_WITHOUT_TERMINAL: usize = 120;

/// Width of stderr in characters, by the terminal or a default.
pub fn stderr_width() -> usize {
    stderr_terminal_width().unwrap_or(WIDTH_WITHOUT_TERMINAL)
}

fn stderr_terminal_width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| usize::from(width.0))
}

/// Returns true if stderr is a terminal.
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Escapes characters in JSON that could control the terminal; the value is unchanged. JSON already escapes characters below
/// U+0020.
fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\n' => escaped.push(character),
            _ if printable::dangerous(character) => {
                let mut units = [0; 2];
                let units = character.encode_utf16(&mut units);
                escaped.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// Failure of a subcommand.
#[derive(Debug)]
pub enum Failure {
    /// The experiment is invalid.
    Problems(Problems),
    /// The command line is invalid.
    Usage(String),
    /// The data, the device or the disk failed.
    Failed(String),
    /// The device does not have enough memory for the model.
    OutOfMemory(String),
    /// The plan does not fit the limits or the machine.
    DoesNotFit(String),
    /// A signal arrived before the run started.
    Interrupted(String),
}

impl Failure {
    /// Prints the failure and returns its exit code.
    pub fn report(&self, terminal: &Terminal) -> u8 {
        match self {
            Self::Problems(problems) => terminal.problems(problems),
            Self::Usage(message) | Self::Failed(message) | Self::OutOfMemory(message) | Self::DoesNotFit(message) => {
                terminal.error(message)
            }
            Self::Interrupted(message) => {
                terminal.error(&format!("{}: {message}", Outcome::Interrupted.label()));
            }
        }
        self.exit_code()
    }

    /// Failure as JSON.
    pub fn as_json(&self) -> serde_json::Value {
        let (message, problems) = match self {
            Self::Problems(problems) => {
                let count = problems.iter().count() + problems.left_out;
                let first = problems.iter().next().map_or_else(String::new, ToString::to_string);
                let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
                (format!("{first}{more}"), problems::json(problems))
            }
            Self::Usage(message)
            | Self::Failed(message)
            | Self::OutOfMemory(message)
            | Self::DoesNotFit(message)
            | Self::Interrupted(message) => (message.clone(), serde_json::json!([])),
        };
        serde_json::json!({ "exit_code": self.exit_code(), "message": message, "problems": problems })
    }

    /// Exit code of the failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Problems(_) | Self::Usage(_) => EXIT_BAD_INPUT,
            Self::Failed(_) => exit_code(Outcome::Failed),
            Self::OutOfMemory(_) => exit_code(Outcome::MemoryLimit),
            Self::DoesNotFit(_) => EXIT_DOES_NOT_FIT,
            Self::Interrupted(_) => exit_code(Outcome::Interrupted),
        }
    }

    /// Converts an error of the data, the device or the disk.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        Self::Usage(error.to_string())
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
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "name": "a\u{202e}b\u{9b}2J\u{feff} è 猫", "list": [1, "\n\u{7f}"] });
        let text = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(text.contains("a\\u202eb\\u009b2J\\ufeff è 猫") && text.contains("\\u007f"), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
