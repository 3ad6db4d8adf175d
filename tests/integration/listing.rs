//! `xrun ls`: selection and order of runs.

use serde_json::Value;

use crate::workplace::{Workplace, lines_with, redacted};

/// Three finished runs and one that diverged.
fn workplace() -> Workplace {
    let workplace = Workplace::with("small.toml", "[pipeline.dummy]\n[limits]\nframe_cache = \"48 MiB\"\n");
    workplace.file("large.toml", "[pipeline.dummy]\n[training]\nepochs = 30\n");
    for arguments in [
        &["small.toml"][..],
        &["large.toml"],
        &["small.toml", "-s", "optimizer.adamw.learning_rate=2e-4"],
        &["small.toml", "-s", "pipeline.dummy.nan_at_step=4"],
    ] {
        workplace.xrun(&[arguments, &["-q"]].concat());
    }
    workplace
}

fn listed(workplace: &Workplace, arguments: &[&str]) -> Vec<Value> {
    let output = workplace.exits(0, &[&["ls", "--json"], arguments].concat());
    serde_json::from_value(output.json()).unwrap()
}

#[test]
fn runs_are_chosen_by_experiment_state_verdict_and_value() {
    let workplace = workplace();
    let count = |arguments: &[&str]| listed(&workplace, arguments).len();
    assert_eq!(count(&[]), 4);
    assert_eq!((count(&["small"]), count(&["large"])), (3, 1));
    assert_eq!((count(&["--status", "finished"]), count(&["--status", "diverged"])), (3, 1));
    assert_eq!(count(&["--status", "time-limit"]), 0);
    assert_eq!(count(&["-s", "optimizer.adamw.learning_rate=0.0002"]), 1);
    assert_eq!(count(&["-s", "limits.frame_cache=50331648"]), 3);
    assert_eq!(count(&["-s", "limits.frame_cache=48 MiB", "--status", "finished"]), 2);
    let bounded = count(&["--verdict", "bounded"]);
    let others = ["inconclusive", "stepped", "grew_then_flat", "retained", "suspect", "growing", "exceeded"];
    let all: usize = others.iter().map(|verdict| count(&["--verdict", verdict])).sum();
    assert_eq!(bounded + all, 4, "each run has one verdict");
}

#[test]
fn runs_are_sorted_by_columns_values_and_metrics() {
    let workplace = workplace();
    let order = |arguments: &[&str], key: &str| -> Vec<Value> {
        listed(&workplace, arguments).iter().map(|run| run[key].clone()).collect()
    };
    let steps = order(&["--sort", "steps"], "steps");
    assert_eq!(steps, [3, 10, 10, 300]);
    assert_eq!(order(&["--sort", "steps", "--reverse"], "steps"), [300, 10, 10, 3]);
    let by_value = order(&["--sort", "training.epochs", "--reverse"], "experiment");
    assert_eq!(by_value[0], "large");
    let score = |run: &Value| run["best"]["value"].as_f64();
    for key in ["metrics.score", "score", "best"] {
        let by_metric = listed(&workplace, &["--sort", key]);
        assert_eq!(by_metric[0]["experiment"], "large", "it trained longest, and more is better");
        let scores: Vec<f64> = by_metric.iter().filter_map(score).collect();
        assert!(scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        assert_eq!(by_metric[3]["state"], "diverged", "it was never validated after training began");
        let worst = listed(&workplace, &["--sort", key, "--reverse"]);
        assert_eq!((score(&worst[0]), score(&worst[3])), (scores.last().copied(), None), "still last");
    }
    let started = order(&[], "started");
    assert!(started.is_sorted_by(|a, b| a.as_str() >= b.as_str()), "newest first: {started:?}");
    let oldest = order(&["--reverse"], "started");
    assert!(oldest.is_sorted_by(|a, b| a.as_str() <= b.as_str()), "oldest first: {oldest:?}");
}

#[test]
fn the_best_of_a_killed_run_is_listed_as_it_is_shown() {
    let workplace = Workplace::ran("killed", "[pipeline.dummy]\n[training]\nepochs = 3\n[checkpoint]\nkeep_last = 3\n");
    let ended = listed(&workplace, &[]).remove(0)["best"].clone();
    assert_eq!((&ended["metric"], &ended["step"]), (&"score".into(), &30.into()), "{ended}");
    let run = workplace.latest("killed");
    std::fs::remove_file(run.join("summary.json")).unwrap();
    let killed = listed(&workplace, &["--sort", "best"]).remove(0);
    assert_eq!((&killed["state"], &killed["best"]), (&"killed".into(), &ended));
    let shown = workplace.xrun(&["show", "killed", "--json"]).json();
    assert_eq!(shown["metrics"]["score"]["best"]["step"], 30, "{shown}");
    // Before its checkpoint is whole, a better validation is in the metrics alone.
    std::fs::remove_dir_all(run.join("checkpoints/step_00000030")).unwrap();
    assert_eq!(listed(&workplace, &[])[0]["best"], ended);
    // And where the metrics end before, what the newest checkpoint knows is the best.
    std::fs::remove_file(run.join("metrics.jsonl")).unwrap();
    assert_eq!(listed(&workplace, &[])[0]["best"]["step"], 20);
}

#[test]
fn what_does_not_exist_is_an_error_with_what_was_probably_meant() {
    let (workplace, mut messages) = (workplace(), String::new());
    for arguments in [
        &["smal"][..],
        &["nope"],
        &["--sort", "step"],
        &["--sort", "training.epoch"],
        &["-s", "limits.worker=2"],
        &["-s", "limits.workers"],
        &["-s", "seed=3"],
        &["--status", "done"],
    ] {
        let output = workplace.exits(2, &[&["ls"], arguments].concat());
        assert!(output.out.is_empty(), "{arguments:?}: {output:?}");
        messages += &output.err;
    }
    insta::assert_snapshot!(redacted(&messages));
}

#[test]
fn sweeps_are_found_by_ls_and_show() {
    let workplace = Workplace::with("swf.toml", "[pipeline.dummy]\n");
    let swept = workplace.exits(0, &["sweep", "swf.toml", "-s", "optimizer.adamw.learning_rate=1e-4,1e-3"]);
    let best = lines_with(&swept.out, "best: ");
    insta::assert_snapshot!(best);
    for arguments in [&["ls"][..], &["ls", "swf"]] {
        let output = workplace.exits(0, arguments);
        let parts = ["swf/sweeps/", "2/2", "optimizer.adamw.learning_rate"];
        assert!(parts.iter().all(|part| output.out.contains(part)), "{output:?}");
    }
    // Its name, and that of the experiment, which has no other runs.
    for name in ["swf/sweeps/latest", "swf"] {
        let output = workplace.xrun(&["show", name]);
        assert!(output.code == 0 && output.out.contains(&best) && output.out.contains("report.html"), "{output:?}");
    }
    let table = workplace.xrun(&["show", "swf", "--json"]).json();
    assert_eq!((&table["best"], &table["direction"], &table["metric"]), (&2.into(), &"higher".into(), &"score".into()));
    assert_eq!(workplace.xrun(&["ls", "--status", "finished"]).out, "", "that is asked of runs");
}

#[test]
fn a_run_ends_with_eight_lines_and_its_verdict_first() {
    let workplace = Workplace::with("good.toml", "[pipeline.dummy]\n");
    let output = workplace.xrun(&["good.toml"]);
    let result = output.err.find("checkpoints/step_00000010").unwrap_or_else(|| panic!("{output:?}"));
    insta::assert_snapshot!("result_of_a_run", lines_with(&output.err, "checkpoints/step_00000010"));
    let verdict = output.err.find("\nverdict ").unwrap();
    assert!(verdict < result && output.err[verdict..].trim().lines().count() <= 8, "{output:?}");
    let table = "\nepoch ";
    assert!(!output.err.contains(table), "{output:?}");
    let output = workplace.xrun(&["good.toml", "-v", "--name", "verbose"]);
    assert!(output.err.find("\nverdict ").unwrap() < output.err.find(table).unwrap(), "{output:?}");
    let output = workplace.xrun(&["good.toml", "--progress", "none", "--name", "without-progress"]);
    assert!(output.err.contains("verdict ") && !output.err.contains("step 1/"), "{output:?}");
    assert_eq!(workplace.xrun(&["good.toml", "-q", "--name", "quiet"]).err, "");
    // It ended before a validation after training: that before it is not the result.
    let stopped = workplace.xrun(&["good.toml", "-s", "pipeline.dummy.fail_at_step=4"]);
    insta::assert_snapshot!(stopped.err.lines().find(|line| line.starts_with("score")).unwrap());
    // Both may have begun in the same second.
    let shown = workplace.xrun(&["show", "results/good/latest"]);
    assert!(shown.out.contains(" resume good/"), "{shown:?}");
    let listed = listed(&workplace, &["good", "--sort", "metrics.score"]);
    assert_eq!((&listed[0]["state"], &listed[1]["best"]), (&"finished".into(), &Value::Null));
    assert!(listed[1]["loss"].is_f64() && listed[1]["loss_kind"].is_null(), "there is one kind of steps");
    let none = workplace.xrun(&["show", "zzz"]);
    insta::assert_snapshot!("no_run_of_this_name", redacted(&none.err));
}

#[test]
fn a_list_in_a_pipe_is_whole_and_one_that_is_cut_says_by_how_much() {
    let workplace = workplace();
    let all = listed(&workplace, &[]);
    assert_eq!(listed(&workplace, &["-n", "0"]), all);
    let cut = workplace.xrun(&["ls", "-n", "1"]);
    assert_eq!(cut.out.lines().count(), 2, "{cut:?}");
    assert!(cut.err.contains(&format!("and {} more", all.len() - 1)), "{cut:?}");
    let sorted = workplace.xrun(&["ls", "-n", "1", "--sort", "steps", "--json"]);
    assert!(sorted.json().as_array().unwrap().len() == 1 && sorted.err.contains("more"), "{sorted:?}");
}

#[test]
fn a_fresh_clone_names_its_committed_results() {
    let workplace = Workplace::ran("good", "[pipeline.dummy]\n");
    workplace.exits(0, &["keep", "good"]);
    std::fs::remove_dir_all(workplace.path("results/good")).unwrap();
    let output = workplace.xrun(&["ls"]);
    assert_eq!((output.code, output.out.as_str()), (0, ""));
    insta::assert_snapshot!("ls_in_a_fresh_clone", output.err);
}

#[test]
fn a_run_is_shown_in_fourteen_lines_what_changed_or_is_wrong_first() {
    let workplace = Workplace::ran("good", "[pipeline.dummy]\n");
    let first = workplace.xrun(&["show"]);
    assert!(first.code == 0 && !first.out.contains("\nchanged "), "{first:?}");
    workplace.exits(1, &["good.toml", "-q", "-s", "pipeline.dummy.fail_at_step=4"]);
    let second = workplace.xrun(&["show", "good/latest"]);
    let at = |label: &str| second.out.lines().position(|line| line.starts_with(label));
    assert!(at("outcome ") < at("changed ") && at("changed ") < at("steps "), "{second:?}");
    assert!(second.out.contains("pipeline.dummy.fail_at_step = 4 (was not set), since good/"), "{second:?}");
    for shown in [&first, &second] {
        assert!(shown.out.lines().count() <= 14, "{shown:?}");
    }
    assert!(workplace.xrun(&["show", "-v"]).out.lines().count() > 14);
}
