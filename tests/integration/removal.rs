//! Notes and tags of runs, and runs that are removed: only those that may be, and only when it was agreed to.

use std::process::Command;

use serde_json::Value;

use crate::workplace::{Workplace, json, skipped, wait_until};

fn with_runs(count: usize) -> (Workplace, Vec<std::path::PathBuf>) {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 3\n[memory]\nprobe = false\n");
    let run = |_| {
        assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
        workplace.latest("trial")
    };
    let runs = (0..count).map(run).collect();
    (workplace, runs)
}

fn name(run: &std::path::Path) -> String {
    run.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn notes_and_tags_are_shown_and_tags_select() {
    let (workplace, runs) = with_runs(2);
    let first = format!("trial/{}", name(&runs[0]));
    for words in
        [vec!["the one of the paper", "--tag", "paper", "--tag", "v1"], vec!["second look"], vec!["--untag", "v1"]]
    {
        let said = workplace.xrun(&[&["note", &first], &words[..]].concat());
        assert_eq!(said.code, 0, "{said:?}");
    }
    let shown = workplace.xrun(&["show", &first]).out;
    assert!(shown.contains("the one of the paper") && shown.contains("second look"), "{shown}");
    let tags = shown.lines().find(|line| line.starts_with("tags")).unwrap();
    assert!(tags.contains("paper") && !tags.contains("v1"), "{tags}");
    let listed: Value = serde_json::from_str(&workplace.xrun(&["ls", "--tag", "paper", "--json"]).out).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!((&listed[0]["run"], &listed[0]["tags"][0]), (&name(&runs[0]).into(), &"paper".into()));
    assert_eq!(workplace.xrun(&["ls", "--tag", "v1", "--json"]).out.trim(), "[]");
    let schema: Value = serde_json::from_str(&workplace.xrun(&["schema", "notes"]).out).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&json(&runs[0].join("notes.json"))));
    for wrong in [vec!["note", &first], vec!["note", &first, "  "], vec!["note", &first, "--tag", "two words"]] {
        assert_eq!(workplace.xrun(&wrong).code, 2, "{wrong:?}");
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
    let said = workplace.xrun(&["rm", "trial"]);
    assert!(said.code == 2 && said.err.contains("--yes removes"), "nobody can be asked: {said:?}");
    let said = workplace.xrun(&["rm", "trial", "--dry-run"]);
    assert!(said.code == 0 && said.err.contains("would remove 1 run, "), "{said:?}");
    assert!(runs[1].exists());
    let said = workplace.xrun(&["rm", "trial", "--yes"]);
    assert!(said.code == 0 && said.err.contains("removed 1 run, "), "{said:?}");
    assert!(!runs[1].exists() && runs[0].exists());
    assert_eq!(workplace.latest("trial"), runs[0]);
    let said = workplace.xrun(&["rm", "trial", "no-such-run", "--yes"]);
    assert!(said.code == 2 && runs[0].exists(), "nothing goes unless all may: {said:?}");
    assert_eq!(workplace.xrun(&["rm", "latest", "-y"]).code, 0);
    assert!(std::fs::symlink_metadata(workplace.path("results/trial/latest")).is_err(), "the link goes with the last");
}

#[test]
fn what_runs_is_committed_or_of_a_sweep_stays() {
    let (workplace, runs) = with_runs(1);
    let mut child = workplace.spawn(&["trial.toml", "-s", "pipeline.dummy.step_microseconds=60000000"]);
    wait_until("the run starts", || {
        workplace.latest("trial") != runs[0] && workplace.latest("trial").join("process.json").exists()
    });
    let said = workplace.xrun(&["rm", "trial", "--yes"]);
    assert!(said.code == 2 && said.err.contains("a process is writing it"), "{said:?}");
    child.kill().unwrap();
    child.wait().unwrap();

    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]).args(arguments);
        command.current_dir(workplace.folder.path()).output().is_ok_and(|output| output.status.success())
    };
    if !git(&["init"]) {
        return skipped("git is not there");
    }
    let committed = format!("results/trial/{}", name(&runs[0]));
    assert!(git(&["add", "-f", &format!("{committed}/summary.json")]) && git(&["commit", "-m", "a result"]));
    let said = workplace.xrun(&["rm", &committed, "--yes"]);
    assert!(said.code == 2 && said.err.contains("committed in git"), "{said:?}");
    let said = workplace.xrun(&["gc", "--keep", "1", "--yes"]);
    assert!(said.code == 0 && said.err.contains("stays: files of it are committed in git"), "{said:?}");
    assert!(runs[0].exists());

    assert_eq!(workplace.xrun(&["sweep", "trial.toml", "-q", "-s", "experiment.seed=1,2"]).code, 0);
    let sweep = std::fs::canonicalize(workplace.path("results/trial/sweeps/latest")).unwrap();
    let said = workplace.xrun(&["rm", sweep.join("points/0001-1").to_str().unwrap(), "--yes"]);
    assert!(said.code == 2 && said.err.contains("belongs to a sweep"), "{said:?}");
}

#[test]
fn collecting_keeps_the_newest_those_with_a_tag_and_takes_what_a_kill_left() {
    let (workplace, runs) = with_runs(4);
    let tagged = format!("trial/{}", name(&runs[0]));
    assert_eq!(workplace.xrun(&["note", &tagged, "--tag", "keep"]).code, 0);
    let left = workplace.path("results/trial/.removing-2020-01-01T00-00-00_abcdef");
    std::fs::create_dir(&left).unwrap();
    let said = workplace.xrun(&["gc", "trial", "--keep", "1", "--dry-run"]);
    assert!(said.err.contains("would remove 2 runs, ") && runs[1].exists(), "{said:?}");
    let said = workplace.xrun(&["gc", "trial", "--keep", "1", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(runs.iter().map(|run| run.exists()).collect::<Vec<_>>(), [true, false, false, true]);
    assert!(!left.exists());
    assert!(workplace.xrun(&["gc", "--keep", "1"]).err.contains("nothing to remove"));
}
