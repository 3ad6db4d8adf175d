//! After a kill: is it said who killed the run, what it held, what was growing, and what to do?

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use crate::plan::Cgroup;
use crate::workplace::{Workplace, json, skipped, text, unsealed, wait_until};

const SLOW: &str = "
[pipeline.dummy]
steps_per_epoch = 50
step_microseconds = 2000
[training]
epochs = 40
[memory]
probe = false
[limits]
metrics_queue = 4
";

/// Starts an experiment, waits for so many lines of metrics, and kills it as nobody can refuse.
fn killed(workplace: &Workplace, arguments: &[&str], environment: &[(&str, &str)], lines: usize) -> std::path::PathBuf {
    workplace.file("slow.toml", SLOW);
    let mut command = workplace.command(&[&["slow.toml", "--progress", "none"], arguments].concat());
    let mut child = command.envs(environment.iter().copied()).spawn().unwrap();
    let metrics = workplace.path("results/slow/latest/metrics.jsonl");
    wait_until("the run writes metrics", || {
        std::fs::read_to_string(&metrics).unwrap_or_default().lines().count() >= lines
    });
    child.kill().unwrap();
    child.wait().unwrap();
    workplace.latest("slow")
}

fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_oom_kill_is_reported_with_the_memory_before() {
    let workplace = Workplace::new();
    // Its first step alone needs more than there is, so that no rest point comes before the kernel.
    let one = "[pipeline.dummy]\nleak_per_step = \"300 MiB\"\n[training]\nmax_steps = 1\n[memory]\nprobe = false\n";
    workplace.file("trial.toml", one);
    let Some(group) = Cgroup::new("killed", 120 << 20) else {
        return skipped("no memory cgroup can be made here");
    };
    let mut command = group.command(&workplace, &["trial.toml", "--progress", "none"]);
    let ended = command.output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:?}");

    let shown = workplace.xrun(&["show", "trial"]);
    let words = folded(&shown.out);
    for part in ["OOM kill", "step 0", "limits.host_memory=SIZE", "of 120.0 MiB"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let as_json: Value = serde_json::from_str(&workplace.xrun(&["show", "trial", "--json"]).out).unwrap();
    assert!(as_json["killed"]["who"].as_str().unwrap().contains("OOM kill"), "{as_json}");
    let listed = workplace.xrun(&["ls"]);
    assert!(folded(&listed.out).contains("OOM kill by the kernel (1 kill in"), "{listed:?}");

    let resumed = workplace.xrun(&["resume", "trial"]);
    assert_eq!(resumed.code, 0, "there is enough outside of the group: {resumed:?}");
    assert!(folded(&resumed.err).contains("the run was killed: OOM kill"), "{resumed:?}");

    // The sweep in the group is small; its point is not.
    let swept = group.command(&workplace, &["sweep", "trial.toml", "-s", "experiment.seed=1,2"]).output().unwrap();
    assert_eq!(swept.status.code(), Some(1), "{swept:?}");
    let sweep = std::fs::canonicalize(workplace.path("results/trial/sweeps/latest")).unwrap();
    let process = text(&sweep.join("processes.jsonl"));
    assert!(process.contains("OOM kill"), "{process}");
}

#[test]
fn a_kill_from_outside_is_reported_with_the_growth() {
    let workplace = Workplace::new();
    let leak = ["-s", "pipeline.dummy.leak_per_step=256 KiB", "-s", "pipeline.dummy.leak_in_ledger=true"];
    let run = killed(&workplace, &leak, &[], 400);
    let note = json(&run.join("process.json"));
    let words = folded(&workplace.xrun(&["show", "slow"]).out);
    if note["groups"].as_array().is_some_and(|groups| !groups.is_empty()) {
        assert!(words.contains("killed by SIGKILL from outside"), "{words}");
    }
    assert!(words.contains("growing") && words.contains("dummy_leak"), "{words}");
    assert!(words.contains("xrun resume slow/"), "{words}");

    // The machine has rebooted.
    let mut other = note;
    if !other["boot"].is_null() {
        other["boot"] = "another".into();
        std::fs::write(run.join("process.json"), other.to_string()).unwrap();
        assert!(folded(&workplace.xrun(&["show", "slow"]).out).contains("rebooted"));
        assert!(folded(&workplace.xrun(&["ls"]).out).contains("rebooted"));
    }
    other["host"] = "another-machine".into();
    std::fs::write(run.join("process.json"), other.to_string()).unwrap();
    assert!(folded(&workplace.xrun(&["show", "slow"]).out).contains("it ran on another-machine"));
    // A note that is damaged, or missing, takes nothing else with it.
    std::fs::write(run.join("process.json"), "{").unwrap();
    let shown = workplace.xrun(&["show", "slow"]);
    assert!(shown.code == 0 && folded(&shown.out).contains("killed, or the machine rebooted"), "{shown:?}");
}

#[test]
fn in_slurm_the_accounting_is_asked_and_the_job_is_in_the_manifest() {
    let workplace = Workplace::new();
    let job = [
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_ARRAY_JOB_ID", "4700"),
        ("SLURM_ARRAY_TASK_ID", "11"),
        ("SLURMD_NODENAME", "n7"),
    ];
    let run = killed(&workplace, &[], &job, 5);
    let slurm = &json(&run.join("manifest.json"))["slurm"];
    assert_eq!((&slurm["job"], &slurm["task"], &slurm["node"]), (&"4711".into(), &"11".into(), &"n7".into()));
    // Stands for Slurm's: it answers for this job only.
    let sacct = workplace.file("bin/sacct", "#!/bin/sh\ncase \"$*\" in *4711) echo OUT_OF_MEMORY;; esac\n");
    std::fs::set_permissions(&sacct, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", workplace.path("bin").display(), std::env::var("PATH").unwrap());
    let shown = crate::workplace::said(workplace.command(&["show", "slow"]).env("PATH", path).output().unwrap());
    assert!(folded(&shown.out).contains("Slurm says OUT_OF_MEMORY"), "{shown:?}");
    assert!(folded(&shown.out).contains("xrun plan"), "it was memory: {shown:?}");
}

#[test]
fn a_command_that_was_killed_with_its_watcher_is_explained() {
    let workplace = Workplace::new();
    let words = ["watch", "--name", "trial", "--every", "20ms", "--", "sleep", "60"];
    let mut watch = workplace.command(&words).env("SLURM_JOB_ID", "4711").spawn().unwrap();
    let samples = workplace.path("results/trial/latest/memory.jsonl");
    wait_until("samples are written", || std::fs::read_to_string(&samples).unwrap_or_default().lines().count() > 2);
    watch.kill().unwrap();
    watch.wait().unwrap();
    let run = workplace.latest("trial");
    assert_eq!(json(&run.join("process.json"))["process"], watch.id());
    let sacct = workplace.file("bin/sacct", "#!/bin/sh\ncase \"$*\" in *4711) echo OUT_OF_MEMORY;; esac\n");
    std::fs::set_permissions(&sacct, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", workplace.path("bin").display(), std::env::var("PATH").unwrap());
    let shown = crate::workplace::said(workplace.command(&["show", "trial"]).env("PATH", path).output().unwrap());
    let words = folded(&shown.out);
    for part in ["Slurm says OUT_OF_MEMORY", "at its last sample, after step 0", "`--host-memory SIZE`"] {
        assert!(words.contains(part), "{part}: {shown:?}");
    }
}

#[test]
fn pressure_is_in_the_trace_where_the_kernel_tells() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\n");
    assert_eq!(workplace.xrun(&["trial.toml"]).code, 0);
    let trace = unsealed(&text(&workplace.latest("trial").join("memory.jsonl")));
    let first: Value = serde_json::from_str(trace.lines().next().unwrap()).unwrap();
    if !std::path::Path::new("/proc/pressure/memory").exists() {
        assert_eq!(first.get("pressure"), None, "what cannot be measured is absent");
        return skipped("this kernel tells no memory pressure");
    }
    let percent = first["pressure"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&percent), "{percent}");
}
