//! Memory as a sweep's currency: forecasts by trial, sizes on Slurm, runs side by side, one retry and none for a leak.

use std::path::Path;

use serde_json::Value;
use xrun::files::write;

use crate::plan::Cgroup;
use crate::sweep_slurm::{Cluster, outcomes};
use crate::workplace::{Output, Workplace, lines, lines_with, redacted, skipped, text};

/// Four trials: two that are alike in memory, and two that need clearly more.
const HELD: &str = include_str!("../experiments/tiny/swept-memory.toml");

const LEAK: &str = include_str!("../experiments/tiny/swept-leak.toml");

fn toml(path: &Path) -> toml::Table {
    text(path).parse().unwrap()
}

/// Tasks and memory in MiB of each submitted job, by number.
fn jobs(cluster: &Cluster) -> Vec<(String, u64)> {
    let count: usize = cluster.submissions().parse().unwrap_or(0);
    let of = |script: &str, option: &str| {
        let rest = script.split(&format!("#SBATCH --{option}=")).nth(1).unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    let job = |number: usize| {
        let script = text(&cluster.path(&format!("bin/job_{number}")));
        (of(&script, "array"), of(&script, "mem").trim_end_matches('M').parse().unwrap())
    };
    (1..=count).map(job).collect()
}

fn processes(sweep: &Path) -> Vec<Value> {
    lines(&sweep.join("processes.jsonl"))
}

#[test]
fn trials_of_different_memory_are_submitted_by_size_and_a_resume_reads_the_same_sizes() {
    let cluster = Cluster::new();
    cluster.file("held.toml", HELD);
    cluster.tell("refuse", "no");
    cluster.exits(1, &["sweep", "held.toml", "--launcher", "slurm"]);
    let sweep = cluster.latest_sweep("held");
    let memory = toml(&sweep.join("memory.toml"));
    let probed: Vec<i64> =
        memory["forecasts"].as_array().unwrap().iter().map(|one| one["probed"].as_integer().unwrap()).collect();
    assert_eq!(probed.len(), 3, "trials 1 and 3 share a probe: {memory:?}");
    let sizes = memory["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 2, "400 and 410 MiB are one size: {sizes:?}");
    assert_eq!(sizes[0]["trials"], toml::Value::from(vec![1, 3]));
    assert!(!text(&sweep.join("slurm.toml")).contains("memory ="), "no one size for all");

    cluster.forget("refuse");
    let edited = text(&sweep.join("memory.toml")).replacen("memory = ", "memory = \"333 MiB\" # ", 1);
    write::replace(&sweep.join("memory.toml"), edited.as_bytes()).unwrap();
    cluster.exits(0, &["sweep", "--resume", sweep.to_str().unwrap()]);
    assert_eq!(text(&sweep.join("memory.toml")), edited, "forecasts are not measured again");
    assert_eq!(outcomes(&sweep), ["finished"; 4]);
    let jobs = jobs(&cluster);
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    let (large, small) = (&jobs[0], &jobs[1]);
    assert!(large.1 > 410 + 256 && large.1 < 800 && small.1 == 333, "{jobs:?}");
    // Which places the trials have follows from the order.
    let order = toml(&sweep.join("sweep.toml"))["order"].as_array().unwrap().clone();
    let places = |of: [i64; 2]| {
        let place = |trial: &i64| order.iter().position(|run| run[0].as_integer() == Some(*trial)).unwrap();
        let mut places: Vec<usize> = of.iter().map(place).collect();
        places.sort_unstable();
        places
    };
    let listed = |array: &str| -> Vec<usize> {
        let ends = |range: &str| -> Vec<usize> { range.split('-').map(|end| end.parse().unwrap()).collect() };
        array.split(',').flat_map(|range| ends(range)[0]..=*ends(range).last().unwrap()).collect()
    };
    assert_eq!((listed(&large.0), listed(&small.0)), (places([2, 4]), places([1, 3])));
}

#[test]
fn sizes_by_hand_need_no_forecast_and_a_wrong_one_is_refused_with_its_line() {
    let cluster = Cluster::new();
    cluster.file("held.toml", HELD);
    cluster.tell("refuse", "no");
    cluster.exits(1, &["sweep", "held.toml", "--launcher", "slurm"]);
    cluster.forget("refuse");
    let sweep = cluster.latest_sweep("held");
    write::replace(&sweep.join("memory.toml"), b"version = 1\n[[sizes]]\nmemory = \"lots\"\ntrials = [1]\n").unwrap();
    let output = cluster.exits(1, &["sweep", "--resume", sweep.to_str().unwrap()]);
    assert!(output.err.contains("memory.toml") && output.err.contains("line 3"), "{output:?}");
    let by_hand = "version = 1\n[[sizes]]\nmemory = \"700 MiB\"\ntrials = [1, 2]\n";
    write::replace(&sweep.join("memory.toml"), by_hand.as_bytes()).unwrap();
    cluster.exits(0, &["sweep", "--resume", sweep.to_str().unwrap()]);
    assert_eq!(jobs(&cluster), [("0-3".to_owned(), 700)]);
    assert_eq!(text(&sweep.join("memory.toml")), by_hand);
}

#[test]
fn a_retry_that_no_node_can_hold_ends_its_run_and_no_other() {
    let cluster = Cluster::new();
    cluster.file("held.toml", HELD);
    cluster.tell("end_1_0", "OUT_OF_MEMORY");
    cluster.tell("most", "300");
    let output = cluster.xrun(&["sweep", "held.toml", "--launcher", "slurm", "-s", "launcher.slurm.memory=200 MiB"]);
    let refused = |output: &str| output.contains("node configuration");
    assert!(output.code == 1 && refused(&output.err), "{output:?}");
    insta::assert_snapshot!(about(&output.err, "node configuration"));
    let sweep = cluster.latest_sweep("held");
    let finished = || outcomes(&sweep).iter().filter(|outcome| *outcome == "finished").count();
    assert_eq!((finished(), cluster.submissions().as_str()), (3, "1"));
    // A line that is damaged takes nothing from those after it; and of runs that the sweep does not have nothing is taken.
    let lines = text(&sweep.join("processes.jsonl"));
    let other = lines.lines().find(|line| line.contains("retry_memory")).unwrap().replace("-1\"", "-9\"");
    write::replace(&sweep.join("processes.jsonl"), format!("{{\n{other}\n{lines}").as_bytes()).unwrap();
    let again = cluster.xrun(&["sweep", "--resume", sweep.to_str().unwrap()]);
    assert!(again.code == 1 && refused(&again.err), "{again:?}");
    // A machine with more.
    cluster.forget("most");
    let done = cluster.xrun(&["sweep", "--resume", sweep.to_str().unwrap()]);
    assert_eq!((done.code, finished()), (0, 4), "{done:?}");
}

#[test]
fn one_size_for_all_needs_no_probe() {
    let cluster = Cluster::new();
    cluster.file("held.toml", HELD);
    cluster.exits(0, &["sweep", "held.toml", "--launcher", "slurm", "-s", "launcher.slurm.memory=1 GiB"]);
    assert_eq!(jobs(&cluster), [("0-3".to_owned(), 1024)]);
    assert!(!cluster.path("results/held/sweeps/latest/memory.toml").exists());
}

#[test]
fn a_run_that_died_of_memory_is_submitted_once_more_with_more_and_not_twice() {
    let cluster = Cluster::new();
    cluster.file("held.toml", HELD);
    cluster.tell("end_1_0", "OUT_OF_MEMORY");
    let output =
        cluster.exits(0, &["sweep", "held.toml", "--launcher", "slurm", "-s", "launcher.slurm.memory=200 MiB"]);
    let messages = |output: &Output| about(&output.err, "OUT_OF_MEMORY") + "\n";
    let mut retries = messages(&output);
    assert!(output.err.contains("200.0 MiB"), "{output:?}");
    let sweep = cluster.latest_sweep("held");
    assert_eq!(outcomes(&sweep), ["finished"; 4]);
    let jobs = jobs(&cluster);
    assert!(jobs.len() == 2 && jobs[1].0 == "0" && jobs[1].1 >= 320, "{jobs:?}");
    let again: Vec<u64> = processes(&sweep).iter().filter_map(|process| process["retry_memory"].as_u64()).collect();
    assert_eq!(again, [jobs[1].1 << 20]);
    // With all the memory of the second time, too.
    let cluster = Cluster::new();
    cluster.file("held.toml", HELD);
    cluster.tell("end_1_0", "OUT_OF_MEMORY");
    cluster.tell("end_2_0", "OUT_OF_MEMORY 30");
    let output =
        cluster.exits(1, &["sweep", "held.toml", "--launcher", "slurm", "-s", "launcher.slurm.memory=200 MiB"]);
    retries += &messages(&output);
    insta::assert_snapshot!(retries);
    assert_eq!(cluster.submissions(), "2", "{output:?}");
    let sweep = cluster.latest_sweep("held");
    assert_eq!(outcomes(&sweep).iter().filter(|outcome| *outcome == "killed").count(), 1);
    let settings = text(&sweep.join("slurm.toml")).replace("200 MiB", "900 MiB");
    write::replace(&sweep.join("slurm.toml"), settings.as_bytes()).unwrap();
    cluster.exits(0, &["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
    assert_eq!(self::jobs(&cluster)[2], ("0".to_owned(), 900));
}

#[test]
fn a_leak_that_died_of_memory_is_a_row_that_says_what_grew_and_is_not_submitted_again() {
    let cluster = Cluster::new();
    cluster.file("leak.toml", LEAK);
    cluster.tell("end_1_0", "OUT_OF_MEMORY 150");
    let output =
        cluster.exits(1, &["sweep", "leak.toml", "--launcher", "slurm", "-s", "launcher.slurm.memory=150 MiB"]);
    assert!(output.err.contains("`dummy_leak`"), "{output:?}");
    insta::assert_snapshot!(not_retried(&output.err));
    assert_eq!(cluster.submissions(), "1");
    let sweep = cluster.latest_sweep("leak");
    let table = crate::workplace::json(&sweep.join("table.json"));
    let message = table["rows"][0]["runs"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("OUT_OF_MEMORY") && message.contains("growing") && message.contains("`dummy_leak`"),
        "{message}"
    );
}

#[test]
fn runs_are_packed_by_their_forecasts_and_give_the_same_numbers() {
    let workplace = Workplace::with("held.toml", &HELD.replace("400 MiB", "40 MiB").replace("410 MiB", "41 MiB"));
    workplace.exits(0, &["sweep", "held.toml", "--name", "one", "-q"]);
    let output = workplace.exits(0, &["sweep", "held.toml", "--jobs", "auto"]);
    insta::assert_snapshot!(lines_with(&output.err, "probes for"));
    let sweep = workplace.latest_sweep("held");
    let memory = text(&sweep.join("memory.toml"));
    assert_eq!(toml(&sweep.join("memory.toml"))["forecasts"].as_array().map(Vec::len), Some(3), "{memory}");
    for run in ["0001-1", "0002-1", "0003-1", "0004-1"] {
        let metrics =
            |name: &str| text(&workplace.path(&format!("results/{name}/sweeps/latest/trials/{run}/metrics.jsonl")));
        assert_eq!(metrics("one"), metrics("held"), "{run}");
    }
    // What was forecast is kept.
    let output = workplace.xrun(&["sweep", "--resume", "held/sweeps/latest", "--jobs", "auto"]);
    assert_eq!((output.code, text(&sweep.join("memory.toml"))), (0, memory), "{output:?}");
    let output = workplace.exits(2, &["sweep", "held.toml", "--jobs", "none"]);
    insta::assert_snapshot!("jobs_that_are_no_number", redacted(&output.err));
}

#[test]
fn a_point_that_a_search_chooses_is_forecast_when_it_is_chosen() {
    let workplace = Workplace::with("held.toml", &HELD.replace("400 MiB", "40 MiB").replace("410 MiB", "80 MiB"));
    let tpe = ["--method", "tpe", "--trials", "7", "-s", "sweep.metric=score", "-s", "sweep.tpe.startup_trials=2"];
    let output = workplace.exits(0, &[&["sweep", "held.toml", "--jobs", "auto"], &tpe[..]].concat());
    insta::assert_snapshot!(lines_with(&output.err, "probes for").lines().next().unwrap());
    let sweep = workplace.latest_sweep("held");
    let memory = toml(&sweep.join("memory.toml"));
    let table = crate::workplace::json(&sweep.join("table.json"));
    let keys: Vec<&str> = table["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    let hold = keys.iter().position(|key| key.ends_with("hold")).unwrap();
    let mut listed = 0;
    for forecast in memory["forecasts"].as_array().unwrap() {
        let host = forecast["host"].as_integer().unwrap() as u64;
        for trial in forecast["trials"].as_array().unwrap() {
            let held = match &table["rows"][trial.as_integer().unwrap() as usize - 1]["values"][hold] {
                Value::String(text) => text.parse::<xrun::units::Bytes>().unwrap().0,
                _ => 0,
            };
            assert!((held..held + (60 << 20)).contains(&host), "{forecast} for {held}");
            listed += 1;
        }
    }
    assert_eq!(listed, 7, "{memory:?}");
}

#[test]
fn a_search_asks_slurm_for_memory_by_point() {
    let search = crate::search::HALVING.replace("warmup_steps = 4", "warmup_steps = 4\n[limits]\nmetrics_queue = 1");
    let held = format!("{search}[launcher.slurm]\narray_limit = 1\n")
        .replace("[sweep.asha]", "\"pipeline.dummy.hold\" = [\"0\", \"400 MiB\"]\n[sweep.asha]");
    let cluster = Cluster::new();
    cluster.file("half.toml", &held);
    cluster.exits(0, &["sweep", "half.toml", "--launcher", "slurm"]);
    let sizes: std::collections::BTreeSet<u64> = jobs(&cluster).iter().map(|(_, memory)| *memory).collect();
    let sizes: Vec<u64> = sizes.into_iter().collect();
    assert!(sizes.len() == 2 && sizes[0] < 350 && (656..800).contains(&sizes[1]), "{sizes:?}");
}

/// Returns what is said about a memory: the parts of lines of progress, without counts and times, and whole other lines.
pub fn about(output: &str, part: &str) -> String {
    let lines = output.lines().filter_map(|line| line.split(" · ").find(|text| text.contains(part)));
    redacted(&lines.collect::<Vec<_>>().join("\n"))
}

/// Returns why runs are not retried, without what grew.
pub fn not_retried(output: &str) -> String {
    let about = about(output, "not retried");
    let mut reasons: Vec<&str> =
        about.lines().filter_map(|line| line[line.find("not retried")?..].split(':').next()).collect();
    reasons.dedup();
    reasons.join("\n")
}

/// A group with room for one large run, which two forecasts that are too low believe to be room for both.
#[test]
fn a_run_that_died_beside_others_is_tried_again_by_itself_and_a_leak_is_not() {
    let workplace = Workplace::new();
    let Some(group) = Cgroup::new("packed", 1100 << 20) else {
        return skipped("no memory cgroup can be made here");
    };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skipped("one processor");
    }
    workplace.file("held.toml", &HELD.replace("\"0\"", "\"600 MiB\"").replace("410 MiB", "600 MiB"));
    let short = ["-s", "pipeline.dummy.steps_per_epoch=60"];
    let with = |arguments: &[&str]| {
        let output = group.command(&workplace, &[arguments, &short[..]].concat()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, output) = with(&["sweep", "held.toml", "--jobs", "auto", "--fail-fast"]);
    assert_eq!(code, Some(0), "one at a time: {output}");
    let sweep = workplace.latest_sweep("held");
    assert!(processes(&sweep).iter().all(|process| process["retry_memory"].is_null()), "{output}");

    // The same in a sweep whose forecasts were lowered.
    let prepared = workplace.path("results/held/sweeps/latest");
    let memory = text(&prepared.join("memory.toml"));
    let lowered: Vec<String> = memory
        .lines()
        .map(|line| match line.starts_with("host = ") {
            true => "host = \"100 MiB\"".to_owned(),
            false => line.to_owned(),
        })
        .collect();
    write::replace(&prepared.join("memory.toml"), lowered.join("\n").as_bytes()).unwrap();
    for run in ["0001-1", "0002-1", "0003-1", "0004-1"] {
        std::fs::remove_dir_all(prepared.join("trials").join(run)).unwrap();
    }
    let output =
        group.command(&workplace, &["sweep", "--resume", "held/sweeps/latest", "--jobs", "auto"]).output().unwrap();
    let output = Output::from(output);
    assert_eq!(output.code, 0, "{output:?}");
    let again = processes(&std::fs::canonicalize(&prepared).unwrap());
    assert!(
        again.iter().any(|process| process["retry_memory"].as_u64().is_some_and(|bytes| bytes > 256 << 20)),
        "{again:?}"
    );

    let leak = ["-s", "pipeline.dummy.hold=1 MiB,2 MiB", "-s", "pipeline.dummy.leak_per_step=8 MiB"];
    let long = ["-s", "pipeline.dummy.steps_per_epoch=200", "-s", "memory.every_steps=1"];
    let output = group
        .command(
            &workplace,
            &[
                &["sweep", "held.toml", "--method", "grid", "--name", "leak", "--jobs", "auto"],
                &leak[..],
                &long[..],
                &["-s", "optimizer.adamw.learning_rate=0.001"],
            ]
            .concat(),
        )
        .output()
        .unwrap();
    let output = Output::from(output);
    assert_eq!(output.code, 1, "{output:?}");
    let sweep = workplace.latest_sweep("leak");
    assert!(processes(&sweep).iter().all(|process| process["retry_memory"].is_null()), "{output:?}");
    insta::assert_snapshot!("a_leak_beside_others", not_retried(&output.err));
}
