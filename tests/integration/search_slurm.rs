//! Searches on a simulated Slurm: the same choices as on this machine.

use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::Value;

use crate::search::{CHOOSING, HALVING, rows};
use crate::sweep_slurm::{Cluster, interrupt, outcomes};
use crate::workplace::{Output, Workplace, end, lines_with, redacted, text, unsealed, wait_until};

const ONE_AT_A_TIME: &str = "[launcher.slurm]\narray_limit = 1\nmemory = \"64 MiB\"\n";

/// A stand-in cluster with a search by halving, one job at a time, with more lines in its job.
fn cluster(lines: &str) -> Cluster {
    let cluster = Cluster::new();
    cluster.file("half.toml", &format!("{HALVING}{ONE_AT_A_TIME}{lines}"));
    cluster
}

/// The table of the same search on this machine, and how many processes it took.
fn here(file: &str, content: &str) -> (Vec<Value>, usize) {
    let workplace = Workplace::with(file, content);
    workplace.exits(0, &["sweep", file, "-q"]);
    let sweep = workplace.latest_sweep(file.trim_end_matches(".toml"));
    (rows(&sweep), processes(&sweep))
}

fn processes(sweep: &Path) -> usize {
    unsealed(&text(&sweep.join("processes.jsonl"))).lines().count()
}

fn directory(cluster: &Cluster) -> PathBuf {
    cluster.latest_sweep("half")
}

/// A process that goes on with the search.
fn resume(cluster: &Cluster) -> Child {
    cluster.spawn(&["sweep", "--resume", directory(cluster).to_str().unwrap()])
}

/// The state of a job that was submitted, as the queue has it.
fn state(cluster: &Cluster, job: usize) -> Option<String> {
    let files = std::fs::read_dir(cluster.path("bin")).unwrap().flatten();
    let mut tasks = files.filter(|file| file.file_name().to_string_lossy().starts_with(&format!("task_{job}_")));
    Some(text(&tasks.next()?.path()).split('|').nth(2)?.to_owned())
}

fn script(cluster: &Cluster, job: usize) -> String {
    text(&cluster.path(&format!("bin/job_{job}")))
}

#[test]
fn halving_on_slurm_has_the_table_of_this_machine() {
    let (expected, count) = here("half.toml", HALVING);
    let cluster = cluster("");
    cluster.tell("array_size", "4");
    // The first job is killed in the middle of its run, which is no failure of the trial.
    cluster.tell("end_1_0", "NODE_FAIL");
    let slow = ["-s", "limits.metrics_queue=1", "-s", "pipeline.dummy.step_microseconds=30000"];
    let output = cluster.exits(0, &[&["sweep", "half.toml", "--launcher", "slurm"][..], &slow].concat());
    let sweep = directory(&cluster);
    assert_eq!(rows(&sweep), expected);
    assert_eq!(cluster.submissions(), (count + 1).to_string(), "a job a run and rung, and one again");
    let lines = output.err.lines().filter(|line| line.contains("0001-1") || line.contains(" of 9 "));
    let lines: Vec<&str> = lines.map(|line| line.split_once("/9 · ").map_or(line, |(_, rest)| rest)).collect();
    insta::assert_snapshot!(redacted(&lines.join("\n")));
    let name = sweep.file_name().unwrap().to_str().unwrap();
    assert!(script(&cluster, 1).contains(&format!("--job-name=xrun_{name}_to_8\n#SBATCH --array=0\n")));
    let all: Vec<String> = (1..=count + 1).map(|job| script(&cluster, job)).collect();
    assert!(all.iter().any(|one| one.contains("_to_8_from_8\n#SBATCH --array=0\n")), "the ninth: {all:?}");
    assert!(all.iter().any(|one| one.contains("_to_24")) && all.iter().any(|one| one.contains("_to_end")), "{all:?}");
    assert!(all.iter().all(|one| one.contains("#SBATCH --mem=64M\n")), "{all:?}");
    let resumed = cluster.xrun(&["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
    assert_eq!((resumed.code, cluster.submissions()), (0, (count + 1).to_string()), "nothing twice: {resumed:?}");
    cluster.exits(0, &["sweep", "--collect", sweep.to_str().unwrap(), "-q"]);
}

#[test]
fn a_watcher_that_is_killed_again_and_again_finds_its_jobs_and_submits_none_twice() {
    let (expected, count) = here("half.toml", HALVING);
    let cluster = cluster("");
    let mut watcher = cluster.spawn(&["sweep", "half.toml", "--launcher", "slurm"]);
    // In the first rung and in those after it.
    for job in [1, 2, 5, 9, count - 1] {
        wait_until("the job runs, or nobody submits it any more", || {
            state(&cluster, job).is_some_and(|state| state != "PENDING") || watcher.try_wait().unwrap().is_some()
        });
        if watcher.try_wait().unwrap().is_some() {
            panic!("before job {job}: {:?}", Output::from(watcher.wait_with_output().unwrap()));
        }
        end(watcher);
        watcher = resume(&cluster);
    }
    let output = Output::from(watcher.wait_with_output().unwrap());
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(rows(&directory(&cluster)), expected);
    assert_eq!(cluster.submissions(), count.to_string());
}

#[test]
fn choosing_on_slurm_has_the_trials_of_this_machine() {
    let content = CHOOSING.replace("trials = 12", "trials = 8");
    let (expected, count) = here("half.toml", &content);
    let cluster = Cluster::new();
    // The memory is that which a probe of a trial says.
    cluster.file("half.toml", &format!("{content}[launcher.slurm]\narray_limit = 1\n"));
    let watcher = cluster.spawn(&["sweep", "half.toml", "--launcher", "slurm"]);
    wait_until("the trial after the start runs", || state(&cluster, 6).is_some_and(|state| state != "PENDING"));
    end(watcher);
    let output = Output::from(resume(&cluster).wait_with_output().unwrap());
    assert_eq!(output.code, 0, "{output:?}");
    let sweep = directory(&cluster);
    assert_eq!(rows(&sweep), expected);
    assert_eq!(cluster.submissions(), count.to_string());
    assert!(script(&cluster, 1).contains("_to_end\n") && script(&cluster, 1).contains("#SBATCH --mem="));
    assert_eq!(unsealed(&text(&sweep.join("proposals.jsonl"))).lines().count(), 8);
}

#[test]
fn ctrl_c_leaves_the_jobs_of_a_search_and_says_that_no_other_is_submitted() {
    let cluster = cluster("");
    cluster.tell("hold", "");
    let several = "launcher.slurm.array_limit=3";
    let watcher = cluster.spawn(&["sweep", "half.toml", "--launcher", "slurm", "-s", several]);
    wait_until("three jobs are submitted", || state(&cluster, 3).is_some());
    let output = interrupt(watcher);
    assert_eq!(output.code, 8, "{output:?}");
    insta::assert_snapshot!(
        "jobs_that_go_on",
        ["9 of 9", "scancel", "sweep --"].map(|part| lines_with(&output.err, part)).join("\n")
    );
    let sweep = directory(&cluster);
    let path = sweep.to_str().unwrap();
    let output = cluster.exits(8, &["sweep", "--collect", path]);
    insta::assert_snapshot!("collected_while_jobs_wait", lines_with(&output.err, "of 9"));
    assert_eq!(outcomes(&sweep), [&["waiting"; 3][..], &["not run"; 6]].concat());
    let output = cluster.xrun(&["sweep", "--resume", path, "--launcher", "local"]);
    assert!(output.code == 2 && output.err.contains("scancel 1 2 3"), "{output:?}");
    let output = interrupt(cluster.watch(&sweep));
    assert_eq!(
        (output.code, cluster.submissions().as_str()),
        (8, "3"),
        "what waits is not submitted again: {output:?}"
    );
    insta::assert_snapshot!("jobs_that_were_taken_over", lines_with(&output.err, "3 waiting"));
    assert_eq!(output.err.matches("sweep --resume").count(), 1, "{output:?}");
}

#[test]
fn a_run_whose_next_job_waits_is_said_to_wait() {
    let cluster = cluster("");
    let watcher = cluster.spawn(&["sweep", "half.toml", "--launcher", "slurm"]);
    // After three trials, one goes on.
    wait_until("the third job runs", || state(&cluster, 3).is_some_and(|state| state != "PENDING"));
    cluster.tell("hold", "");
    wait_until("the fourth job waits", || state(&cluster, 4).is_some());
    let output = interrupt(watcher);
    assert!(output.code == 8 && script(&cluster, 4).contains("--until 24 "), "{output:?}");
    let sweep = directory(&cluster);
    cluster.exits(8, &["sweep", "--collect", sweep.to_str().unwrap(), "-q"]);
    let mut first = outcomes(&sweep)[..4].to_vec();
    first.sort();
    assert_eq!(first, ["not run", "stopped at a rung", "stopped at a rung", "waiting"]);
    // Who takes it back takes back the search, though its run had begun.
    let watcher = cluster.watch(&sweep);
    assert!(std::process::Command::new(cluster.path("bin/scancel")).arg("4").status().unwrap().success());
    let output = crate::workplace::Output::from(watcher.wait_with_output().unwrap());
    assert_eq!(output.code, 8, "{output:?}");
    insta::assert_snapshot!("a_job_that_was_cancelled", lines_with(&output.err, "error: "));
    assert_eq!(cluster.submissions(), "4");
}

#[test]
fn a_job_that_never_gets_as_far_as_to_go_on_is_the_worst_at_its_rung_and_not_tried_for_ever() {
    let cluster =
        cluster("extra_lines = [\"! grep -q 'until 2[4]' \\\"$0\\\" || { echo no such module; exit 3; }\"]\n");
    let output = cluster.exits(1, &["sweep", "half.toml", "--launcher", "slurm"]);
    let mut outputs: Vec<&str> = output
        .err
        .lines()
        .filter_map(|line| Some(line.split_once(": ")?.1))
        .filter(|line| line.contains("no such module"))
        .collect();
    outputs.dedup();
    insta::assert_snapshot!(redacted(&outputs.join("\n")));
    assert_eq!(cluster.submissions(), "12", "nine, and three of them that were to go on");
    assert_eq!(outcomes(&directory(&cluster)), ["stopped at a rung"; 9]);
}

#[test]
fn a_refusal_in_the_middle_of_a_search_can_be_gone_on_from() {
    let (expected, count) = here("half.toml", HALVING);
    let cluster = cluster("");
    let watcher = cluster.spawn(&["sweep", "half.toml", "--launcher", "slurm"]);
    wait_until("the second job runs", || state(&cluster, 2).is_some_and(|state| state != "PENDING"));
    cluster.tell("refuse", "sbatch: error: Batch job submission failed: Invalid account\n");
    let output = Output::from(watcher.wait_with_output().unwrap());
    assert!(output.code == 1 && output.err.contains("sweep --resume"), "{output:?}");
    insta::assert_snapshot!(lines_with(&output.err, "`account`"));
    cluster.forget("refuse");
    let output = crate::workplace::Output::from(resume(&cluster).wait_with_output().unwrap());
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!((rows(&directory(&cluster)), cluster.submissions()), (expected, count.to_string()));
}
