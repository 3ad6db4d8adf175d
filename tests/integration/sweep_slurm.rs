//! A sweep on Slurm, with commands of ours in place of Slurm's. `.ci/slurm-test` has a real one.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::workplace::{Output, Workplace, json, lines_with, redacted, redacted_names, send, text, wait_until};

const EXPERIMENT: &str = include_str!("../experiments/tiny/swept-on-slurm.toml");

/// Runs the tasks of an array one after another, and keeps the state of each in a file, unless a file beside it says
/// something else: `refuse` (with these words), `most` (refuse what asks for more MiB), `queue` (refuse while this number of tasks is active), `hold` (start nothing), `lose` (a node that sees nothing), `end_1_0`
/// (kill task 0 of job 1 when it makes steps, or so many: the second word; the first word in the file is its state).
const SBATCH: &str = include_str!("../stand_in/slurm/sbatch");

const SQUEUE: &str = include_str!("../stand_in/slurm/squeue");

const SCONTROL: &str = include_str!("../stand_in/slurm/scontrol");

const SCANCEL: &str = include_str!("../stand_in/slurm/scancel");

/// A workplace with commands of ours in place of Slurm's.
pub struct Cluster {
    pub workplace: Workplace,
}

impl std::ops::Deref for Cluster {
    type Target = Workplace;

    fn deref(&self) -> &Workplace {
        &self.workplace
    }
}

impl Cluster {
    pub fn new() -> Self {
        let workplace = Workplace::with("four.toml", EXPERIMENT);
        for (name, script) in [("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL), ("scontrol", SCONTROL)] {
            workplace.program(name, script);
        }
        Self { workplace }
    }

    fn sweep(&self, more: &[&str]) -> Output {
        self.xrun(&[&["sweep", "four.toml", "--launcher", "slurm"], more].concat())
    }

    pub fn tell(&self, name: &str, text: &str) {
        self.workplace.file(&format!("bin/{name}"), text);
    }

    pub fn forget(&self, name: &str) {
        std::fs::remove_file(self.workplace.path("bin").join(name)).unwrap();
    }

    pub fn submissions(&self) -> String {
        std::fs::read_to_string(self.workplace.path("bin/last")).unwrap_or_default().trim().to_owned()
    }

    /// Number of calls of `squeue` with this outcome.
    fn asked(&self, outcome: &str) -> usize {
        std::fs::read_to_string(self.workplace.path("bin").join(outcome)).unwrap_or_default().lines().count()
    }

    /// A process that goes on with a sweep, once it watches what is in the queue.
    pub fn watch(&self, sweep: &Path) -> Child {
        let before = self.asked("answered");
        let watcher = self.spawn(&["sweep", "--resume", sweep.to_str().unwrap()]);
        wait_until("the jobs are looked for and watched", || self.asked("answered") > before + 1);
        watcher
    }

    pub fn directory(&self) -> PathBuf {
        self.workplace.latest_sweep("four")
    }
}

pub fn interrupt(child: Child) -> Output {
    send(&child, libc::SIGINT);
    Output::from(child.wait_with_output().unwrap())
}

/// Returns what is said of the jobs that are submitted, and of the runs at the end.
fn jobs_and_end(output: &Output) -> String {
    let lines: Vec<&str> =
        output.err.lines().filter(|line| line.starts_with("job ") || line.contains(" runs finished")).collect();
    redacted(&lines.join("\n"))
}

pub fn outcomes(sweep: &Path) -> Vec<String> {
    let table = json(&sweep.join("table.json"));
    table["rows"].as_array().unwrap().iter().map(|row| row["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn all_trials_are_one_array_that_asks_for_what_the_file_and_the_plan_say() {
    let cluster = Cluster::new();
    let output = cluster.sweep(&[]);
    assert_eq!(output.code, 0, "{output:?}");
    insta::assert_snapshot!(jobs_and_end(&output));
    let sweep = cluster.directory();
    assert_eq!(outcomes(&sweep), ["finished"; 4]);
    let script = text(&sweep.join("slurm.sh"));
    for line in [
        "#SBATCH --array=0-3%2\n",
        "#SBATCH --partition=short\n",
        "#SBATCH --time=0-01:30:00\n",
        "#SBATCH --signal=B:TERM@60\n",
        "#SBATCH --constraint=fast\nexport LOADED=yes\nexec ",
    ] {
        assert!(script.contains(line), "{line} is not in {script}");
    }
    assert!(!script.contains("--gres"), "the dummy runs on the CPU: {script}");
    let memory = script.split("--mem=").nth(1).unwrap().split('M').next().unwrap().parse::<u64>().unwrap();
    let peak = json(&sweep.join("table.json"))["rows"][0]["rss_peak"]["median"].as_f64().unwrap() / f64::from(1 << 20);
    assert!(memory as f64 > peak + 200.0 && (memory as f64) < peak + 400.0, "{memory} M for a run of {peak} MiB");
    let forecasts: toml::Table = text(&sweep.join("memory.toml")).parse().unwrap();
    assert_eq!(forecasts["forecasts"].as_array().map(Vec::len), Some(4), "{forecasts}");
    assert!(!text(&sweep.join("trials/0001-1/resolved.toml")).contains("launcher"), "no part of a run");
    let output = cluster.xrun(&["sweep", "--resume", sweep.to_str().unwrap()]);
    assert_eq!((output.code, cluster.submissions().as_str()), (0, "1"), "nothing twice: {output:?}");
    cluster.exits(0, &["sweep", "--collect", sweep.to_str().unwrap(), "-q"]);
}

#[test]
fn more_runs_than_one_array_takes_become_several_one_after_another() {
    let cluster = Cluster::new();
    cluster.tell("array_size", "3");
    let output = cluster.sweep(&["--repeats", "2"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(cluster.submissions(), "3", "{output:?}");
    insta::assert_snapshot!(jobs_and_end(&output));
    let sweep = cluster.directory();
    assert_eq!(outcomes(&sweep), ["finished"; 4]);
    let job = |number: u32| text(&cluster.path(&format!("bin/job_{number}")));
    assert!(job(1).contains("--array=0-2%2\n") && !job(1).contains("dependency"), "{}", job(1));
    assert!(job(2).contains("--array=0-2%2\n"), "{}", job(2));
    assert!(job(3).contains("--array=0-1%2\n") && job(3).contains("--dependency=afterany:2\n"), "{}", job(3));
    assert!(text(&sweep.join("slurm.toml")).contains("array_size = 3"));
    let name = sweep.file_name().unwrap().to_str().unwrap();
    assert!(job(3).contains(&format!("--job-name=xrun_{name}_from_6\n")), "{}", job(3));
}

#[test]
fn an_array_that_is_refused_while_another_is_active_is_submitted_when_that_has_ended() {
    let cluster = Cluster::new();
    cluster.tell("array_size", "3");
    cluster.tell("queue", "1");
    let output = cluster.sweep(&["--repeats", "2"]);
    assert_eq!((output.code, cluster.submissions().as_str()), (0, "3"), "{output:?}");
    let sweep = cluster.directory();
    assert_eq!(outcomes(&sweep), ["finished"; 4]);
    let processes = text(&sweep.join("processes.jsonl"));
    assert_eq!(crate::workplace::unsealed(&processes).lines().count(), 8, "each run has one process: {processes}");
}

#[test]
fn a_cluster_whose_arrays_are_too_small_is_told_as_such() {
    let cluster = Cluster::new();
    cluster.tell("array_size", "0");
    let output = cluster.sweep(&[]);
    assert_eq!(output.code, 2, "{output:?}");
    let more = cluster.sweep(&["-s", "launcher.slurm.array_size=1", "--repeats", "26"]);
    assert_eq!(more.code, 2, "{more:?}");
    insta::assert_snapshot!(redacted(&(output.err + &more.err)));
    assert_eq!(cluster.submissions(), "");
}

#[test]
fn a_killed_run_is_submitted_again_and_goes_on() {
    let cluster = Cluster::new();
    cluster.tell("end_1_0", "NODE_FAIL");
    let output = cluster.sweep(&[]);
    assert_eq!(output.code, 0, "{output:?}");
    insta::assert_snapshot!(lines_with(&output.err, "NODE_FAIL"));
    assert!(text(&cluster.path("bin/job_2")).contains("--array=0%2\n"));
    let sweep = cluster.directory();
    assert_eq!(outcomes(&sweep), ["finished"; 4]);
    let mut resumed = 0;
    for run in std::fs::read_dir(sweep.join("trials")).unwrap().flatten().filter(|run| run.path().is_dir()) {
        let lines = text(&run.path().join("metrics.jsonl"));
        assert_eq!(lines.lines().filter(|line| line.contains("\"kind\":\"train\"")).count(), 20, "{lines}");
        resumed += json(&run.path().join("manifest.json"))["resumed"].as_array().map_or(0, Vec::len);
    }
    assert_eq!(resumed, 1);
}

#[test]
fn a_refusal_is_shown_with_advice_and_can_be_gone_on_from() {
    let cluster = Cluster::new();
    cluster.tell("refuse", "sbatch: error: Batch job submission failed: Invalid partition name specified\n");
    let output = cluster.sweep(&[]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("xrun sweep --resume"), "{output:?}");
    insta::assert_snapshot!(lines_with(&output.err, "Invalid partition name specified"));
    cluster.forget("refuse");
    let sweep = cluster.directory();
    cluster.exits(0, &["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
    assert_eq!(outcomes(&sweep), ["finished"; 4]);
}

#[test]
fn a_machine_without_slurm_is_told_as_such_before_anything_is_written() {
    let cluster = Cluster::new();
    let mut command = cluster.command(&["sweep", "four.toml", "--launcher", "slurm"]);
    let output = Output::from(command.env("PATH", "/no/such/directory").output().unwrap());
    assert_eq!(output.code, 1, "{output:?}");
    insta::assert_snapshot!(redacted(&output.err));
    assert!(!cluster.path("results").exists());
}

#[test]
fn a_dry_run_prints_the_job_of_a_cluster_that_is_not_there() {
    let workplace = Workplace::with("four.toml", EXPERIMENT);
    let slurm = ["sweep", "four.toml", "--dry-run", "--launcher", "slurm", "-s", "launcher.slurm.gpus=a100:2"];
    let output = workplace.exits(0, &[&slurm[..], &["-s", "launcher.slurm.time=1-04:00:00"]].concat());
    for line in ["#SBATCH --array=0-3%2\n", "#SBATCH --gres=gpu:a100:2\n", "#SBATCH --time=1-04:00:00\n", "exec '/"] {
        assert!(output.out.contains(line), "{line}: {output:?}");
    }
    assert!(output.out.starts_with("#!/bin/bash") && output.err.contains("--mem"), "{output:?}");
    workplace.exits(2, &[&slurm[..6], &["launcher.slurm.gpus=a 1"]].concat());
    let output = workplace.exits(0, &["sweep", "four.toml", "--dry-run", "--launcher", "kubernetes"]);
    for part in
        ["completions: 4\n", "podFailurePolicy:", "kind: ConfigMap", "    [pipeline.dummy]\n", "3) set -- --directory "]
    {
        assert!(output.out.contains(part), "{part}: {output:?}");
    }
    workplace.exits(2, &["sweep", "four.toml", "--launcher", "kubernetes"]);
    assert!(!workplace.path("results").exists());
}

#[test]
fn nodes_that_do_not_see_the_directory_are_told_as_such() {
    let cluster = Cluster::new();
    cluster.tell("lose", "");
    let output = cluster.sweep(&[]);
    assert_eq!(output.code, 1, "{output:?}");
    let table = json(&cluster.directory().join("table.json"));
    insta::assert_snapshot!(redacted(table["rows"][0]["runs"][0]["message"].as_str().unwrap()));
    assert_eq!(cluster.submissions(), "1", "again would be the same");
    assert_eq!(outcomes(&cluster.directory()), ["failed"; 4]);
}

#[test]
fn what_a_job_says_before_xrun_begins_is_in_the_table() {
    let cluster = Cluster::new();
    let output = cluster.sweep(&["-s", "launcher.slurm.extra_lines=[\"no_such_command || exit 3\"]"]);
    assert!(output.code == 1 && output.err.contains("no_such_command: command not found"), "{output:?}");
}

#[test]
fn ctrl_c_leaves_the_jobs_and_says_how_to_go_on() {
    let cluster = Cluster::new();
    cluster.tell("hold", "");
    let sweep = cluster.spawn(&["sweep", "four.toml", "--launcher", "slurm"]);
    wait_until("the jobs are submitted", || cluster.path("bin/task_1_3").exists());
    let output = interrupt(sweep);
    assert_eq!(output.code, 8, "{output:?}");
    let directory = cluster.directory();
    let path = directory.to_str().unwrap();
    insta::assert_snapshot!(
        "jobs_that_go_on",
        ["4 of 4", "scancel", "sweep --"].map(|part| lines_with(&output.err, part)).join("\n")
    );
    let output = cluster.exits(8, &["sweep", "--collect", path]);
    insta::assert_snapshot!("collected_while_jobs_wait", lines_with(&output.err, "of 4"));
    assert_eq!(outcomes(&directory), ["waiting"; 4]);
    let output = cluster.xrun(&["sweep", "--resume", path, "--launcher", "local"]);
    assert!(output.code == 2 && output.err.contains("scancel 1"), "{output:?}");
    let again = cluster.watch(&directory);
    cluster.exits(8, &["sweep", "--collect", path, "-q"]);
    let output = interrupt(again);
    assert_eq!(
        (output.code, cluster.submissions().as_str()),
        (8, "1"),
        "what waits is not submitted again: {output:?}"
    );
}

#[test]
fn cancelled_jobs_end_the_watching_and_are_not_submitted_again() {
    let cluster = Cluster::new();
    cluster.tell("hold", "");
    let sweep = cluster.spawn(&["sweep", "four.toml", "--launcher", "slurm"]);
    wait_until("the jobs are submitted", || cluster.path("bin/task_1_3").exists());
    assert!(Command::new(cluster.path("bin/scancel")).arg("1").status().unwrap().success());
    let output = Output::from(sweep.wait_with_output().unwrap());
    assert_eq!(output.code, 8, "{output:?}");
    insta::assert_snapshot!(lines_with(&output.err, "of 4"));
    assert_eq!(cluster.submissions(), "1");
}

#[test]
fn a_controller_that_does_not_answer_is_asked_again() {
    let cluster = Cluster::new();
    cluster.tell("hold", "");
    let sweep = cluster.spawn(&["sweep", "four.toml", "--launcher", "slurm"]);
    wait_until("the jobs are submitted", || cluster.path("bin/task_1_3").exists());
    cluster.tell("silent", "");
    wait_until("nobody answers", || cluster.asked("unanswered") > 1);
    cluster.forget("silent");
    let before = cluster.asked("answered");
    wait_until("Slurm answers", || cluster.asked("answered") > before);
    let output = interrupt(sweep);
    assert_eq!(output.err.matches("retrying until Slurm answers").count(), 1, "{output:?}");
    assert_eq!((output.code, cluster.submissions().as_str()), (8, "1"), "{output:?}");
}

#[test]
fn gpus_follow_from_the_device_and_a_number_that_slurm_does_not_give_is_refused() {
    let cluster = Cluster::new();
    cluster.tell("refuse", "no");
    let gpu = ["--device", "cuda", "-s", "launcher.slurm.memory=1 GiB"];
    assert_eq!(cluster.sweep(&gpu).code, 1);
    assert!(text(&cluster.directory().join("slurm.sh")).contains("#SBATCH --gres=gpu:1\n"));
    let output = cluster.sweep(&["--device", "cuda:2", "-s", "launcher.slurm.memory=1 GiB"]);
    assert_eq!(output.code, 2, "{output:?}");
    insta::assert_snapshot!("a_number_of_a_device", redacted_names(&output.err));
}

#[test]
fn what_cannot_be_asked_of_slurm_is_refused_where_it_stands() {
    let cluster = Cluster::new();
    let mut refusals = String::new();
    for arguments in [
        &["--jobs", "2"][..],
        &["--fail-fast"],
        &["-s", "launcher.slurm.partition=a b"],
        &["-s", "launcher.slurm.partitions=a"],
        &["-s", "launcher.slurm.time=30 s"],
        &["-s", "launcher.slurm.memory=0"],
        &["-s", "launcher.slurm.extra_lines=[\"a\\nb\"]"],
        &["-s", "launcher.slurm.cpus=1,2"],
    ] {
        let output = cluster.sweep(arguments);
        assert_eq!(output.code, 2, "{arguments:?}: {output:?}");
        refusals += &format!("{}\n{}\n", arguments.join(" "), output.err);
    }
    assert!(!cluster.path("results").exists());
    insta::assert_snapshot!(redacted_names(&(refusals + &cluster.exits(1, &["sweep", "--collect", "."]).err)));
}
