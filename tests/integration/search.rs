//! Searches: trained trials, resumption after a kill, and equality with single runs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::workplace::{Workplace, end, json, lines, redacted, redacted_names, text, unsealed};

pub const HALVING: &str = include_str!("../experiments/tiny/asha.toml");

pub const CHOOSING: &str = include_str!("../experiments/tiny/tpe.toml");

/// Machine-independent part of each trial: values, last step, outcome and metric.
pub fn rows(sweep: &Path) -> Vec<Value> {
    let table = json(&sweep.join("table.json"));
    let row = |row: &Value| {
        serde_json::json!([
            row["values"],
            row["steps"],
            row["rung"],
            row["outcome"],
            row["metric"]["median"],
            row["loss"]["median"]
        ])
    };
    let mut rows: Vec<Value> = table["rows"].as_array().unwrap().iter().map(row).collect();
    rows.push(table["best"].clone());
    rows
}

#[test]
fn halving_trains_the_best_trials_on_and_the_winner_is_the_run_that_never_stopped() {
    let workplace = Workplace::with("half.toml", HALVING);
    let output = workplace.exits(0, &["sweep", "half.toml"]);
    insta::assert_snapshot!(redacted(&output.err));
    let sweep = workplace.latest_sweep("half");
    let table = json(&sweep.join("table.json"));
    assert_eq!(table["rungs"], serde_json::json!([8, 24, 72]));
    let all = table["rows"].as_array().unwrap();
    let at = |rung: u64| all.iter().filter(|row| row["rung"] == rung).count();
    assert!(at(0) == 0 && at(3) >= 1 && at(2) >= 1 && at(1) >= 4, "{all:?}");
    for row in all {
        let last = row["rung"] == 3;
        assert_eq!(row["steps"], [8, 24, 72][row["rung"].as_u64().unwrap() as usize - 1]);
        assert_eq!(row["outcome"], if last { "finished" } else { "stopped at a rung" });
        assert_eq!(row["finished"], u64::from(last));
    }
    // More is better here, so the largest rate is the best, as one can see from outside.
    let best = all.iter().find(|row| row["trial"] == table["best"]).unwrap();
    let rates = || all.iter().map(|row| row["values"][0].as_f64().unwrap());
    assert_eq!(best["values"][0].as_f64().unwrap(), rates().fold(0.0, f64::max));
    let last: Vec<&str> = output.out.lines().rev().take(2).collect();
    insta::assert_snapshot!("below_the_table_of_a_search", redacted(&last.join("\n")));
    let csv = text(&sweep.join("table.csv"));
    assert!(csv.lines().next().unwrap().ends_with(",pareto,steps,rung,interrupted,training"), "{csv}");
    assert!(text(&sweep.join("report.html")).contains("stopped at a rung"));
    let resolved = sweep.join(format!("trials/{:04}-1/resolved.toml", best["trial"].as_u64().unwrap()));
    let alone = workplace.path("alone");
    workplace.exits(0, &["run", resolved.to_str().unwrap(), "--directory", alone.to_str().unwrap(), "-q"]);
    let there = text(&resolved.with_file_name("metrics.jsonl"));
    assert_eq!(there, text(&alone.join("metrics.jsonl")), "to the bit, though it stopped twice on its way");
    let checkpoint = |run: &Path| std::fs::read(run.join("checkpoints/step_00000072/model.safetensors")).unwrap();
    assert_eq!(checkpoint(resolved.parent().unwrap()), checkpoint(&alone));
    workplace.exits(0, &["sweep", "--resume", sweep.to_str().unwrap()]);
    assert_eq!(unsealed(&text(&sweep.join("processes.jsonl"))).lines().count(), 9 + at(2) + 2 * at(3), "nothing twice");
}

/// Kills a sweep with its runs, again and again, until it ends by itself.
fn kill_until_done(workplace: &Workplace, file: &str) -> PathBuf {
    let name = file.trim_end_matches(".toml");
    let latest = format!("results/{name}/sweeps/latest");
    let mut kills = 0;
    for round in 0u64.. {
        assert!(round < 300, "the sweep never ends");
        let begun = workplace.path(&latest).join("sweep.toml").exists();
        let arguments = if begun { vec!["sweep", "--resume", &latest, "-q"] } else { vec!["sweep", file, "-q"] };
        let mut sweep = workplace.spawn(&arguments);
        let patience = Duration::from_millis(60 + 97 * round % 311 + 20 * round);
        let start = Instant::now();
        while sweep.try_wait().unwrap().is_none() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(status) = sweep.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0));
            break;
        }
        end(sweep);
        kills += 1;
    }
    assert!(kills > 0);
    workplace.latest_sweep(name)
}

#[test]
fn a_search_by_halving_that_is_killed_again_and_again_has_the_same_table() {
    let (whole, killed) = (Workplace::new(), Workplace::new());
    whole.file("half.toml", HALVING);
    killed.file("half.toml", HALVING);
    whole.exits(0, &["sweep", "half.toml", "-q"]);
    let sweep = kill_until_done(&killed, "half.toml");
    assert_eq!(rows(&sweep), rows(&whole.latest_sweep("half")));
}

#[test]
fn a_run_that_had_not_written_how_far_it_goes_goes_no_further_than_its_rung() {
    let workplace = Workplace::with("half.toml", HALVING);
    workplace.exits(0, &["sweep", "half.toml", "-q"]);
    let sweep = workplace.latest_sweep("half");
    let whole = rows(&sweep);
    // As a sweep leaves it that was killed just after it had started its first run: held, and without a manifest.
    std::fs::remove_dir_all(sweep.join("trials")).unwrap();
    std::fs::remove_file(sweep.join("processes.jsonl")).unwrap();
    let first = sweep.join("trials/0001-1");
    std::fs::create_dir_all(&first).unwrap();
    let held = std::fs::File::create(first.join("run.lock")).unwrap();
    held.lock().unwrap();
    let mut resumed = workplace.spawn(&["sweep", "--resume", sweep.to_str().unwrap()]);
    let mut output = BufReader::new(resumed.stderr.take().unwrap()).lines();
    let waits = output.find_map(|line| line.ok().filter(|line| line.contains("0001-1: "))).unwrap();
    assert!(resumed.try_wait().unwrap().is_none(), "it waits for whoever holds the run: {waits}");
    insta::assert_snapshot!(waits);
    drop(held);
    assert_eq!(resumed.wait().unwrap().code(), Some(0));
    assert_eq!(rows(&sweep), whole);
}

#[test]
fn a_search_by_choosing_that_is_killed_again_and_again_has_the_same_trials() {
    let (whole, killed) = (Workplace::new(), Workplace::new());
    whole.file("choose.toml", CHOOSING);
    killed.file("choose.toml", CHOOSING);
    insta::assert_snapshot!(redacted(whole.exits(0, &["sweep", "choose.toml"]).err.lines().next().unwrap()));
    let first = whole.latest_sweep("choose");
    let sweep = kill_until_done(&killed, "choose.toml");
    assert_eq!(rows(&sweep), rows(&first));
    let proposals_of = |sweep: &Path| lines(&sweep.join("proposals.jsonl"));
    assert_eq!(proposals_of(&sweep), proposals_of(&first));
    let proposals = proposals_of(&first);
    assert_eq!(proposals.len(), 12);
    assert_eq!(
        (&proposals[4]["based_on"], &proposals[6]["based_on"]),
        (&serde_json::json!([]), &serde_json::json!([1, 2, 3, 4, 5, 6]))
    );
    assert!(proposals.iter().all(|one| (0..=15).contains(&one["values"][2].as_i64().unwrap())), "{proposals:?}");
    let table = json(&first.join("table.json"));
    let scores = || table["rows"].as_array().unwrap().iter().map(|row| row["metric"]["median"].as_f64().unwrap());
    let best = scores().nth(table["best"].as_u64().unwrap() as usize - 1).unwrap();
    assert_eq!(best, scores().fold(f64::NEG_INFINITY, f64::max));
    whole.exits(0, &["sweep", "choose.toml", "-s", "sweep.seed=1", "--trials", "3", "-q"]);
    assert_ne!(rows(&whole.latest_sweep("choose"))[0], rows(&first)[0], "another seed, other trials");
}

#[test]
fn a_point_that_fails_is_the_worst_and_the_search_goes_on() {
    let workplace = Workplace::with("half.toml", HALVING);
    let fails = "pipeline.dummy.fail_at_step=5,500";
    workplace.exits(1, &["sweep", "half.toml", "-s", fails, "-s", "pipeline.dummy.step_microseconds=0", "--jobs", "2"]);
    let table = json(&workplace.latest_sweep("half").join("table.json"));
    let rows = table["rows"].as_array().unwrap();
    let failed = |row: &&Value| row["values"][1] == 5;
    assert!(rows.iter().filter(failed).all(|row| row["outcome"] == "failed (exit 1)" && row["rung"] == 0), "{rows:?}");
    assert!(rows.iter().filter(failed).count() > 0 && rows.iter().any(|row| row["rung"] == 3), "{rows:?}");
    let best = rows.iter().find(|row| row["trial"] == table["best"]).unwrap();
    assert_eq!((&best["values"][1], &best["outcome"]), (&500.into(), &"finished".into()));
}

#[test]
fn a_run_stops_after_the_step_that_it_is_told_and_goes_on_as_if_it_had_not() {
    let workplace = Workplace::ran("half", HALVING);
    let whole = workplace.latest("half");
    let output = workplace.exits(0, &["half.toml", "--until", "10"]);
    let parts = workplace.latest("half");
    assert_ne!(parts, whole);
    let message = json(&parts.join("summary.json"))["message"].as_str().unwrap().to_owned();
    assert!(output.err.contains(&message), "{output:?}");
    insta::assert_snapshot!(message);
    let run = parts.to_str().unwrap();
    assert_eq!(
        (&json(&parts.join("summary.json"))["steps"], &json(&parts.join("manifest.json"))["until"]),
        (&10.into(), &10.into())
    );
    assert_eq!(json(&parts.join("plan.json"))["steps"], 72, "the schedule is that of all steps");
    workplace.exits(0, &["resume", run, "--until", "40", "-q"]);
    assert_eq!(json(&parts.join("summary.json"))["steps"], 40);
    workplace.exits(0, &["resume", run, "-q"]);
    assert!(json(&parts.join("manifest.json"))["until"].is_null());
    assert_eq!(text(&parts.join("metrics.jsonl")), text(&whole.join("metrics.jsonl")));
}

#[test]
fn what_a_search_cannot_do_is_said_before_anything_runs() {
    let workplace = Workplace::new();
    let mut refusals = String::new();
    let mut wrong = |name: &str, from: &str, to: &str, arguments: &[&str], keys: &[&str]| {
        workplace.file(name, &HALVING.replace(from, to));
        let output = workplace.exits(2, &[&["sweep", name, "--json"], arguments].concat());
        let refusal = output.json();
        let found = refusal["problems"].as_array().unwrap().iter().map(|problem| problem["key"].as_str().unwrap());
        assert_eq!(found.collect::<Vec<_>>(), keys, "{name}: {refusal}");
        refusals += &format!("{}\n", output.err);
    };
    let metric = "metric = \"score\"";
    wrong("a.toml", metric, "", &[], &["sweep.metric"]);
    wrong("b.toml", metric, "metric = \"scor\"", &[], &["sweep.metric"]);
    wrong("c.toml", "min_steps = 8", "", &[], &["sweep.asha.min_steps"]);
    wrong("d.toml", "trials = 9", "", &[], &["sweep.trials"]);
    wrong("e.toml", "trials = 9", "trials = 8", &[], &["sweep.trials"]);
    wrong("f.toml", "every_steps = 8", "every_epochs = 0", &[], &["sweep.metric"]);
    wrong("g.toml", "min_steps = 8", "min_step = 8", &[], &["sweep.asha.min_step"]);
    wrong("h.toml", "method = \"asha\"", "method = \"random\"", &[], &["sweep.metric", "sweep.asha"]);
    wrong("i.toml", "seed = 3", "repeats = 2", &[], &["sweep.repeats"]);
    wrong("j.toml", "", "", &["-s", "validation.every_steps=8,12"], &["sweep.method"]);
    wrong("k.toml", "", "", &["-s", "training.epochs=3,4"], &["sweep.trials", "sweep.method"]);
    wrong("m.toml", "", "", &["--method", "tpe"], &["sweep.asha"]);
    insta::assert_snapshot!(refusals);
    assert!(!workplace.path("results").exists());
    workplace.file("command.toml", "[pipeline.command]\nprogram = [\"true\"]\n");
    let output = workplace.exits(2, &["run", "command.toml", "--until", "3"]);
    insta::assert_snapshot!("until_of_a_command", redacted_names(&output.err));
}
