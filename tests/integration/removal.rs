//! Notes and tags of runs, and runs that are removed: only those that may be, and only when it was agreed to.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workplace::{Workplace, end, json, lines_with, redacted, skipped, text, wait_until};

fn with_runs(count: usize) -> (Workplace, Vec<PathBuf>) {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 3\n[memory]\nprobe = false\n");
    let run = |_| {
        workplace.exits(0, &["trial.toml", "-q"]);
        workplace.latest("trial")
    };
    let runs = (0..count).map(run).collect();
    (workplace, runs)
}

fn name(run: &Path) -> String {
    run.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn notes_and_tags_are_shown_and_tags_select() {
    let (workplace, runs) = with_runs(2);
    let first = format!("trial/{}", name(&runs[0]));
    for words in
        [vec!["the one of the paper", "--tag", "paper", "--tag", "v1"], vec!["second look"], vec!["--untag", "v1"]]
    {
        workplace.exits(0, &[&["note", &first], &words[..]].concat());
    }
    let shown = workplace.xrun(&["show", &first]).out;
    assert!(shown.contains("the one of the paper") && shown.contains("second look"), "{shown}");
    let tags = shown.lines().find(|line| line.starts_with("tags")).unwrap();
    assert!(tags.contains("paper") && !tags.contains("v1"), "{tags}");
    let listed = workplace.xrun(&["ls", "--tag", "paper", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!((&listed[0]["run"], &listed[0]["tags"][0]), (&name(&runs[0]).into(), &"paper".into()));
    assert_eq!(workplace.xrun(&["ls", "--tag", "v1", "--json"]).out.trim(), "[]");
    for wrong in [vec!["note", &first], vec!["note", &first, "  "], vec!["note", &first, "--tag", "two words"]] {
        workplace.exits(2, &wrong);
    }
}

#[test]
fn notes_that_are_written_at_once_are_all_kept() {
    let (workplace, runs) = with_runs(1);
    let writes =
        |number: usize| workplace.spawn(&["note", "trial", &format!("note {number}"), "--tag", &format!("t{number}")]);
    let notes: Vec<_> = (0..30).map(writes).collect();
    for note in notes {
        assert_eq!(note.wait_with_output().unwrap().status.code(), Some(0));
    }
    let kept = json(&runs[0].join("notes.json"));
    let texts: std::collections::BTreeSet<&str> =
        kept["notes"].as_array().unwrap().iter().map(|note| note["text"].as_str().unwrap()).collect();
    assert_eq!((texts.len(), kept["tags"].as_array().unwrap().len()), (30, 30), "{kept}");
}

#[test]
fn a_run_goes_when_it_is_agreed_to_and_latest_means_the_one_before() {
    let (workplace, runs) = with_runs(2);
    let output = workplace.xrun(&["rm", "trial"]);
    assert!(output.code == 2 && output.err.contains("--yes"), "stdin is not a terminal: {output:?}");
    let dry = workplace.exits(0, &["rm", "trial", "--dry-run"]);
    assert!(runs[1].exists());
    let removed = workplace.exits(0, &["rm", "trial", "--yes"]);
    insta::assert_snapshot!(redacted(&[output.err, dry.err, removed.err].join("\n")));
    assert!(!runs[1].exists() && runs[0].exists());
    assert_eq!(workplace.latest("trial"), runs[0]);
    let output = workplace.xrun(&["rm", "trial", "no-such-run", "--yes"]);
    assert!(output.code == 2 && runs[0].exists(), "nothing goes unless all may: {output:?}");
    workplace.exits(0, &["rm", "latest", "-y"]);
    assert!(std::fs::symlink_metadata(workplace.path("results/trial/latest")).is_err(), "the link goes with the last");
}

#[test]
fn what_runs_is_committed_or_of_a_sweep_stays() {
    let (workplace, runs) = with_runs(1);
    let child = workplace.spawn(&["trial.toml", "-s", "pipeline.dummy.step_microseconds=60000000"]);
    wait_until("the run starts", || {
        workplace.latest("trial") != runs[0] && workplace.latest("trial").join("manifest.json").exists()
    });
    let output = workplace.exits(2, &["rm", "trial", "--yes"]);
    insta::assert_snapshot!("a_run_that_is_being_written", redacted(&output.err));
    end(child);

    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]).args(arguments);
        command.current_dir(workplace.directory.path()).output().is_ok_and(|output| output.status.success())
    };
    if !git(&["init"]) {
        return skipped("git is not there");
    }
    let committed = format!("results/trial/{}", name(&runs[0]));
    assert!(git(&["add", "-f", &format!("{committed}/summary.json")]) && git(&["commit", "-m", "a result"]));
    let output = workplace.exits(2, &["rm", &committed, "--yes"]);
    insta::assert_snapshot!("a_run_that_is_committed", redacted(&output.err));
    workplace.exits(0, &["trial.toml", "-q"]);
    let output = workplace.xrun(&["rm", "--keep", "1", "--yes"]);
    assert!(output.code == 0 && output.err.contains(&name(&runs[0])), "{output:?}");
    insta::assert_snapshot!("a_committed_run_is_kept", lines_with(&output.err, &name(&runs[0])));
    assert!(runs[0].exists());

    workplace.exits(0, &["sweep", "trial.toml", "-q", "-s", "experiment.seed=1,2"]);
    let sweep = workplace.latest_sweep("trial");
    let output = workplace.exits(2, &["rm", sweep.join("trials/0001-1").to_str().unwrap(), "--yes"]);
    insta::assert_snapshot!("a_run_of_a_sweep", redacted(&output.err));
}

#[test]
fn collecting_keeps_the_newest_and_those_with_a_tag() {
    let (workplace, runs) = with_runs(4);
    let tagged = format!("trial/{}", name(&runs[0]));
    workplace.exits(0, &["note", &tagged, "--tag", "keep"]);
    let output = workplace.xrun(&["rm", "trial", "--keep", "1", "--dry-run"]);
    assert_eq!((output.code, removable(&output.err, &runs)), (0, vec![false, true, true, false]), "{output:?}");
    assert_eq!(there(&runs), [true; 4], "{output:?}");
    insta::assert_snapshot!(redacted(&output.err));
    workplace.exits(0, &["rm", "trial", "--keep", "1", "--yes"]);
    assert_eq!(runs.iter().map(|run| run.exists()).collect::<Vec<_>>(), [true, false, false, true]);
    let output = workplace.xrun(&["rm", "--keep", "1"]);
    assert_eq!((output.code, output.err.lines().count()), (0, 1), "nothing is left to remove: {output:?}");
}

/// Returns for each run whether a list of runs to remove has it.
fn removable(output: &str, runs: &[PathBuf]) -> Vec<bool> {
    runs.iter().map(|run| output.lines().any(|line| line.split("  ").next() == run.to_str())).collect()
}

fn there(runs: &[PathBuf]) -> Vec<bool> {
    runs.iter().map(|run| run.exists()).collect()
}

/// A run like another, under another name; with `started` as its manifest has it.
fn copied(run: &Path, to: &Path, started: Option<&str>) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(run).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    if let Some(started) = started {
        let (path, mut manifest) = (to.join("manifest.json"), json(&run.join("manifest.json")));
        (manifest["run"], manifest["started"]) = (name(to).into(), started.into());
        std::fs::write(path, manifest.to_string()).unwrap();
    }
}

#[test]
fn what_is_not_proven_to_be_a_run_stays_and_is_counted() {
    let (workplace, runs) = with_runs(3);
    let manifest = runs[0].join("manifest.json");
    std::fs::write(&manifest, text(&manifest).replacen("dummy", "dammy", 1)).unwrap();
    workplace.file("results/trial/notes/a.md", "mine");
    workplace.file("results/papers/draft/main.tex", "mine");
    workplace.file("results/trial/begun/run.lock", "");
    workplace.file("results/trial/extension/manifest.json", "{\"manifest_version\":3,\"name\":\"ext\"}");
    workplace.file("results/trial/extension/run.lock", "");
    copied(&runs[2], &workplace.path("results/trial/2999-copy"), None);
    let foreign = [
        "results/trial/notes/a.md",
        "results/papers/draft/main.tex",
        "results/trial/begun/run.lock",
        "results/trial/extension/manifest.json",
        "results/trial/2999-copy/summary.json",
    ]
    .map(|file| workplace.path(file));
    insta::assert_snapshot!(redacted(&workplace.exits(0, &["rm", "--keep", "1", "--yes"]).err));
    assert_eq!(there(&runs), [true, false, true]);
    assert_eq!(there(&foreign), [true; 5]);

    for directory in [&runs[0], &foreign[2], &foreign[3], &foreign[4]].map(|path| match path.is_dir() {
        true => path.clone(),
        false => path.parent().unwrap().to_path_buf(),
    }) {
        let output = workplace.xrun(&["rm", directory.to_str().unwrap(), "--yes"]);
        assert!(output.code == 2 && output.err.contains(&name(&directory)) && directory.exists(), "{output:?}");
    }
    workplace.exits(2, &["rm", "trial/notes", "--yes"]);
    // One directory too high, and one too low.
    for (directory, results) in [("results", ".."), ("results/trial", ".")] {
        let mut command = workplace.command(&["rm", "--keep", "1", "--yes", "--results", results]);
        let status = command.current_dir(workplace.path(directory)).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(0));
    }
    assert_eq!((there(&runs), there(&foreign)), (vec![true, false, true], vec![true; 5]));
}

#[test]
fn a_killed_run_and_one_of_the_future_do_not_count_among_those_to_keep() {
    let (workplace, runs) = with_runs(4);
    let gc = || workplace.xrun(&["rm", "trial", "--keep", "1", "--keep-best", "none", "--yes"]);
    for killed in [1, 3] {
        std::fs::remove_file(runs[killed].join("summary.json")).unwrap();
    }
    let future = workplace.path("results/trial/2999-01-01T00-00-00_abcdef");
    copied(&runs[2], &future, Some("2999-01-01T00:00:00Z"));
    let output = gc();
    assert_eq!(output.code, 0, "{output:?}");
    insta::assert_snapshot!(
        "a_run_of_the_future_is_kept",
        lines_with(&output.err, &format!("trial/{}", name(&future)))
    );
    assert_eq!(there(&runs), [false, false, true, true], "{output:?}");
    assert!(future.exists());
    assert_eq!(gc().code, 0);
    assert_eq!(there(&runs), [false, false, true, true]);

    // One that failed is no better.
    workplace.exits(1, &["trial.toml", "-q", "-s", "pipeline.dummy.fail_at_step=1"]);
    let is_failed = |path: &PathBuf| json(&path.join("summary.json"))["outcome"] == "failed";
    let all = std::fs::read_dir(workplace.path("results/trial")).unwrap().flatten().map(|entry| entry.path());
    let failed = all.filter(|path| path.join("summary.json").exists()).find(is_failed).unwrap();
    assert_eq!(gc().code, 0);
    assert!(failed.exists() && there(&runs) == [false, false, true, true]);
    // A finished one is. Runs of one second have no order, so any of the finished ones may stay.
    workplace.exits(0, &["trial.toml", "-q"]);
    assert_eq!(gc().code, 0);
    let all = std::fs::read_dir(workplace.path("results/trial")).unwrap().flatten().map(|entry| entry.path());
    let left: Vec<PathBuf> = all.filter(|path| path.is_dir() && !path.is_symlink() && *path != future).collect();
    assert!(left.len() == 1 && left[0].join("summary.json").exists() && left[0] != failed, "{left:?}");
    assert!(workplace.latest("trial").join("summary.json").exists() && future.exists());
}

#[test]
fn the_run_with_the_best_metric_stays() {
    let (workplace, mut runs) = with_runs(1);
    for steps in ["9", "6", "3"] {
        let set = format!("pipeline.dummy.steps_per_epoch={steps}");
        workplace.exits(0, &["trial.toml", "-q", "-s", &set]);
        runs.push(workplace.latest("trial"));
    }
    let gc = |more: &[&str]| workplace.xrun(&[&["rm", "trial", "--keep", "1"], more].concat());
    assert_eq!(gc(&["--keep-best", "no_such_metric", "--yes"]).code, 2);
    for same in [&["--dry-run", "--keep-best", "score"][..], &["--dry-run", "--keep-best"], &["--dry-run"]] {
        let output = gc(same);
        assert_eq!((output.code, removable(&output.err, &runs)), (0, vec![true, false, true, false]), "{output:?}");
        insta::assert_snapshot!("the_best_run_is_kept", lines_with(&output.err, &format!("trial/{}:", name(&runs[1]))));
        assert_eq!(there(&runs), [true; 4], "{output:?}");
    }
    // Also where it was killed, and only its metrics say so.
    std::fs::remove_file(runs[1].join("summary.json")).unwrap();
    assert_eq!(gc(&["--yes"]).code, 0);
    assert_eq!(there(&runs), [false, true, false, true]);
    assert_eq!(gc(&["--keep-best", "none", "--yes"]).code, 0);
    assert_eq!(there(&runs), [false, false, false, true]);
}

#[test]
fn a_directory_called_sweeps_is_no_reason_to_stay() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 3\n[memory]\nprobe = false\n");
    let results = ["--results", "sweeps/trials"];
    let run = |_| {
        let run = [&["trial.toml", "-q", "-s", "experiment.name=sweeps"], &results[..]].concat();
        workplace.exits(0, &run);
        std::fs::canonicalize(workplace.path("sweeps/trials/sweeps/latest")).unwrap()
    };
    let runs: Vec<PathBuf> = (0..3).map(run).collect();
    let output = workplace.xrun(&[&["rm", "sweeps", "--yes"], &results[..]].concat());
    assert_eq!((output.code, there(&runs)), (0, vec![true, true, false]), "{output:?}");
    let output = workplace.xrun(&[&["rm", "--keep", "1", "--yes"], &results[..]].concat());
    assert_eq!((output.code, there(&runs)), (0, vec![false, true, false]), "{output:?}");
}

#[test]
fn four_that_collect_at_once_all_succeed() {
    let (workplace, runs) = with_runs(6);
    let children: Vec<_> = (0..4).map(|_| workplace.spawn(&["rm", "--keep", "1", "--yes"])).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(there(&runs), [false, false, false, false, false, true]);
    assert_eq!(workplace.latest("trial"), runs[5]);
    let left = std::fs::read_dir(workplace.path("results/trial")).unwrap().flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')));
}

#[test]
#[cfg(unix)]
fn results_that_cannot_be_written_are_named_as_such() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let (workplace, runs) = with_runs(1);
    let allow = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(workplace.directory.path(), 0o755);
    allow(&runs[0].join("run.lock"), 0o444);
    let mut command = workplace.command(&["rm", "trial", "--yes"]);
    if std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0) {
        // Nothing is forbidden to root.
        command.uid(65_534);
    }
    let Ok(output) = command.output().map(crate::workplace::Output::from) else {
        return skipped("another user cannot start the program");
    };
    // Another code than that of a run that a process is writing.
    assert!(
        output.code == 1 && output.err.contains("Permission denied") && output.err.contains("run.lock"),
        "{output:?}"
    );
    assert!(runs[0].join("summary.json").exists(), "{output:?}");
}
