//! The command line of this process as records have it.

use super::secrets;
use xrun_core::{invocation, printable};

/// The command line, one entry a word, without secrets.
pub fn command() -> Vec<String> {
    secrets::words(&std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<String>>())
}

/// Of a run that `--steps` or `--smoke` made short, the command without that, for a shell: what lies in its folder is the
/// short experiment, and would give another short run.
pub fn command_of_the_whole(command: &[String]) -> Option<String> {
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
