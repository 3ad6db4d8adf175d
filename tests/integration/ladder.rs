//! Runs that are short of memory and descend the ladder `limits.on_pressure`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::plan::Cgroup;
use crate::workplace::{Output, Workplace, json, lines, lines_with, metrics, skipped, text, wait_for_lines};

const MIB: u64 = 1 << 20;

/// Steps that fill a cache of 48 MiB, with a ladder.
const CACHING: &str = "[pipeline.dummy]\nsteps_per_epoch = 80\ncache_per_step = \"1 MiB\"\n[memory]\nprobe = false\n\
                       [limits]\nframe_cache = \"48 MiB\"\n";
const LADDER: &str = "on_pressure = [\"caches\", \"micro_batch\", \"park\"]\n";

/// Runs an experiment under a name with more options.
fn run(workplace: &Workplace, name: &str, options: &[&str]) -> (Output, PathBuf) {
    let file = format!("{name}.toml");
    let options = options.iter().flat_map(|option| ["-s", option]);
    let arguments: Vec<&str> = [file.as_str(), "--progress=none"].into_iter().chain(options).collect();
    (workplace.xrun(&arguments), workplace.latest(name))
}

/// A workplace with the experiment `plain` and the same with the ladder, `ladder`, and the RSS of a run before its first step
/// in MiB.
fn workplace() -> (Workplace, PathBuf, u64) {
    let workplace = Workplace::with("plain.toml", CACHING);
    workplace.file("ladder.toml", &format!("{CACHING}{LADDER}"));
    let (output, plain) = run(&workplace, "plain", &[]);
    assert_eq!(output.code, 0, "{output:?}");
    let start = lines(&plain.join("memory.jsonl"))[0]["host"]["rss"].as_u64().unwrap() / MIB;
    (workplace, plain, start)
}

fn rungs(run: &Path) -> Vec<Value> {
    json(&run.join("summary.json"))["rungs"].as_array().cloned().unwrap_or_default()
}

fn names(run: &Path) -> Vec<String> {
    rungs(run).iter().map(|taken| taken["rung"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_probe_measures_how_long_a_step_takes_with_a_rung() {
    let workplace = Workplace::with("ladder.toml", &format!("{}{LADDER}", CACHING.replace("probe = false", "")));
    let output = workplace.exits(0, &["plan", "--json", "ladder.toml", "-s", "pipeline.dummy.activations=4 MiB"]);
    let plan: Value = serde_json::from_str(&output.out).unwrap();
    let durations: Vec<&Value> =
        plan["plan"]["rungs"].as_array().unwrap().iter().map(|rung| &rung["duration"]).collect();
    assert!(durations[1].as_f64().unwrap() > 0.0, "{durations:?}");
    assert_eq!((durations[0], durations[2]), (&Value::Null, &Value::Null), "caches and parking");
}

#[test]
fn a_run_goes_on_with_smaller_caches_and_its_numbers_keep_their_bits() {
    let (workplace, plain, start) = workplace();
    let limit = format!("limits.host_memory={} MiB", start + 30);
    let (ends, _) = run(&workplace, "plain", &[&limit]);
    assert_eq!(ends.code, 5, "{ends:?}");

    let (output, smaller) = run(&workplace, "ladder", &[&limit]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(text(&smaller.join("metrics.jsonl")), text(&plain.join("metrics.jsonl")));
    let taken = rungs(&smaller);
    assert!(!taken.is_empty(), "the limit was reached");
    assert!(taken.iter().all(|rung| rung["rung"] == "caches" && rung["bits"] == "same"), "{taken:?}");
    assert!(taken[0]["gives"].as_u64().unwrap() > 0 && taken[0]["gave"].as_i64().unwrap() > 0, "{taken:?}");
    assert!(lines_with(&text(&smaller.join("log.txt")), "took `caches`").contains("limits.host_memory"));
}

#[test]
fn without_pressure_no_rung_is_taken() {
    let (workplace, plain, _) = workplace();
    let (output, calm) = run(&workplace, "ladder", &["limits.recover=true", "limits.host_memory=4 GiB"]);
    assert_eq!((output.code, rungs(&calm).len()), (0, 0), "{output:?}");
    assert_eq!(text(&calm.join("metrics.jsonl")), text(&plain.join("metrics.jsonl")));
}

#[test]
fn a_leak_parks_with_its_owner_and_no_rung_feeds_it() {
    let (workplace, _, start) = workplace();
    let limit = format!("limits.host_memory={} MiB", start + 110);
    let leak = ["pipeline.dummy.leak_per_step=512 KiB", "pipeline.dummy.leak_in_ledger=true"];
    let (output, parked) = run(&workplace, "ladder", &[leak[0], leak[1], "pipeline.dummy.steps_per_epoch=400", &limit]);
    assert_eq!(output.code, 75, "{output:?}");
    let summary = json(&parked.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["exit_code"]), (&"parked".into(), &75.into()));
    assert!(summary["message"].as_str().unwrap().contains("dummy_leak"), "{summary}");
    assert_eq!(names(&parked), ["park"]);
    let saved = summary["steps"].as_u64().unwrap();
    assert!(parked.join(format!("checkpoints/step_{saved:08}/state.json")).is_file(), "nothing is lost");
    // In a new process the leak starts again.
    workplace.exits(75, &["resume", "ladder"]);
    assert!(json(&parked.join("summary.json"))["steps"].as_u64().unwrap() > saved);
}

#[test]
fn a_container_that_shrinks_and_grows_is_descended_and_climbed() {
    let (workplace, ..) = workplace();
    let Some(group) = Cgroup::new("ladder", 600 * MIB) else {
        return skipped("no memory cgroup can be made here");
    };
    let options = [
        "pipeline.dummy.steps_per_epoch=300",
        "pipeline.dummy.step_microseconds=2000",
        "pipeline.dummy.activations=128 MiB",
        "limits.recover=true",
    ];
    let options = options.iter().flat_map(|option| ["-s", option]);
    let arguments: Vec<&str> = ["ladder.toml", "--progress=none"].into_iter().chain(options).collect();
    let mut child = group.command(&workplace, &arguments).spawn().unwrap();
    let latest = workplace.path("results/ladder/latest");
    // By less than the room that a rung is taken for: the kernel kills a step that is above the limit.
    for number in 0..10 {
        wait_for_lines(&latest, 20 + 12 * number);
        group.set_limit((240 - 7 * number as u64) * MIB);
    }
    wait_for_lines(&latest, 150);
    group.set_limit(900 * MIB);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let run = workplace.latest("ladder");
    let taken = names(&run);
    assert!(taken.iter().any(|taken| taken == "caches"), "{taken:?}");
    assert!(rungs(&run).iter().any(|taken| taken["climbed"] == true), "{:?}", rungs(&run));
    assert_eq!(metrics(&run).iter().filter(|line| line["kind"] == "train").count(), 300);
}

#[test]
fn a_step_that_does_not_fit_is_repeated_in_smaller_parts_before_and_after_the_first_checkpoint() {
    let (workplace, plain, _) = workplace();
    for step in [1, 37] {
        let full = format!("pipeline.dummy.device_full_at_step={step}");
        let options = [full.as_str(), "pipeline.dummy.activations=1 MiB", "checkpoint.every_steps=10"];
        let (output, retried) = run(&workplace, "ladder", &options);
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(text(&retried.join("metrics.jsonl")), text(&plain.join("metrics.jsonl")), "each step once");
        let taken = rungs(&retried);
        assert_eq!((taken.len(), &taken[0]["rung"], &taken[0]["bits"]), (1, &"micro_batch".into(), &"rounding".into()));
        assert_eq!((&taken[0]["level"], &taken[0]["step"]), (&1.into(), &(step - 1).into()));
        assert_eq!(json(&retried.join("manifest.json"))["resumed"].as_array().unwrap().len(), 1);
    }
}
