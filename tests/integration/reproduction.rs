//! `xrun reproduce`: equal numbers from any directory, and reports of differences.

use std::path::Path;

use crate::damage::copy;
use crate::workplace::{Workplace, json, send, text, unsealed, wait_for_lines};

const EXPERIMENT: &str = include_str!("../experiments/tiny/reproduced.toml");

fn workplace(overrides: &[&str]) -> Workplace {
    let workplace = Workplace::with("trial.toml", EXPERIMENT);
    let mut arguments = vec!["trial.toml", "-q"];
    arguments.extend(overrides.iter().flat_map(|text| ["-s", text]));
    workplace.xrun(&arguments);
    workplace
}

/// Changes one piece of a file, which must be there, and leaves it without the checks of its bytes.
fn edit(path: &Path, from: &str, to: &str) {
    let before = unsealed(&text(path));
    assert!(before.contains(from), "{} has no {from}: {before}", path.display());
    std::fs::write(path, before.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_copy_of_a_result_in_another_place_gives_the_same_bytes() {
    let first = workplace(&[]);
    let elsewhere = Workplace::new();
    copy(&first.latest("trial"), &elsewhere.path("a copy"));
    elsewhere.exits(0, &["reproduce", "a copy", "--progress", "none"]);
    let again = elsewhere.reproduction("trial");
    let record = json(&again.join("reproduction.json"));
    assert_eq!((&record["lines_compared"], &record["values_compared"]), (&67.into(), &307.into()));
    assert_eq!(record["changes"], serde_json::json!([]), "{record}");
    assert_eq!(text(&again.join("metrics.jsonl")), text(&first.latest("trial").join("metrics.jsonl")));
    let record = json(&again.join("reproduction.json"));
    assert_eq!((&record["agreement"], &record["values_different"]), (&"identical".into(), &0.into()));
    let fingerprint = |run: &Path| json(&run.join("manifest.json"))["fingerprint"].clone();
    assert_eq!(fingerprint(&again), fingerprint(&first.latest("trial")));
}

#[test]
fn a_reproduction_does_not_take_the_place_of_what_it_reproduces() {
    let workplace = workplace(&[]);
    let run = workplace.latest("trial");
    workplace.exits(0, &["reproduce", "latest", "-q"]);
    assert_eq!(workplace.latest("trial"), run);
    let meant = |name: &str| -> serde_json::Value {
        let shown = workplace.exits(0, &["show", name, "--json"]);
        shown.json()["run"].clone()
    };
    let again = workplace.reproduction("trial");
    let id = |run: &Path| run.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!([meant("trial"), meant("latest"), meant("trial/latest")], [(); 3].map(|()| id(&run)));
    assert_eq!(meant("trial/reproductions/latest"), id(&again));
    assert_eq!(meant(&format!("trial/{}", id(&again))), id(&again));
    let listed = workplace.xrun(&["ls", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "one run and not two: {listed}");
    let twice = workplace.xrun(&["reproduce", "trial", "-q"]);
    assert!(twice.code == 0 && twice.out.contains(&id(&run)), "not of the reproduction: {twice:?}");
    let compared = workplace.xrun(&["compare", "trial", "trial/reproductions/latest", "--json"]).json();
    assert_ne!(compared["runs"][0]["run"], compared["runs"][1]["run"]);
}

#[test]
fn a_number_that_differs_is_named_with_its_step() {
    let workplace = workplace(&[]);
    let run = workplace.latest("trial");
    let metrics = unsealed(&text(&run.join("metrics.jsonl")));
    let line = metrics.lines().find(|line| line.contains("\"step\":7,")).unwrap();
    let loss = serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64().unwrap();
    let other = line.replacen(&format!("\"loss\":{loss}"), &format!("\"loss\":{}", loss.next_up()), 1);
    edit(&run.join("metrics.jsonl"), line, &other);
    let refused = workplace.xrun(&["reproduce", run.to_str().unwrap(), "-q"]);
    assert!(refused.code == 1 && refused.err.contains("not those that were written"), "{refused:?}");
    // As an older version wrote it.
    let mut summary = json(&run.join("summary.json"));
    summary.as_object_mut().unwrap().retain(|name, _| !["lines", "sha256"].contains(&name.as_str()));
    std::fs::write(run.join("summary.json"), summary.to_string()).unwrap();
    let output = workplace.exits(1, &["reproduce", run.to_str().unwrap(), "-q"]);
    let record = json(&workplace.reproduction("trial").join("reproduction.json"));
    assert_eq!((&record["values_different"], &record["values_compared"]), (&1.into(), &307.into()), "{record}");
    assert!(output.out.contains(record["message"].as_str().unwrap()), "{output:?}");
    let message = record["message"].as_str().unwrap();
    let message = message.replace(&loss.next_up().to_string(), "EDITED").replace(&loss.to_string(), "LOSS");
    insta::assert_snapshot!(message);
    let near = workplace.exits(0, &["reproduce", run.to_str().unwrap(), "-q", "--tolerance", "1e-9", "--json"]);
    let record = near.json();
    assert_eq!((&record["agreement"], &record["tolerance"]), (&"within_tolerance".into(), &1e-9.into()));
}

#[test]
fn what_is_not_as_it_was_is_said_by_name() {
    let workplace = workplace(&[]);
    let run = workplace.latest("trial");
    let manifest = json(&run.join("manifest.json"));
    let lock = manifest["code"]["lock_digest"].as_str().unwrap();
    let processor = manifest["host"]["processor"].as_str().unwrap();
    edit(&run.join("manifest.json"), lock, "0000");
    edit(&run.join("manifest.json"), &format!("\"processor\": \"{processor}\""), "\"processor\": \"Z80\"");
    let output = workplace.exits(0, &["reproduce", run.to_str().unwrap()]);
    let record = json(&workplace.reproduction("trial").join("reproduction.json"));
    let changes = record["changes"].as_array().unwrap();
    let named: Vec<&str> = changes.iter().map(|change| change["what"].as_str().unwrap()).collect();
    assert_eq!(named, ["code: lock file", "machine: processor"], "{record}");
    assert_eq!((&changes[0]["then"], &changes[1]["then"]), (&"0000".into(), &"Z80".into()), "{record}");
    assert!(output.err.contains(named[0]) && output.out.contains(named[1]), "{output:?}");
}

/// A run that a signal ended before its last step.
fn cut(signal: i32) -> Workplace {
    let workplace = Workplace::with("trial.toml", EXPERIMENT);
    let slow = "pipeline.dummy.step_microseconds=20000";
    let mut child = workplace.spawn(&["trial.toml", "-s", slow, "-s", "limits.metrics_queue=1"]);
    wait_for_lines(&workplace.path("results/trial/latest"), 5);
    send(&child, signal);
    child.wait().unwrap();
    workplace
}

#[test]
fn a_run_that_ended_early_is_compared_as_far_as_it_came() {
    for (signal, outcome) in
        [(libc::SIGINT, serde_json::json!("interrupted")), (libc::SIGKILL, serde_json::Value::Null)]
    {
        let workplace = cut(signal);
        let run = workplace.latest("trial");
        workplace.exits(0, &["reproduce", run.to_str().unwrap()]);
        let reproduction = workplace.reproduction("trial");
        let record = json(&reproduction.join("reproduction.json"));
        assert_eq!((&record["original_outcome"], &record["agreement"]), (&outcome, &"identical".into()));
        let again = json(&reproduction.join("summary.json"));
        assert_eq!(again["steps_planned"], 60, "with the schedule of the whole run");
        if signal == libc::SIGINT {
            assert!(again["steps"] == json(&run.join("summary.json"))["steps"] && again["steps"].as_u64() < Some(60));
        }
    }
}

#[test]
fn a_loss_that_was_no_number_has_to_be_none_again() {
    let workplace = workplace(&["pipeline.dummy.nan_at_step=33"]);
    let run = workplace.latest("trial");
    let output = workplace.xrun(&["reproduce", run.to_str().unwrap(), "-q"]);
    let agreement = || json(&workplace.reproduction("trial").join("reproduction.json"))["agreement"].clone();
    assert_eq!((output.code, agreement()), (0, "identical".into()), "{output:?}");
    edit(&run.join("resolved.toml"), "nan_at_step = 33\n", "");
    let output = workplace.xrun(&["reproduce", run.to_str().unwrap(), "-q"]);
    assert!(output.code == 1 && agreement() != "identical", "{output:?}");
    assert_eq!(json(&workplace.reproduction("trial").join("reproduction.json"))["original_outcome"], "diverged");
}

#[test]
fn values_that_the_numbers_depend_on_stay_and_others_may_change() {
    let workplace = workplace(&[]);
    let refused = workplace.xrun(&["reproduce", "trial", "-s", "experiment.seed=6"]);
    assert!(refused.code == 2 && refused.err.contains("experiment.seed"), "{refused:?}");
    workplace.exits(0, &["reproduce", "trial", "-q", "-s", "experiment.name=again", "-s", "limits.workers=0"]);
    assert!(workplace.reproduction("again").join("reproduction.json").is_file());
}

#[test]
fn an_experiment_that_has_not_changed_is_not_run_again() {
    let workplace = workplace(&[]);
    let run = workplace.latest("trial");
    let id = run.file_name().unwrap().to_str().unwrap();
    let output = workplace.xrun(&["run", "trial.toml", "--if-changed", "--name", "other"]);
    assert!(output.code == 0 && output.err.contains(id), "{output:?}");
    assert!(!workplace.path("results/other").exists());
    let answer = workplace.xrun(&["trial.toml", "--if-changed", "--json", "-q"]).json();
    assert_eq!((&answer["skipped"], &answer["summary"]["steps"]), (&true.into(), &60.into()));
    workplace.exits(0, &["trial.toml", "--if-changed", "-q", "-s", "training.epochs=2"]);
    assert_ne!(workplace.latest("trial"), run, "other values are run");
    std::fs::remove_file(run.join("summary.json")).unwrap();
    let unfinished = workplace.latest("trial");
    workplace.exits(0, &["trial.toml", "--if-changed", "-q"]);
    assert_ne!(workplace.latest("trial"), unfinished, "a run that was killed is no result");
}
