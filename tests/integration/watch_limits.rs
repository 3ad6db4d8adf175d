//! Limits of watched commands enforced by the kernel or a GPU's driver.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::watch::has_python;
use crate::workplace::{Output, Workplace, end, json, lines_with, series, skipped, text, wait_until};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Whether a cgroup can be made here.
fn has_cgroup(workplace: &Workplace) -> bool {
    let tried = workplace.xrun(&["watch", "--name", "tried", "--hard-limit", "256MiB", "--", "true"]);
    let made = tried.code == 0;
    if !made {
        assert_eq!(tried.code, 102, "{tried:?}");
        // The reason, behind it, differs from machine to machine.
        insta::assert_snapshot!("no_cgroup", lines_with(&tried.err, "error: ").split(" (").next().unwrap());
        skipped("no cgroup can be made here");
    }
    made
}

/// A leak of `examples/watch` in a cgroup with a limit: it is asked to save before the kernel kills it, and does.
fn saves_before_the_kill(name: &str, limit: u64, steps: &str) {
    let workplace = Workplace::new();
    if !has_python() || !has_cgroup(&workplace) {
        return;
    }
    let script = Path::new(ROOT).join("examples/watch").join(name);
    let most = format!("{limit}MiB");
    let options =
        ["watch", "--name", "leak", "--every", "20ms", "--hard-limit", &most, "--at", "0.7", "--grace", "60s", "--"];
    workplace.exits(105, &[&options[..], &["python3", script.to_str().unwrap(), "--steps", steps]].concat());
    let saved: Value = serde_json::from_str(&text(&workplace.path("checkpoint.json"))).unwrap();
    assert!(saved["step"].as_u64().unwrap() > 50, "{name}: {saved}");
    let run = workplace.latest("leak");
    let dead = json(&run.join("post_mortem.json"));
    assert_eq!((&dead["limit_key"], &dead["limit"]), (&"--hard-limit".into(), &(limit << 20).into()), "{name}: {dead}");
    let summary = json(&run.join("summary.json"));
    let mut parts = summary["message"].as_str().unwrap().split("; ");
    insta::assert_snapshot!("saved_before_the_kill", parts.find(|part| part.starts_with("the command")).unwrap());
    let samples = text(&run.join("memory.jsonl"));
    let newest: Value = serde_json::from_str(samples.lines().last().unwrap()).unwrap();
    assert_eq!(newest["container"]["limit"], limit << 20, "{name}: {newest}");
    assert_eq!(newest["processes"]["oom_kills"], 0, "{name}: {newest}");
}

#[test]
fn under_a_limit_of_the_kernel_each_leak_saves_before_the_kill() {
    for name in [
        "cache.py",
        "loss_history.py",
        "predictions.py",
        "c_allocation.py",
        "threads.py",
        "queue_of_results.py",
        "mapped_file.py",
    ] {
        saves_before_the_kill(name, 96, "3000");
    }
    // Its list is there from the beginning.
    saves_before_the_kill("copy_on_write.py", 240, "600");
}

#[test]
fn shared_memory_that_is_never_unlinked_saves_before_the_kill() {
    saves_before_the_kill("shared_memory.py", 96, "3000");
}

#[test]
fn an_oom_kill_is_reported() {
    let workplace = Workplace::new();
    if !has_python() || !has_cgroup(&workplace) {
        return;
    }
    let code = "held = bytearray(b'x') * (512 << 20)";
    let output = workplace.xrun(
        &[
            &"watch --name killed --every 1h --hard-limit 48MiB -- python3 -c".split(' ').collect::<Vec<_>>()[..],
            &[code],
        ]
        .concat(),
    );
    if output.code == 0 {
        return skipped("the kernel swaps in place of killing");
    }
    assert_eq!(output.code, 137, "{output:?}");
    let summary = json(&workplace.latest("killed").join("summary.json"));
    insta::assert_snapshot!(summary["message"].as_str().unwrap().split(" (").next().unwrap());
    assert_eq!(summary["outcome"], "failed");
}

/// A directory with a management library that tells what a file says.
pub fn stand_in(workplace: &Workplace) -> Option<PathBuf> {
    let (source, library) = (Path::new(ROOT).join("tests/stand_in/processes.c"), workplace.path("libnvidia-ml.so.1"));
    let built =
        Command::new("cc").args(["-std=c11", "-O1", "-fPIC", "-shared", "-o"]).arg(&library).arg(&source).output();
    if !built.as_ref().is_ok_and(|built| built.status.success()) {
        skipped("there is no C compiler for the stand-in of the GPU's driver");
        return None;
    }
    Some(workplace.directory.path().to_path_buf())
}

/// Holds a MiB more of the GPU with each step.
const TRAINER: &str = include_str!("../scripts/gpu_trainer.py");

/// `pause` are the seconds of a step, which takes 1 MiB.
fn on_gpu(workplace: &Workplace, directory: &Path, pause: &str, more: &[&str]) -> Output {
    let script = workplace.path("trainer.py");
    std::fs::write(&script, TRAINER).unwrap();
    let options = ["watch", "--name", "gpu", "--every", "20ms", "--steps", r"step (?<step>\d+) loss (?<loss>\S+)"];
    let mut command = workplace.command(&[&options[..], more, &["--", "python3", script.to_str().unwrap()]].concat());
    command.env("LD_LIBRARY_PATH", directory).env("STAND_IN_GPU_FILE", workplace.path("held.txt"));
    command.env("PAUSE", pause);
    Output::from(command.output().unwrap())
}

#[test]
fn what_grows_on_a_gpu_is_named_with_who_holds_it() {
    let workplace = Workplace::new();
    let Some(directory) = stand_in(&workplace).filter(|_| has_python()) else { return };
    let output = on_gpu(&workplace, &directory, "0.01", &[]);
    assert_eq!(output.code, 0, "{output:?}");
    let run = workplace.latest("gpu");
    let verdict = json(&run.join("verdict.json"));
    assert_eq!((&verdict["verdict"], &verdict["owner"]), (&"growing".into(), &"main/GPU".into()), "{verdict}");
    let slope = series(&verdict, "owner:main/GPU")["slope"].as_f64().unwrap();
    assert!((slope / f64::from(1 << 20) - 1.0).abs() < 0.05, "{verdict}");
    let samples = text(&run.join("memory.jsonl"));
    let newest: Value = serde_json::from_str(samples.lines().last().unwrap()).unwrap();
    let gpus = newest["processes"]["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 2, "{newest}");
    let (first, held) = (&gpus[0], gpus[0]["held"].as_u64().unwrap());
    assert!(held > 64 << 20 && first["used"].as_u64().unwrap() == held + (1 << 30), "others hold some, too: {newest}");
    assert_eq!(gpus[1]["held"], 0);
    assert_eq!(first["load"], serde_json::json!({ "utilisation_percent": 80, "power_milliwatts": 250_000 }));
    assert_eq!(gpus[1]["load"], serde_json::json!({ "utilisation_percent": 0, "power_milliwatts": 20_000 }));
    let shown = workplace.xrun(&["show", "gpu/latest", "-v"]);
    // Before the first step nothing is held, and both count.
    let load = shown.out.lines().find(|line| line.starts_with("GPU ")).unwrap_or_else(|| panic!("{shown:?}"));
    let number = regex_lite::Regex::new(r"\d+(\.\d+)?").unwrap();
    insta::assert_snapshot!(number.replace_all(load, "N"));
}

#[test]
fn a_limit_of_gpu_memory_ends_it() {
    let workplace = Workplace::new();
    let Some(directory) = stand_in(&workplace).filter(|_| has_python()) else { return };
    let output = on_gpu(&workplace, &directory, "0.01", &["--device-memory", "128MiB"]);
    assert_eq!(output.code, 105, "{output:?}");
    let dead = json(&workplace.latest("gpu").join("post_mortem.json"));
    assert_eq!((&dead["place"], &dead["limit_key"]), (&"device".into(), &"--device-memory".into()), "{dead}");
    let (held, limit) = (dead["held"].as_u64().unwrap() as f64, dead["limit"].as_u64().unwrap());
    assert!(limit == 128 << 20 && held >= 0.95 * limit as f64, "{dead}");
    insta::assert_snapshot!("a_limit_that_is_reached", reason(&workplace));
}

#[test]
fn a_trend_that_leaves_no_time_to_save_ends_it_on_a_gpu_too() {
    let workplace = Workplace::new();
    let Some(directory) = stand_in(&workplace).filter(|_| has_python()) else { return };
    let output = on_gpu(&workplace, &directory, "0.03", &["--device-memory", "450MiB", "--grace", "5m"]);
    assert_eq!(output.code, 105, "{output:?}");
    let dead = json(&workplace.latest("gpu").join("post_mortem.json"));
    let (held, limit) = (dead["held"].as_u64().unwrap() as f64, dead["limit"].as_u64().unwrap());
    assert!(limit == 450 << 20 && held < 0.95 * limit as f64, "before the limit: {dead}");
    insta::assert_snapshot!("a_limit_that_will_be_reached", reason(&workplace));
}

/// Reason of the end of a watched command.
fn reason(workplace: &Workplace) -> String {
    let summary = json(&workplace.latest("gpu").join("summary.json"));
    // Without the memory in use, which is measured.
    summary["message"].as_str().unwrap().split(": ").next().unwrap().to_owned()
}

/// The memory cgroup of an xrun, as long as there is one.
fn group_of(xrun: u32) -> Option<std::path::PathBuf> {
    let name = format!("xrun-{xrun}");
    let found = std::process::Command::new("find").args(["/sys/fs/cgroup", "-maxdepth", "8", "-name", &name]).output();
    let found = String::from_utf8(found.ok()?.stdout).ok()?;
    found.lines().next().map(std::path::PathBuf::from)
}

#[test]
fn the_cgroup_of_a_watcher_that_was_killed_goes_with_the_next_one() {
    let workplace = Workplace::new();
    let child = workplace.spawn(&["watch", "--name", "killed", "--", "sh", "-c", "echo $$ > number; sleep 600"]);
    wait_until("the command runs", || {
        std::fs::read_to_string(workplace.path("number")).is_ok_and(|text| text.ends_with('\n'))
    });
    let group = group_of(child.id());
    end(child);
    let leader = text(&workplace.path("number")).trim().to_owned();
    let killed = std::process::Command::new("kill").args(["-KILL", "--", &format!("-{leader}")]).status().unwrap();
    assert!(killed.success());
    let Some(group) = group.filter(|group| group.exists()) else {
        return skipped("no memory cgroup can be made here");
    };
    // Another watcher on this machine may remove it first.
    wait_until("nobody is in it", || {
        std::fs::read_to_string(group.join("cgroup.procs")).map_or(!group.exists(), |processes| processes.is_empty())
    });
    workplace.exits(0, &["watch", "--name", "next", "--", "true"]);
    assert!(!group.exists(), "{}", group.display());
}
