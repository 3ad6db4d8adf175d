//! `xrun compare`: runs side by side.

use std::path::Path;

use crate::workplace::{Workplace, redacted, text};

fn workplace() -> Workplace {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\n");
    for arguments in [&["trial.toml"][..], &["trial.toml", "--name", "other", "-s", "training.epochs=3"]] {
        workplace.exits(0, &[arguments, &["-q"]].concat());
    }
    workplace
}

#[test]
fn two_runs_are_compared_in_text_as_a_record_and_on_a_page() {
    let workplace = workplace();
    let output = workplace.exits(0, &["compare", "trial", "other"]);
    let line = output.out.lines().find(|line| line.starts_with("  epochs ")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["epochs", "1", "3"]);
    assert!(!output.out.contains("seed"), "what is the same is not listed: {output:?}");
    let record = workplace.xrun(&["compare", "trial", "other", "--json", "--html", "both.html"]).json();
    assert_eq!((&record["runs"][0]["steps"], &record["runs"][1]["steps"]), (&10.into(), &30.into()));
    let page = text(&workplace.path("both.html"));
    assert!(page.contains("epochs 3") && page.contains("<polyline"));
    assert!(page.find("Differences in the experiments") < page.find("<polyline"), "differences come first");
    let (_, title) = page.split_once("<title>").unwrap();
    insta::assert_snapshot!(title.split('<').next().unwrap());
}

#[test]
fn a_directory_stands_for_its_runs_and_one_run_is_no_comparison() {
    let workplace = workplace();
    workplace.exits(0, &["trial.toml", "-q", "-s", "experiment.seed=1"]);
    let record = workplace.xrun(&["compare", "results/trial", "--json"]).json();
    assert_eq!(record["runs"].as_array().unwrap().len(), 2, "the link to the newest is not a third");
    let keys: Vec<&str> =
        record["differences"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["experiment.seed"]);
    let alone = workplace.xrun(&["compare", "trial"]);
    let many = workplace.xrun(&[&["compare"][..], &["trial"; 15]].concat());
    let unknown = workplace.xrun(&["compare", "trial", "othre"]);
    assert_eq!([alone.code, many.code, unknown.code], [2; 3]);
    // Runs that began in the same second may have any order.
    let unknown = unknown.err.lines().next().unwrap();
    insta::assert_snapshot!(alone.err + &many.err + unknown);
}

#[test]
fn identical_runs_and_one_metric_and_an_unknown_metric() {
    let workplace = workplace();
    workplace.exits(0, &["trial.toml", "-q"]);
    let record = workplace.xrun(&["compare", "trial", "trial/latest~1", "--json"]).json();
    assert_eq!(record["runs"][0]["metrics_digest"], record["runs"][1]["metrics_digest"]);
    let output = workplace.xrun(&["compare", "trial", "trial/latest~1", "--only-changed"]);
    assert!(output.out.contains("identical") && !output.out.contains("result:"), "{output:?}");
    let output = workplace.xrun(&["compare", "trial", "other", "--metric", "score", "--only-changed"]);
    assert!(output.out.contains("score ↑, last") && !output.out.contains("loss"), "{output:?}");
    let output = workplace.xrun(&["compare", "trial", "other", "--metric", "scor"]);
    assert!(output.code == 2 && output.err.contains("`score`"), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn watched_commands_differ_in_their_command_lines() {
    let workplace = Workplace::new();
    for words in [&["true"][..], &["true", "--leak"]] {
        workplace.exits(0, &[&["watch", "--"], words].concat());
    }
    let record = workplace.xrun(&["compare", "true/latest~1", "true", "--json"]).json();
    assert_eq!(record["differences"][0]["key"], "command", "{record}");
    assert_eq!((&record["runs"][0]["label"], &record["runs"][1]["label"]), (&"true".into(), &"true --leak".into()));
    assert_eq!(record["runs"][0]["watched"], true);
    let output = workplace.xrun(&["compare", "true/latest~1", "true"]);
    assert!(output.out.contains("--leak") && !output.out.contains("heap"), "{output:?}");
}

/// A sweep below other results than those that commands look at first.
fn swept(trials: &str, repeats: &str) -> Workplace {
    let workplace = Workplace::with("many.toml", "[pipeline.dummy]\nsteps_per_epoch = 2\n");
    let values = format!("limits.prefetch={trials}");
    let arguments = ["sweep", "many.toml", "-q", "-s", &values, "--repeats", repeats, "--results", "other"];
    workplace.exits(0, &arguments);
    workplace
}

#[test]
fn of_a_sweep_with_many_runs_one_of_each_point_is_compared_under_names_that_other_commands_know() {
    let workplace = swept("1,2,3,4,5", "3");
    let output = workplace.exits(0, &["compare", "many/sweeps/latest", "--results", "other"]);
    insta::assert_snapshot!("one_run_of_each_trial", redacted(&output.err));
    let names: Vec<&str> =
        output.out.lines().filter_map(|line| line.split_whitespace().nth(1)).skip(1).take(5).collect();
    for (at, name) in names.iter().enumerate() {
        assert!(name.starts_with("many/sweeps/2") && name.ends_with(&format!("trials/000{}-1", at + 1)), "{output:?}");
        let shown = workplace.xrun(&["show", name, "--results", "other", "--json"]).json();
        assert_eq!(shown["state"], "finished", "{shown}");
    }
    // The same name for those that go on with it and that collect it.
    for what in ["--resume", "--collect"] {
        workplace.exits(0, &["sweep", what, "many/sweeps/latest", "--results", "other"]);
    }
    let output = workplace.exits(2, &["sweep", "--resume", "many/sweeps/latest"]);
    insta::assert_snapshot!("a_sweep_of_other_results", redacted(&output.err));
}

#[test]
fn a_sweep_of_too_many_trials_has_a_table_of_its_own() {
    let workplace = swept("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "1");
    let output = workplace.exits(2, &["compare", "other/many/sweeps/latest"]);
    insta::assert_snapshot!("a_sweep_of_too_many_trials", redacted(&output.err));
    let page = output.err.split_whitespace().find(|word| word.ends_with("report.html")).unwrap();
    assert!(Path::new(page).is_file(), "{page}");
}
