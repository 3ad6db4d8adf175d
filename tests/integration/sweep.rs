//! Sweeps: runs, outcomes in the table, and problems reported before the first run.

use serde_json::Value;

use crate::workplace::{Workplace, json, lines_with, redacted, text};

const SMALL: &str = include_str!("../experiments/tiny/swept.toml");

fn rows(table: &Value) -> Vec<Value> {
    table["rows"].as_array().unwrap().clone()
}

#[test]
fn a_dry_run_lists_every_point_and_leaves_nothing() {
    let workplace = Workplace::with("small.toml", SMALL);
    let output = workplace.exits(0, &["sweep", "small.toml", "--dry-run", "-s", "limits.prefetch=2,3"]);
    insta::assert_snapshot!("dry_run", redacted(&output.out));
    let plan = workplace.xrun(&["sweep", "small.toml", "--dry-run", "--json", "--repeats", "1"]).json();
    assert_eq!(plan["keys"][0], "cleanup.every_steps");
    assert_eq!(plan["trials"][2]["values"][0], 4);
    assert_eq!((&plan["repeats"], plan["trials"].as_array().map(Vec::len)), (&1.into(), Some(3)));
    let output = workplace.xrun(&["sweep", "small.toml", "--dry-run", "--repeats", "1"]);
    insta::assert_snapshot!("dry_run_without_repeats", output.out.lines().last().unwrap());
    workplace.exits(0, &["sweep", "small.toml", "--dry-run", "-s", "limits.workers=1,2,4"]);
    assert!(!workplace.path("results").exists());
}

#[test]
fn a_limit_on_the_items_at_once_is_not_taken_for_the_size_of_a_batch() {
    let workplace = Workplace::new();
    let federated = include_str!("../../experiments/federated.toml");
    workplace.file("set.toml", federated);
    workplace.file("unset.toml", &federated.replace("\nbatch_size = 8\n", "\n"));
    let is_noted = |arguments: &[&str]| {
        let output = workplace.exits(0, arguments);
        output.err.contains("training.batch_size is still 8")
    };
    // A batch of a size that is set is split by a smaller limit, as meant; a larger one does nothing.
    for (limit, has_effect) in [("limits.batch_size=4", true), ("limits.batch_size=64", false)] {
        assert!(is_noted(&["check", "unset.toml", "-s", limit]), "{limit}");
        assert_eq!(is_noted(&["check", "set.toml", "-s", limit]), !has_effect, "{limit}");
    }
    assert!(!is_noted(&["check", "unset.toml"]));
    assert!(is_noted(&["sweep", "unset.toml", "--dry-run", "-s", "limits.batch_size=16,64"]));
}

#[test]
fn a_sweep_leaves_ordinary_runs_and_a_table_of_them() {
    let workplace = Workplace::with("small.toml", SMALL);
    let output = workplace.exits(0, &["sweep", "small.toml", "--json"]);
    let sweep = workplace.latest_sweep("small");
    let table = json(&sweep.join("table.json"));
    assert_eq!(table, output.json());
    assert_eq!(table["reference"], 1, "the trial without cleanups");
    let rows = rows(&table);
    assert_eq!(rows.iter().map(|row| row["values"][0].clone()).collect::<Vec<_>>(), [0, 1, 4]);
    for row in &rows {
        assert_eq!((&row["outcome"], &row["finished"], &row["exit_code"]), (&"finished".into(), &2.into(), &0.into()));
        assert!(row["steps_per_second"]["low"].as_f64() <= row["steps_per_second"]["high"].as_f64());
        assert!(row["heap_floor"]["median"].as_f64() <= row["heap_peak"]["median"].as_f64());
        assert!(row["rss_peak"]["median"].as_f64().unwrap() > 1e6);
        assert!(row["rss_floor"]["median"].as_f64().unwrap() > 1e6);
        assert!(row["rss_floor"]["median"].as_f64() <= row["rss_peak"]["median"].as_f64());
        assert!(row["device_in_use_floor"].is_null(), "there is no device");
        assert!(row["metric"]["median"].is_number());
    }
    // Fronts of trials that differ by less than the noise of this machine are empty.
    assert!(rows.iter().all(|row| row["pareto"].as_array().unwrap().len() <= 2), "there is no device");
    let csv = text(&sweep.join("table.csv"));
    assert!(csv.starts_with("trial,cleanup.every_steps,runs,finished,outcome,exit_code,steps_per_second,"));
    assert_eq!(csv.lines().count(), 4);
    let columns = |line: &str| line.split(',').count();
    assert!(csv.lines().all(|line| columns(line) == columns(csv.lines().next().unwrap())), "{csv}");
    let page = text(&sweep.join("report.html"));
    assert!(page.contains("<svg") && page.contains("6 of 6 runs"));
    let run = sweep.join("trials/0003-2");
    let shown = workplace.xrun(&["show", run.to_str().unwrap(), "--json"]).json();
    assert_eq!(shown["state"], "finished", "{shown}");
    let resolved = text(&run.join("resolved.toml"));
    assert!(
        resolved.contains("every_steps = 4") && resolved.contains("seed = 1") && !resolved.contains("[sweep"),
        "{resolved}"
    );
    let listed = workplace.xrun(&["ls"]).out;
    assert!(listed.contains("small/sweeps/") && !listed.contains("0003-2"), "its runs stand in its table: {listed}");
    assert_eq!(json(&sweep.join("trials/0003-1/manifest.json"))["seed"], 0);
    let compared = workplace.xrun(&["compare", "small/sweeps/latest", "--json"]).json();
    assert_eq!(compared["runs"].as_array().unwrap().len(), 6, "{compared}");
}

#[test]
fn a_finished_sweep_resumed_runs_nothing_and_repairs_its_reports() {
    let workplace = Workplace::with("small.toml", SMALL);
    workplace.exits(0, &["sweep", "small.toml", "-q"]);
    let sweep = workplace.latest_sweep("small");
    let processes = text(&sweep.join("processes.jsonl"));
    let page = sweep.join("trials/0001-1/report.html");
    std::fs::remove_file(&page).unwrap();
    std::fs::remove_file(sweep.join("table.csv")).unwrap();
    let output = workplace.exits(0, &["sweep", "--resume", "results/small/sweeps/latest"]);
    insta::assert_snapshot!(lines_with(&output.err, "6 runs"));
    assert_eq!(text(&sweep.join("processes.jsonl")), processes);
    assert!(page.exists() && sweep.join("table.csv").exists());
}

/// The sweep was killed, and a process of the run after its summary: what the list of processes says of it is not how the
/// run ended.
#[test]
fn a_row_says_what_the_summary_of_its_run_says() {
    let workplace = Workplace::with("small.toml", SMALL);
    workplace.exits(0, &["sweep", "small.toml", "-q"]);
    let sweep = workplace.latest_sweep("small");
    let mut lines = text(&sweep.join("processes.jsonl"));
    let mut last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    last["exit_code"] = Value::Null;
    last["signal"] = 9.into();
    lines.push_str(&format!("{last}\n"));
    xrun::files::write::replace(&sweep.join("processes.jsonl"), lines.as_bytes()).unwrap();
    workplace.exits(0, &["sweep", "--collect", sweep.to_str().unwrap(), "-q"]);
    let rows = rows(&json(&sweep.join("table.json")));
    assert!(rows.iter().all(|row| row["exit_code"] == 0 && row["outcome"] == "finished"), "{rows:?}");
    let runs = rows.iter().flat_map(|row| row["runs"].as_array().unwrap());
    assert!(runs.clone().all(|run| run["signal"].is_null()) && runs.count() == 6);
}

#[test]
fn every_ending_is_a_row_and_none_ends_the_sweep() {
    let workplace = Workplace::with("ends.toml", "[pipeline.dummy]\nsteps_per_epoch = 20\nleak_per_step = \"1 MiB\"\n");
    let output = workplace.exits(
        1,
        &[
            "sweep",
            "ends.toml",
            "--method",
            "zip",
            "--jobs",
            "2",
            "-s",
            "pipeline.dummy.fail_at_step=3,99,99,99,99",
            "-s",
            "pipeline.dummy.nan_at_step=99,3,99,99,99",
            "-s",
            "pipeline.dummy.panic_at_step=99,99,3,99,99",
            "-s",
            "limits.host_memory=1 GiB,1 GiB,1 GiB,16 MiB,1 GiB",
        ],
    );
    insta::assert_snapshot!(lines_with(&output.err, "of 5 runs"));
    let sweep = workplace.latest_sweep("ends");
    let rows = rows(&json(&sweep.join("table.json")));
    let found: Vec<(String, i64)> = rows
        .iter()
        .map(|row| (row["outcome"].as_str().unwrap().to_owned(), row["exit_code"].as_i64().unwrap()))
        .collect();
    let expected = [
        ("failed (exit 1)", 1),
        ("diverged (exit 4)", 4),
        ("panicked (exit 70)", 70),
        ("memory limit (exit 5)", 5),
        ("finished", 0),
    ];
    assert_eq!(found, expected.map(|(words, code)| (words.to_owned(), code)));
    assert!(expected.iter().all(|(outcome, _)| text(&sweep.join("report.html")).contains(outcome)));
    workplace.exits(1, &["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
    assert_eq!(text(&sweep.join("processes.jsonl")).lines().count(), 5, "and is not run again");
    workplace.exits(1, &["sweep", "--resume", sweep.to_str().unwrap(), "--retry-failed"]);
    assert_eq!(text(&sweep.join("processes.jsonl")).lines().count(), 8, "unless that is asked for");
}

#[test]
fn fail_fast_starts_nothing_after_a_failure() {
    let workplace = Workplace::with("ends.toml", "[pipeline.dummy]\nsteps_per_epoch = 8\nfail_at_step = 2\n");
    let output = workplace.exits(1, &["sweep", "ends.toml", "-s", "cleanup.every_steps=0,1,2", "--fail-fast"]);
    insta::assert_snapshot!(lines_with(&output.err, "2 runs"));
    let rows = rows(&json(&workplace.latest_sweep("ends").join("table.json")));
    assert_eq!(rows.iter().filter(|row| row["outcome"] == "not run").count(), 2, "{rows:?}");
}

#[test]
fn what_is_wrong_with_a_point_is_said_before_anything_runs() {
    let workplace = Workplace::with("small.toml", SMALL);
    workplace.file("plain.toml", "[pipeline.dummy]\n");
    let refusals = workplace.refusals(&[
        (2, &["sweep", "small.toml", "-s", "cleanup.every_step=1,2"]),
        (2, &["sweep", "small.toml", "-s", "limits.workers=0,x"]),
        (2, &["sweep", "small.toml", "-s", "limits.workers=0..4"]),
        (2, &["sweep", "small.toml", "-s", "limits.workers=..4:3"]),
        (2, &["sweep", "small.toml", "-s", "limits.workers=4..1:3"]),
        (2, &["sweep", "small.toml", "--method", "random"]),
        (2, &["sweep", "small.toml", "--repeats", "0"]),
        (2, &["sweep", "small.toml", "--repeats", "9000"]),
        (2, &["sweep", "small.toml", "--device", "gpu"]),
        (2, &["sweep", "plain.toml"]),
        (1, &["sweep", "--resume", "."]),
    ]);
    insta::assert_snapshot!(redacted(&refusals));
    assert!(!workplace.path("results").exists());
}

#[test]
fn one_value_of_a_swept_key_takes_the_place_of_its_list() {
    let workplace = Workplace::with("small.toml", SMALL);
    let plan = workplace.xrun(&["sweep", "small.toml", "--dry-run", "--json", "-s", "cleanup.every_steps=7"]).json();
    assert_eq!(plan["trials"].as_array().unwrap().len(), 1);
    assert_eq!(plan["trials"][0]["values"][0], 7);
}

#[test]
fn a_file_with_a_sweep_runs_once_by_itself_and_says_so() {
    let workplace = Workplace::with("small.toml", SMALL);
    let output = workplace.exits(0, &["small.toml"]);
    assert!(output.err.contains("`xrun sweep small.toml`"), "{output:?}");
    assert!(!text(&workplace.latest("small").join("resolved.toml")).contains("[sweep"));
    insta::assert_snapshot!("check_of_a_sweep", workplace.exits(0, &["check", "small.toml"]).err);
}

#[test]
fn the_environment_of_a_later_shell_changes_no_point() {
    let workplace = Workplace::with("small.toml", SMALL);
    let mut command = workplace.command(&["sweep", "small.toml", "-q", "--repeats", "1"]);
    let status = command.env("XRUN__LIMITS__PREFETCH", "5").status().unwrap();
    assert_eq!(status.code(), Some(0));
    let sweep = workplace.latest_sweep("small");
    std::fs::remove_dir_all(sweep.join("trials/0002-1")).unwrap();
    let mut command = workplace.command(&["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
    assert_eq!(command.env("XRUN__LIMITS__PREFETCH", "9").status().unwrap().code(), Some(0));
    for run in ["0001-1", "0002-1", "0003-1"] {
        assert!(text(&sweep.join(format!("trials/{run}/resolved.toml"))).contains("prefetch = 5"), "{run}");
    }
}

#[test]
fn a_kind_is_swept_by_name_or_with_values_of_its_own() {
    let workplace = Workplace::new();
    let file = "[pipeline.dummy]\nsteps_per_epoch = 4\n[optimizer.adamw]\nlearning_rate = 5e-4\n[sweep]\nrepeats = 1\n";
    workplace.file("small.toml", file);
    let kinds = "optimizer=adamw,sgd,{ sgd = { learning_rate = 0.2 } }";
    workplace.exits(0, &["sweep", "small.toml", "-s", kinds]);
    let sweep = workplace.latest_sweep("small");
    let resolved = |trial: u32| text(&sweep.join(format!("trials/000{trial}-1/resolved.toml")));
    let (first, second, third) = (resolved(1), resolved(2), resolved(3));
    assert!(
        first.contains("[optimizer.adamw]\nlearning_rate = 0.0005"),
        "a kind of the file keeps its values: {first}"
    );
    assert!(second.contains("[optimizer.sgd]") && !second.contains("learning_rate = 0.0005"), "{second}");
    assert!(third.contains("[optimizer.sgd]\nlearning_rate = 0.2"), "{third}");
    let table = text(&sweep.join("table.csv"));
    assert!(table.lines().nth(2).unwrap().starts_with("2,sgd,"), "{table}");
    assert!(table.contains("{ sgd = { learning_rate = 0.2 } }"), "{table}");
    // The same in a file, and a name that is none.
    workplace.file("file.toml", &format!("{file}optimizer = [\"adamw\", \"sdg\"]\n"));
    let output = workplace.exits(2, &["sweep", "file.toml", "--dry-run"]);
    insta::assert_snapshot!("an_unknown_kind_in_a_sweep", output.err);
}
