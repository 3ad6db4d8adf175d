//! Kills of a sweep and its runs at any moment: nothing is lost or run twice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::workplace::{Workplace, end, json, lines_with, metrics, redacted, text, wait_until};

const EXPERIMENT: &str = include_str!("../experiments/tiny/swept-slowly.toml");
const RUNS: usize = 12;
const STEPS: u64 = 30;
/// The longest wait for a kill. Two processes sleep at least 12 runs * 30 steps * 12 ms / 2 = 2.16 s, whatever the machine:
/// that is time for five kills.
const PATIENCE_MILLISECONDS: u64 = 400;

fn workplace() -> Workplace {
    Workplace::with("cut.toml", EXPERIMENT)
}

fn directory(workplace: &Workplace) -> PathBuf {
    workplace.path("results/cut/sweeps/latest")
}

/// The runs that make steps.
fn begun(workplace: &Workplace) -> Vec<PathBuf> {
    let runs = std::fs::read_dir(directory(workplace).join("trials")).into_iter().flatten().flatten();
    runs.map(|run| run.path()).filter(|run| run.join("metrics.jsonl").exists()).collect()
}

/// The processes that a process started and that still run.
fn children(of: &Child) -> Vec<i32> {
    let path = format!("/proc/{0}/task/{0}/children", of.id());
    std::fs::read_to_string(path).unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: a signal to a process that a test started.
    unsafe { libc::kill(pid, signal) };
}

/// Last message of each finished run.
fn finished(sweep: &Path) -> BTreeMap<String, String> {
    let runs = std::fs::read_dir(sweep.join("trials")).into_iter().flatten().flatten();
    runs.filter_map(|entry| {
        let summary = std::fs::read_to_string(entry.path().join("summary.json")).ok()?;
        summary.contains("\"outcome\": \"finished\"").then(|| (entry.file_name().into_string().unwrap(), summary))
    })
    .collect()
}

/// All runs are there, with each step once.
fn is_whole(sweep: &Path) {
    assert_eq!(finished(sweep).len(), RUNS);
    for run in finished(sweep).keys() {
        let steps = metrics(&sweep.join("trials").join(run)).into_iter().filter(|line| line["kind"] == "train");
        let steps: Vec<u64> = steps.map(|line| line["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, (1..=STEPS).collect::<Vec<_>>(), "{run}");
    }
    let table = json(&sweep.join("table.json"));
    let rows = table["rows"].as_array().unwrap();
    assert!(rows.len() == 6 && rows.iter().all(|row| row["outcome"] == "finished"), "{table}");
    assert_eq!(text(&sweep.join("table.csv")).lines().count(), 7);
    assert!(sweep.join("report.html").exists());
}

#[test]
fn a_killed_run_is_a_row_and_a_resume_goes_on_with_it() {
    let workplace = workplace();
    let mut sweep = workplace.spawn(&["sweep", "cut.toml", "-s", "pipeline.dummy.step_microseconds=20000"]);
    let trials = || std::fs::read_dir(directory(&workplace).join("trials")).into_iter().flatten().flatten();
    let makes_steps = |run: &Path| {
        let begun = std::fs::metadata(run.join("metrics.jsonl")).is_ok_and(|file| file.len() > 0);
        begun && !run.join("summary.json").exists()
    };
    let mut killed = None;
    wait_until("a run makes steps", || {
        killed = trials().map(|entry| entry.path()).find(|run| makes_steps(run));
        match (&killed, children(&sweep).first()) {
            (Some(_), Some(process)) => {
                signal(*process, libc::SIGKILL);
                true
            }
            _ => false,
        }
    });
    let killed = killed.unwrap();
    assert_eq!(sweep.wait().unwrap().code(), Some(1), "the other runs finish");
    let path = std::fs::canonicalize(directory(&workplace)).unwrap();
    let name = killed.file_name().unwrap().to_str().unwrap().to_owned();
    let table = json(&path.join("table.json"));
    let runs = table["rows"].as_array().unwrap().iter().flat_map(|row| row["runs"].as_array().unwrap());
    let (bad, good): (Vec<_>, Vec<_>) = runs.partition(|run| run["run"] == name.as_str());
    assert_eq!((&bad[0]["outcome"], &bad[0]["signal"]), (&"killed".into(), &9.into()));
    assert!(good.iter().all(|run| run["outcome"] == "finished"));
    let before = finished(&path);
    let output = workplace.exits(0, &["sweep", "--resume", path.to_str().unwrap()]);
    insta::assert_snapshot!(lines_with(&output.err, "11 runs"));
    assert_eq!(json(&path.join("trials").join(&name).join("manifest.json"))["resumed"].as_array().unwrap().len(), 1);
    assert!(before.iter().all(|(run, summary)| finished(&path)[run] == *summary), "nothing is done twice");
    is_whole(&path);
}

#[test]
fn ctrl_c_stops_the_run_in_good_order_and_says_how_to_go_on() {
    let workplace = workplace();
    let sweep = workplace.spawn(&["sweep", "cut.toml", "--jobs", "2", "-s", "pipeline.dummy.step_microseconds=20000"]);
    wait_until("two runs make steps", || begun(&workplace).len() == 2);
    signal(sweep.id() as i32, libc::SIGINT);
    let output = crate::workplace::Output::from(sweep.wait_with_output().unwrap());
    assert_eq!(output.code, 8, "{output:?}");
    insta::assert_snapshot!(lines_with(&output.err, "sweep --resume"));
    let path = std::fs::canonicalize(directory(&workplace)).unwrap();
    let runs: Vec<PathBuf> = std::fs::read_dir(path.join("trials")).unwrap().flatten().map(|run| run.path()).collect();
    let stopped = runs
        .iter()
        .filter(|run| run.join("summary.json").exists() && json(&run.join("summary.json"))["outcome"] == "interrupted");
    assert_eq!(stopped.count(), 2, "both wrote their checkpoints");
    workplace.exits(0, &["sweep", "--resume", path.to_str().unwrap(), "-q"]);
    is_whole(&path);
}

#[test]
fn a_sweep_that_another_process_works_on_is_not_taken() {
    let workplace = workplace();
    let mut sweep = workplace.spawn(&["sweep", "cut.toml"]);
    wait_until("the sweep begins", || directory(&workplace).join("sweep.toml").exists());
    insta::assert_snapshot!(redacted(&workplace.exits(1, &["sweep", "--resume", "results/cut/sweeps/latest"]).err));
    signal(sweep.id() as i32, libc::SIGINT);
    sweep.wait().unwrap();
}

#[test]
fn runs_of_a_killed_sweep_stop_by_themselves() {
    let workplace = workplace();
    let sweep = workplace.spawn(&["sweep", "cut.toml", "-s", "pipeline.dummy.step_microseconds=50000"]);
    wait_until("a run makes steps", || begun(&workplace).len() == 1);
    end(sweep);
    let path = directory(&workplace);
    wait_until("its run stops in good order", || {
        let runs = std::fs::read_dir(path.join("trials")).unwrap().flatten();
        runs.filter(|run| run.path().join("summary.json").exists()).count() == 1
    });
}

/// Kills the sweep, or one of its runs, again and again, until it ends by itself. Answers the number of kills.
fn kill_until_done(wanted: u32, seed: u64) -> u32 {
    let workplace = workplace();
    let jobs = ["1", "2"][seed as usize % 2];
    let mut kills = 0;
    let mut before: BTreeMap<String, String> = BTreeMap::new();
    // A generator of Marsaglia's (xorshift): any will do.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    for round in 0.. {
        assert!(round < 500, "the sweep never ends");
        let begun = directory(&workplace).join("sweep.toml").exists();
        let latest = directory(&workplace);
        let arguments: Vec<&str> = match begun {
            true => vec!["sweep", "--resume", latest.to_str().unwrap(), "-q", "--jobs", jobs],
            false => vec!["sweep", "cut.toml", "-q", "--jobs", jobs],
        };
        let mut sweep = workplace.spawn(&arguments);
        let patience = Duration::from_millis(random(PATIENCE_MILLISECONDS));
        let whole = kills >= wanted;
        let start = Instant::now();
        while sweep.try_wait().unwrap().is_none() && (whole || start.elapsed() < patience) {
            std::thread::sleep(Duration::from_millis(1));
        }
        match sweep.try_wait().unwrap() {
            Some(status) if status.code() == Some(0) => break,
            // A run that was killed is a row; the next resume goes on with it.
            Some(status) => assert_eq!(status.code(), Some(1)),
            None => {
                let run = children(&sweep).first().copied().filter(|_| random(3) == 0);
                signal(run.unwrap_or(sweep.id() as i32), libc::SIGKILL);
                kills += 1;
                if run.is_some() {
                    // The sweep goes on; it is stopped a moment later.
                    std::thread::sleep(Duration::from_millis(random(60)));
                    sweep.kill().unwrap();
                    kills += 1;
                }
            }
        }
        sweep.wait().unwrap();
        let now = finished(&latest);
        for (run, summary) in &before {
            assert_eq!(now.get(run), Some(summary), "{run} was lost or done twice after {kills} kills");
        }
        before = now;
    }
    let sweeps = std::fs::read_dir(workplace.path("results/cut/sweeps")).unwrap().flatten();
    let described = sweeps.filter(|sweep| sweep.path().join("sweep.toml").exists() && sweep.file_name() != "latest");
    assert_eq!(described.count(), 1);
    is_whole(&directory(&workplace));
    kills
}

#[test]
fn killed_at_any_moment_a_sweep_loses_nothing_and_does_nothing_twice() {
    assert!(kill_until_done(8, 1) >= 4);
}
