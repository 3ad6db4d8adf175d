//! Early stopping: its step, also after a kill, and the best checkpoint.

use std::path::Path;

use crate::workplace::{Workplace, end, json, redacted_names, text, wait_until};

/// The score rises until step 30 and falls after it. Validations at 10, 20, 30, 40, 50: the third is the best one, so the
/// run stops after the fifth.
const EXPERIMENT: &str = include_str!("../experiments/tiny/stopped-early.toml");

fn checkpoints(run: &Path) -> Vec<String> {
    let names = std::fs::read_dir(run.join("checkpoints")).unwrap().flatten();
    let mut names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn stopped(extra: &[&str]) -> (Workplace, std::path::PathBuf) {
    let workplace = Workplace::with("early.toml", EXPERIMENT);
    let output = workplace.exits(0, &[&["early.toml"], extra].concat());
    let run = workplace.latest("early");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "stopped_early", "{output:?}");
    (workplace, run)
}

#[test]
fn a_run_that_no_longer_gets_better_ends_as_a_success_with_its_best_checkpoint_as_the_newest() {
    let (workplace, run) = stopped(&[]);
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["exit_code"]), (&"stopped_early".into(), &0.into()));
    assert_eq!((&summary["steps"], &summary["steps_planned"]), (&50.into(), &200.into()));
    assert_eq!((&summary["best"]["step"], &summary["restored"]), (&30.into(), &30.into()));
    assert_eq!(checkpoints(&run).last().unwrap(), "step_00000030");
    insta::assert_snapshot!(summary["message"].as_str().unwrap());

    let listed = workplace.xrun(&["ls", "--status", "stopped-early", "--json"]);
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed.out).unwrap();
    let shown = workplace.xrun(&["show", "early", "--json"]).json();
    assert_eq!((listed.len(), &listed[0]["state"], &shown["state"]), (1, &shown["state"], &"stopped early".into()));
    let again = workplace.exits(2, &["resume", "early"]);
    insta::assert_snapshot!("resume_of_a_run_that_stopped_early", redacted_names(&again.err));
    let unchanged = workplace.xrun(&["run", "early.toml", "--if-changed"]);
    assert!(unchanged.code == 0 && workplace.latest("early") == run, "{unchanged:?}");
}

#[test]
fn both_checkpoints_are_kept_where_the_best_is_not_to_be_restored() {
    let (_workplace, run) = stopped(&["-s", "training.early_stopping.restore_best=false"]);
    assert_eq!(json(&run.join("summary.json"))["restored"], serde_json::Value::Null);
    let found = checkpoints(&run);
    assert!(found.contains(&"step_00000030".into()) && found.contains(&"step_00000050".into()), "{found:?}");
}

#[test]
fn a_smaller_change_than_asked_for_does_not_count() {
    // The score rises by 0.1 in the first ten steps and by less in each ten after them.
    let set = ["-s", "training.early_stopping.min_delta=0.085", "-s", "pipeline.dummy.worse_after_step=1000"];
    let (_workplace, run) = stopped(&set);
    let summary = json(&run.join("summary.json"));
    let metrics = text(&run.join("metrics.jsonl"));
    let scores: Vec<f64> = metrics
        .lines()
        .filter(|line| line.contains("validation"))
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["metrics"]["score"].as_f64().unwrap())
        .collect();
    // By hand: of validations after a step, the last that was better by enough than the one before that was.
    let (mut best, mut waited, mut end) = (f64::NEG_INFINITY, 0, 0);
    for (number, score) in scores.iter().enumerate().skip(1) {
        (best, waited) = if *score > best + 0.085 { (*score, 0) } else { (best, waited + 1) };
        end = number * 10;
        if waited == 2 {
            break;
        }
    }
    assert_eq!(waited, 2, "{scores:?}");
    assert_eq!(summary["steps"], end, "{scores:?}");
    assert_eq!(summary["best"]["step"], end, "each is a little better than the one before, and the best is the last");
}

#[test]
fn a_metric_may_be_wanted_low() {
    // Falling is better now: the untrained model does not count, and every validation until step 30 is worse than the first.
    let set = ["-s", "training.early_stopping.metric=score", "-s", "training.early_stopping.mode=lower"];
    let (_workplace, run) = stopped(&set);
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["steps"], &summary["best"]["step"]), (&30.into(), &10.into()));
    assert_eq!(json(&run.join("plan.json"))["metrics"][0]["direction"], "lower", "reports show the same side");
}

#[test]
fn a_killed_and_resumed_run_stops_at_the_same_step_and_a_reproduction_too() {
    let (workplace, whole) = stopped(&[]);
    workplace.file("cut.toml", EXPERIMENT);
    let child = workplace.spawn(&["cut.toml", "-s", "pipeline.dummy.step_microseconds=20000"]);
    let latest = workplace.path("results/cut/latest");
    // Past the best validation, so that what was waited for is in the checkpoint.
    wait_until("step 45 is written", || {
        let text = std::fs::read_to_string(latest.join("metrics.jsonl")).unwrap_or_default();
        text.contains("\"kind\":\"train\",\"step\":44") || latest.join("summary.json").exists()
    });
    end(child);
    let run = workplace.latest("cut");
    if !run.join("summary.json").exists() {
        workplace.exits(0, &["resume", "cut"]);
        assert_eq!(json(&run.join("manifest.json"))["resumed"].as_array().unwrap().len(), 1);
    }
    assert_eq!(text(&run.join("metrics.jsonl")), text(&whole.join("metrics.jsonl")));
    assert_eq!(checkpoints(&run).last().unwrap(), "step_00000030");
    workplace.exits(0, &["reproduce", "early"]);
    assert_eq!(json(&workplace.reproduction("early").join("reproduction.json"))["agreement"], "identical");
    assert_eq!(json(&workplace.reproduction("early").join("summary.json"))["outcome"], "stopped_early");
}

#[test]
fn the_reproduction_of_a_run_that_did_not_finish_stops_early_as_the_run_would_have() {
    let (workplace, run) = stopped(&[]);
    // As if it had failed after its last validation: one step more is to be reproduced, which early stopping does not allow.
    let mut summary = json(&run.join("summary.json"));
    summary.as_object_mut().unwrap().retain(|name, _| !["lines", "sha256"].contains(&name.as_str()));
    summary["outcome"] = "failed".into();
    std::fs::write(run.join("summary.json"), summary.to_string()).unwrap();
    workplace.exits(0, &["reproduce", "early"]);
    let again = workplace.reproduction("early");
    let summary = json(&again.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["steps"]), (&"stopped_early".into(), &50.into()));
    assert_eq!((&summary["restored"], &json(&again.join("manifest.json"))["until"]), (&30.into(), &51.into()));
    assert_eq!(json(&again.join("reproduction.json"))["agreement"], "identical");
}

#[test]
fn what_cannot_be_meant_is_told_with_its_place() {
    let workplace = Workplace::new();
    let mut messages = String::new();
    for table in [
        "min_delta = 0.1\n",
        "patience = 2\nmetric = \"scor\"\n",
        "patience = 2\nmode = \"lower\"\n",
        "patience = 2\n[validation]\nevery_epochs = 0\n",
        "early_stopping_threshold = 0.1\npatience = 2\n",
    ] {
        workplace.put("wrong.toml", format!("[pipeline.dummy]\n[training.early_stopping]\n{table}"));
        messages += &workplace.exits(2, &["check", "wrong.toml"]).err;
    }
    insta::assert_snapshot!(messages);
}
