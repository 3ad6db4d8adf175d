//! Name of this program in commands that messages suggest.

use std::sync::OnceLock;

/// Default: the name of xrun's own program.
const XRUN: &str = "xrun";

/// Set once for the process by [`set_program_name`].
static NAME: OnceLock<String> = OnceLock::new();

/// First word of a command that runs this program.
pub fn program() -> &'static str {
    NAME.get().map_or(XRUN, String::as_str)
}

/// Sets the program's name to the file name of `argv[0]`. A name that needs quotes in a shell is ignored.
pub fn set_program_name(first_word: &std::ffi::OsStr) {
    let name = std::path::Path::new(first_word).file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let name = name.strip_suffix(std::env::consts::EXE_SUFFIX).unwrap_or(name);
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    if name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(is_plain) {
        // Only the first call counts.
        let _ = NAME.set(name.to_owned());
    }
}
