//! Out-of-memory deaths on a cluster while no launcher runs: reported by the next one, and not resubmitted unnoticed.

use std::path::PathBuf;

use xrun::files::write;

use crate::search::HALVING;
use crate::sweep_memory::not_retried;
use crate::sweep_slurm::{Cluster, interrupt, outcomes};
use crate::workplace::{Output, json, lines_with, text, wait_until};

pub const LEAK: &str = include_str!("../experiments/tiny/swept-leak.toml");

const RESTS: &str = include_str!("../experiments/tiny/swept-rests.toml");

/// A sweep whose first job Slurm ends for its memory, after nobody watches any more.
fn left_alone(file: &str, content: &str, end: &str) -> (Cluster, PathBuf) {
    let cluster = Cluster::new();
    cluster.file(file, content);
    // Its steps go on until the watcher has gone.
    cluster.tell("end_1_0", end);
    let watcher = cluster.spawn(&["sweep", file, "--launcher", "slurm", "-s", "launcher.slurm.memory=150 MiB"]);
    let state = || std::fs::read_to_string(cluster.path("bin/task_1_0")).unwrap_or_default();
    wait_until("the job runs", || state().contains("RUNNING"));
    let output = interrupt(watcher);
    assert_eq!(output.code, 8, "{output:?}");
    wait_until("the job died", || state().contains("OUT_OF_MEMORY"));
    let name = file.trim_end_matches(".toml");
    let sweep = cluster.latest_sweep(name);
    (cluster, sweep)
}

/// Whether the death of a run was reported, with the memory that it had.
fn reported(output: &Output) -> bool {
    output.err.lines().any(|line| line.contains("OUT_OF_MEMORY") && line.contains("150.0 MiB"))
}

fn resume(cluster: &Cluster, sweep: &std::path::Path) -> Output {
    cluster.xrun(&["sweep", "--resume", sweep.to_str().unwrap()])
}

#[test]
fn a_leak_is_told_with_its_owner_and_is_submitted_again_only_by_somebody_who_knows() {
    let (cluster, sweep) = left_alone("leak.toml", LEAK, "OUT_OF_MEMORY 150");
    let output = resume(&cluster, &sweep);
    assert!(output.code == 1 && reported(&output), "{output:?}");
    assert!(output.err.contains("`dummy_leak`"), "{output:?}");
    insta::assert_snapshot!(not_retried(&output.err));
    assert_eq!((cluster.submissions().as_str(), outcomes(&sweep)), ("1", vec!["killed".to_owned()]));
    let table = json(&sweep.join("table.json"));
    assert!(table["rows"][0]["runs"][0]["message"].as_str().unwrap().contains("growing"), "{table}");
    let output = resume(&cluster, &sweep);
    assert!(!reported(&output), "once is enough: {output:?}");
    assert_eq!((output.code, cluster.submissions().as_str()), (0, "2"));
}

#[test]
fn what_rested_is_tried_once_more_with_what_it_needed() {
    let (cluster, sweep) = left_alone("rests.toml", RESTS, "OUT_OF_MEMORY 40");
    let output = resume(&cluster, &sweep);
    assert!(output.code == 0 && reported(&output), "{output:?}");
    insta::assert_snapshot!("a_death_that_is_retried", lines_with(&output.err, "OUT_OF_MEMORY"));
    let script = text(&cluster.path("bin/job_2"));
    let memory: u64 = script.split("--mem=").nth(1).unwrap().split('M').next().unwrap().parse().unwrap();
    assert!((240..=600).contains(&memory), "{memory}");
    assert_eq!((cluster.submissions().as_str(), outcomes(&sweep)), ("2", vec!["finished".to_owned()]));
}

#[test]
fn who_has_given_it_more_since_is_not_asked_again() {
    let (cluster, sweep) = left_alone("rests.toml", RESTS, "OUT_OF_MEMORY 40");
    let settings = text(&sweep.join("slurm.toml")).replace("150 MiB", "700 MiB");
    write::replace(&sweep.join("slurm.toml"), settings.as_bytes()).unwrap();
    let output = resume(&cluster, &sweep);
    assert!(output.code == 0 && !reported(&output), "{output:?}");
    assert!(text(&cluster.path("bin/job_2")).contains("--mem=700M"));
}

#[test]
fn a_run_of_a_search_is_tried_once_more_to_the_same_rung() {
    let slow = HALVING.replace("step_microseconds = 2000", "step_microseconds = 20000");
    let one = "[limits]\nmetrics_queue = 1\n[launcher.slurm]\narray_limit = 1\n";
    let (cluster, sweep) = left_alone("half.toml", &format!("{slow}{one}"), "OUT_OF_MEMORY 6");
    let watcher = cluster.spawn(&["sweep", "--resume", sweep.to_str().unwrap()]);
    wait_until("it was submitted again", || cluster.path("bin/job_2").is_file());
    let output = interrupt(watcher);
    assert!(reported(&output), "{output:?}");
    insta::assert_snapshot!("a_death_that_is_retried", lines_with(&output.err, "OUT_OF_MEMORY"));
    let script = text(&cluster.path("bin/job_2"));
    assert!(script.contains("--until 8 ") && !script.contains("--mem=150M"), "{script}");
}
