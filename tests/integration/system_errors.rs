//! Errors of the system that are no damage: files that cannot be read, locks that fail or hold on one machine only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::workplace::{Output, Workplace, lines_with, skipped, text, wait_until};

const EXPERIMENT: &str = include_str!("../experiments/tiny/cut.toml");

/// `read` fails with the error `FAILS` for files whose path has `IN`; `flock` does nothing, or fails with the error `LOCK`;
/// `renameat2` fails.
const PRELOAD: &str = include_str!("../stand_in/faults.c");

/// Workplace with a run that stopped after step 40 of 60, and the library of faults; `None` without a C compiler.
fn workplace() -> Option<(Workplace, PathBuf)> {
    let workplace = Workplace::with("cut.toml", EXPERIMENT);
    let source = workplace.file("faults.c", PRELOAD);
    let library = source.with_extension("so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").status();
    if !compiled.is_ok_and(|status| status.success()) {
        skipped("no C compiler");
        return None;
    }
    workplace.exits(0, &["cut.toml", "-q", "--until", "40"]);
    let run = workplace.latest("cut");
    Some((workplace, run))
}

fn faulty(workplace: &Workplace, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = workplace.command(arguments);
    command.env("LD_PRELOAD", workplace.path("faults.so")).envs(environment.iter().copied());
    command
}

fn resume(workplace: &Workplace, run: &Path, further: &[&str]) -> Output {
    workplace.xrun(&[&["resume", run.to_str().unwrap()], further].concat())
}

/// All files of a directory with their bytes.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => all.extend(contents(&path)),
            false => drop(all.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    all
}

/// The metrics of a run that nobody disturbed.
fn undisturbed(workplace: &Workplace) -> String {
    workplace.finished("whole", EXPERIMENT);
    text(&workplace.latest("whole").join("metrics.jsonl"))
}

fn metrics(run: &Path) -> String {
    text(&run.join("metrics.jsonl"))
}

#[test]
fn a_file_that_cannot_be_read_ends_the_command_and_nothing_changes() {
    let Some((workplace, run)) = workplace() else { return };
    let name = run.to_str().unwrap();
    let before = contents(&run);
    for error in [libc::EIO, libc::ESTALE, libc::EACCES] {
        for file in
            ["step_00000040/model.safetensors", "/model.safetensors", "state.json", "memory.jsonl", "summary.json"]
        {
            for command in [&["resume", name, "--from-start"][..], &["fork", name, "-s", "experiment.seed=2"]] {
                if command[0] == "fork" && !file.contains('/') && file != "state.json" {
                    continue; // It reads the checkpoint only.
                }
                let ended = Output::from(
                    faulty(&workplace, command, &[("IN", file), ("FAILS", &error.to_string())]).output().unwrap(),
                );
                let named = ended.err.contains(file.rsplit('/').next().unwrap());
                assert!(ended.code == 1 && named, "{error} {file} {command:?}: {ended:?}");
                assert!(contents(&run) == before, "{error} {file} {command:?}");
            }
        }
    }
    assert_eq!(std::fs::read_dir(run.parent().unwrap()).unwrap().count(), 2, "the run, `latest`, and no fork");
    assert_eq!(resume(&workplace, &run, &[]).code, 0);
    assert_eq!(metrics(&run), undisturbed(&workplace));
}

#[test]
fn lost_checkpoints_are_said_and_a_start_from_step_0_is_asked_for() {
    let Some((workplace, run)) = workplace() else { return };
    let (checkpoints, away) = (run.join("checkpoints"), workplace.path("away"));
    std::fs::rename(&checkpoints, &away).unwrap();
    let before = contents(&run);
    // Gone, and the mount point of a disk that is not there.
    for _ in 0..2 {
        let refused = resume(&workplace, &run, &[]);
        assert!(refused.code == 1 && refused.err.contains("--from-start"), "{refused:?}");
        assert!(contents(&run) == before);
        let _ = std::fs::create_dir(&checkpoints);
    }
    insta::assert_snapshot!(lines_with(&resume(&workplace, &run, &[]).err, "error: "));
    std::fs::remove_dir(&checkpoints).unwrap();
    std::fs::rename(&away, &checkpoints).unwrap();
    for entry in std::fs::read_dir(&checkpoints).unwrap() {
        std::fs::write(entry.unwrap().path().join("model.safetensors"), b"other").unwrap();
    }
    let before = contents(&run);
    let refused = resume(&workplace, &run, &[]);
    assert!(refused.code == 1 && contents(&run) == before, "{refused:?}");
    let started = resume(&workplace, &run, &["--from-start"]);
    assert_eq!(started.code, 0, "{started:?}");
    assert_eq!(metrics(&run), undisturbed(&workplace));
    let aside = std::fs::read_dir(&checkpoints).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(aside.filter(|name| name.starts_with(".damaged-step_")).count(), 3, "nothing is removed");
    assert!(workplace.xrun(&["show", run.to_str().unwrap()]).out.contains("3 damaged checkpoints"));
}

#[test]
fn a_file_system_without_lock_service_is_named_and_leaves_no_empty_run() {
    let Some((workplace, run)) = workplace() else { return };
    let refusing = [("LOCK", &*libc::ENOLCK.to_string())];
    let ended = Output::from(faulty(&workplace, &["cut.toml", "--results", "other"], &refusing).output().unwrap());
    assert_eq!(ended.code, 1, "{ended:?}");
    insta::assert_snapshot!(lines_with(&ended.err, "error: "));
    assert_eq!(std::fs::read_dir(workplace.path("other/cut")).unwrap().count(), 0);
    let before = contents(&run);
    assert_eq!(faulty(&workplace, &["resume", run.to_str().unwrap()], &refusing).status().unwrap().code(), Some(1));
    let kept = Output::from(faulty(&workplace, &["rm", "--yes", run.to_str().unwrap()], &refusing).output().unwrap());
    assert!(kept.code == 1 && kept.err.contains("start its lock service"), "{kept:?}");
    assert!(contents(&run) == before);
}

/// Resumes the run slowly, and waits until it has written more lines.
fn resume_slowly(workplace: &Workplace, run: &Path, preload: bool) -> Child {
    let arguments = ["resume", run.to_str().unwrap(), "-q", "-s", "limits.metrics_queue=1"];
    let before = metrics(run).lines().count();
    let mut command = if preload { faulty(workplace, &arguments, &[]) } else { workplace.command(&arguments) };
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("the resumed run writes", || metrics(run).lines().count() > before);
    child
}

#[test]
fn of_two_processes_that_hold_one_run_the_first_ends_and_no_line_is_doubled() {
    let Some((workplace, _)) = workplace() else { return };
    let expected = undisturbed(&workplace);
    let slow = EXPERIMENT.replace("microseconds = 100", "microseconds = 20000");
    workplace.file("slow.toml", &slow);
    // A lock that holds on another machine only, and one that was removed.
    for preload in [true, false] {
        workplace.exits(0, &["slow.toml", "-q", "--until", "10"]);
        let run = workplace.latest("slow");
        let first = resume_slowly(&workplace, &run, preload);
        if !preload {
            std::fs::remove_file(run.join("run.lock")).unwrap();
        }
        let arguments = ["resume", run.to_str().unwrap(), "-q"];
        let mut second = if preload { faulty(&workplace, &arguments, &[]) } else { workplace.command(&arguments) };
        let (second, first) = (Output::from(second.output().unwrap()), Output::from(first.wait_with_output().unwrap()));
        assert_eq!((first.code, second.code), (1, 0), "{first:?} {second:?}");
        assert_eq!(metrics(&run), expected, "{first:?} {second:?}");
        workplace.exits(0, &["verdict", run.to_str().unwrap()]);
    }
}

#[test]
fn where_directories_cannot_be_exchanged_the_kept_copy_stays_and_the_cure_is_said() {
    let Some((workplace, _)) = workplace() else { return };
    let keep = ["keep", "cut", "--replace"];
    workplace.exits(0, &keep);
    let copy = workplace.path("results/reference");
    let before = contents(&copy);
    let refused = Output::from(faulty(&workplace, &keep, &[]).output().unwrap());
    assert_eq!(refused.code, 1, "{refused:?}");
    insta::assert_snapshot!(lines_with(&refused.err, "error: "));
    assert!(contents(&copy) == before);
    std::fs::rename(copy.join("cut"), workplace.path("old")).unwrap();
    assert_eq!(Output::from(faulty(&workplace, &keep, &[]).output().unwrap()).code, 0);
}
