//! What is this program called, in a message that shows a command to type?

use std::sync::OnceLock;

/// Of the program that xrun brings, and of a process that was not started by [`Program::main`](crate::Program::main).
const XRUN: &str = "xrun";

static NAME: OnceLock<String> = OnceLock::new();

/// The first word of a command for this program.
pub fn program() -> &'static str {
    NAME.get().map_or(XRUN, String::as_str)
}

/// Commands are shown with the name of this file from now on. One that a shell would not take as it is stays `xrun`.
pub fn is_called(first_word: &std::ffi::OsStr) {
    let name = std::path::Path::new(first_word).file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let name = name.strip_suffix(std::env::consts::EXE_SUFFIX).unwrap_or(name);
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    if name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(is_plain) {
        // The first call of a process says it for all.
        let _ = NAME.set(name.to_owned());
    }
}
