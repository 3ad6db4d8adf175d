//! The command line of this process, as it is recorded.

use super::secrets;
use xrun_core::{invocation, printable};

/// Arguments of this process, with secrets masked.
pub fn command() -> Vec<String> {
    secrets::mask_arguments(
        &std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<String>>(),
    )
}

/// Shell command without `--steps` and `--smoke`; `None` if neither was given. The directory of a shortened run holds
/// the shortened experiment, so rerunning that would be short again.
pub fn command_without_shortening(command: &[String]) -> Option<String> {
    let (mut words, mut short) = (Vec::new(), false);
    let mut rest = command.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--smoke" => short = true,
            "--steps" => {
                short = true;
                rest.next();
            }
            word if word.starts_with("--steps=") => short = true,
            word => words.push(printable::shell_word(word)),
        }
    }
    short.then(|| format!("{} {}", invocation::program(), words.join(" ")))
}
