//! Check that the program and the script of `[pipeline.command]` exist, so that a run does not begin without them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::command::Placeholders;
use super::layers::names_beside;
use crate::problem::{Problem, Problems, nearest};
use crate::settings::command::Command;

/// Programs whose first argument that is a script is run by them, without a version behind their names.
const INTERPRETERS: [&str; 13] = [
    "python",
    "bash",
    "sh",
    "zsh",
    "Rscript",
    "julia",
    "perl",
    "node",
    "ruby",
    "lua",
    "torchrun",
    "accelerate",
    "deepspeed",
];
/// Endings of scripts.
const SCRIPTS: [&str; 8] = ["py", "sh", "R", "jl", "pl", "js", "rb", "lua"];

/// Adds a problem for a program or script that is not there; `section` is that of the command.
pub(super) fn check(command: &Command, section: &str, words: &Placeholders, problems: &mut Problems) {
    let directory = command.working_directory.as_ref().map(PathBuf::from).unwrap_or_default();
    for (field, arguments) in [("program", Some(&command.program)), ("resume", command.resume.as_ref())] {
        let Some(Ok(arguments)) = arguments.map(|arguments| words.fill_all(arguments)) else { continue };
        let Some((program, rest)) = arguments.split_first().filter(|(program, _)| !program.is_empty()) else {
            continue;
        };
        let key = |at: usize| format!("{section}.{field}.{at}");
        if !is_program(program, &directory) {
            let problem = Problem::new(key(0), format!("there is no program {program}")).as_disk_problem();
            problems.add(problem.help("install it, or name its path; relative paths start at `working_directory`"));
        }
        // The run directory is made by the run.
        let script = script(program, rest).filter(|(_, script)| !script.contains('{'));
        if let Some((at, script)) = script.filter(|(_, script)| !directory.join(script).exists()) {
            let place = directory.join(script);
            let problem =
                Problem::new(key(at + 1), format!("there is no script {}", place.display())).as_disk_problem();
            let (name, beside) = (place.file_name().and_then(OsStr::to_str), names_beside(&place));
            let help = name.and_then(|name| nearest(name, beside.iter().map(String::as_str))).map_or_else(
                || "relative paths start at `working_directory`, by default the current directory".to_owned(),
                |near| format!("did you mean {near}?"),
            );
            problems.add(problem.help(help));
        }
    }
}

/// Returns whether a program can be started: by its path, or by a name that `PATH` has.
fn is_program(program: &str, directory: &Path) -> bool {
    if program.contains('/') {
        return directory.join(program).exists() || Path::new(program).exists();
    }
    let Some(path) = std::env::var_os("PATH") else { return true };
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Script that an interpreter or a launcher runs, with its index among the arguments.
fn script<'a>(program: &str, arguments: &'a [String]) -> Option<(usize, &'a str)> {
    let name = Path::new(program).file_name().and_then(OsStr::to_str)?;
    let name = name.trim_end_matches(|character: char| character.is_ascii_digit() || character == '.');
    if !INTERPRETERS.contains(&name) {
        return None;
    }
    let is_script = |word: &str| {
        let ending = Path::new(word).extension().and_then(OsStr::to_str);
        !word.starts_with('-') && ending.is_some_and(|ending| SCRIPTS.contains(&ending))
    };
    for (at, word) in arguments.iter().enumerate() {
        match word.as_str() {
            // What follows is a module, or the program's text.
            "-m" | "-c" | "-e" => return None,
            word if is_script(word) => return Some((at, word)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_an_interpreter_is_its_first_script_and_modules_have_none() {
        let found = |words: &[&str]| {
            let arguments: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
            script(words[0], &arguments).map(|(at, script)| (at, script.to_owned()))
        };
        for (words, expected) in [
            (&["python3", "train.py", "other.py"][..], Some((0, "train.py"))),
            (&["/usr/bin/python3.11", "-u", "-W", "ignore", "a/b.py"], Some((3, "a/b.py"))),
            (&["torchrun", "--nproc-per-node", "2", "train.py", "--x=y.py"], Some((2, "train.py"))),
            (&["python3", "-m", "pkg", "out.py"], None),
            (&["python3", "-c", "print()", "a.py"], None),
            (&["cp", "a.py", "b.py"], None),
            (&["bash", "--login"], None),
        ] {
            assert_eq!(found(words), expected.map(|(at, script)| (at, script.to_owned())), "{words:?}");
        }
        assert!(is_program("sh", Path::new("")) && is_program("/bin/sh", Path::new("/none")));
        assert!(!is_program("no-such-program-of-xrun", Path::new("")) && !is_program("./none", Path::new("/tmp")));
    }
}
