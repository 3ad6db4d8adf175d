//! Was a subcommand meant where a file is named?

use std::ffi::OsStr;
use std::path::Path;

use clap::CommandFactory;

use super::CommandLine;
use crate::problem::nearest;

/// The subcommand that the first word on the command line was meant to be. Never of an option, nor of a file that is
/// there, nor of a word with a `.` or a `/` in it: those are names of files.
pub fn subcommand_meant(first: &OsStr) -> Option<String> {
    let word =
        first.to_str().filter(|word| !word.is_empty() && !word.starts_with('-') && !word.contains(['.', '/']))?;
    let command = CommandLine::command();
    let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).chain(["help"]).collect();
    if names.contains(&word) || Path::new(word).exists() {
        return None;
    }
    nearest(word, names).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_that_is_nearly_a_subcommand_was_meant_as_one() {
        let meant = |word: &str| subcommand_meant(OsStr::new(word));
        assert_eq!(meant("verdit").as_deref(), Some("verdict"));
        assert_eq!(meant("shwo").as_deref(), Some("show"));
        for word in ["verdict", "help", "--hlep", "verdit.toml", "./verdit", "stage2", ""] {
            assert_eq!(meant(word), None, "{word}");
        }
    }
}
