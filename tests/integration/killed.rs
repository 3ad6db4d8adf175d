//! Reports after a kill: cause, memory, growth and advice.
use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use crate::plan::Cgroup;
use crate::workplace::{Output, Workplace, end, json, skipped, text, unsealed, wait_for_lines, wait_until};

const SLOW: &str = include_str!("../experiments/tiny/killed.toml");

/// Stands for the one of Slurm: it answers for this job only.
const SACCT: &str = "#!/bin/sh\ncase \"$*\" in *4711) echo OUT_OF_MEMORY;; esac\n";

/// Starts an experiment, waits for so many lines of metrics, and kills it as nobody can refuse.
fn killed(workplace: &Workplace, arguments: &[&str], environment: &[(&str, &str)], lines: usize) -> std::path::PathBuf {
    workplace.file("slow.toml", SLOW);
    let mut command = workplace.command(&[&["slow.toml", "--progress", "none"], arguments].concat());
    let child = command.envs(environment.iter().copied()).spawn().unwrap();
    wait_for_lines(&workplace.path("results/slow/latest"), lines);
    end(child);
    workplace.latest("slow")
}

/// Returns whether a wrapped output has a text.
fn shows(output: &Output, text: &str) -> bool {
    let folded = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    folded(&(output.out.clone() + &output.err)).contains(&folded(text))
}

/// Part of an explanation before the counts and the log of the kernel, which differ from machine to machine.
fn begin(text: &str) -> &str {
    text.split([';', '(']).next().unwrap().trim_end()
}

/// One part of what `xrun show --json` says of a kill.
fn explained(shown: &Output, key: &str) -> String {
    let shown = shown.json();
    shown["killed"][key].as_str().unwrap_or_else(|| panic!("{key}: {shown}")).to_owned()
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

    let as_json = workplace.xrun(&["show", "trial", "--json"]);
    for (key, part) in [("held", "step 0"), ("held", "120.0 MiB"), ("to_do", "limits.host_memory=SIZE")] {
        let text = explained(&as_json, key);
        assert!(text.contains(part), "{part}: {text}");
    }
    let who = explained(&as_json, "who");
    insta::assert_snapshot!(begin(&who));
    for output in [workplace.xrun(&["show", "trial"]), workplace.xrun(&["ls"])] {
        assert!(shows(&output, begin(&who)), "{who}: {output:?}");
    }

    let resumed = workplace.exits(0, &["resume", "trial"]);
    assert!(shows(&resumed, begin(&who)), "{resumed:?}");

    // The sweep in the group is small; its trial is not.
    let swept = group.command(&workplace, &["sweep", "trial.toml", "-s", "experiment.seed=1,2"]).output().unwrap();
    assert_eq!(swept.status.code(), Some(1), "{swept:?}");
    let sweep = workplace.latest_sweep("trial");
    let process = text(&sweep.join("processes.jsonl"));
    assert!(process.contains(begin(&who)), "{process}");
}

#[test]
fn a_kill_from_outside_is_reported_with_the_growth() {
    let workplace = Workplace::new();
    let leak = ["-s", "pipeline.dummy.leak_per_step=256 KiB", "-s", "pipeline.dummy.leak_in_ledger=true"];
    let run = killed(&workplace, &leak, &[], 400);
    let note = json(&run.join("process.json"));
    let shown = || workplace.xrun(&["show", "slow", "--json"]);
    if note["groups"].as_array().is_some_and(|groups| !groups.is_empty()) {
        insta::assert_snapshot!("killed_from_outside", explained(&shown(), "who"));
    }
    assert!(explained(&shown(), "growing").contains("dummy_leak"), "{:?}", shown());
    assert!(explained(&shown(), "to_do").contains("xrun resume slow/"), "{:?}", shown());

    // The machine has rebooted.
    let mut other = note;
    if !other["boot"].is_null() {
        other["boot"] = "another".into();
        std::fs::write(run.join("process.json"), other.to_string()).unwrap();
        let who = explained(&shown(), "who");
        insta::assert_snapshot!("killed_before_a_reboot", who);
        for output in [workplace.xrun(&["show", "slow"]), workplace.xrun(&["ls"])] {
            assert!(shows(&output, &who), "{output:?}");
        }
    }
    other["host"] = "another-machine".into();
    std::fs::write(run.join("process.json"), other.to_string()).unwrap();
    insta::assert_snapshot!("killed_on_another_host", explained(&shown(), "who"));
    // A note that is damaged, or missing, takes nothing else with it.
    std::fs::write(run.join("process.json"), "{").unwrap();
    insta::assert_snapshot!("killed_without_a_process_record", explained(&shown(), "who"));
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
    workplace.program("sacct", SACCT);
    let shown = workplace.xrun(&["show", "slow", "--json"]);
    insta::assert_snapshot!("killed_by_slurm", explained(&shown, "who").rsplit("; ").next().unwrap());
    assert!(explained(&shown, "to_do").contains("xrun plan"), "it was memory: {shown:?}");
}

#[test]
fn a_command_that_was_killed_with_its_watcher_is_explained() {
    let workplace = Workplace::new();
    let words = ["watch", "--name", "trial", "--every", "20ms", "--", "sleep", "60"];
    let watch = workplace.command(&words).env("SLURM_JOB_ID", "4711").spawn().unwrap();
    let samples = workplace.path("results/trial/latest/memory.jsonl");
    wait_until("samples are written", || std::fs::read_to_string(&samples).unwrap_or_default().lines().count() > 2);
    let id = watch.id();
    end(watch);
    let run = workplace.latest("trial");
    assert_eq!(json(&run.join("process.json"))["process"], id);
    workplace.program("sacct", SACCT);
    let shown = workplace.xrun(&["show", "trial", "--json"]);
    insta::assert_snapshot!("killed_by_slurm", explained(&shown, "who").rsplit("; ").next().unwrap());
    for (key, part) in [("held", "step 0"), ("to_do", "`--host-memory SIZE`")] {
        assert!(explained(&shown, key).contains(part), "{part}: {shown:?}");
    }
}

#[test]
fn pressure_is_in_the_trace_where_the_kernel_tells() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\n");
    workplace.exits(0, &["trial.toml"]);
    let trace = unsealed(&text(&workplace.latest("trial").join("memory.jsonl")));
    let first: Value = serde_json::from_str(trace.lines().next().unwrap()).unwrap();
    if !std::path::Path::new("/proc/pressure/memory").exists() {
        assert_eq!(first.get("pressure"), None, "what cannot be measured is absent");
        return skipped("this kernel tells no memory pressure");
    }
    let percent = first["pressure"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&percent), "{percent}");
}
