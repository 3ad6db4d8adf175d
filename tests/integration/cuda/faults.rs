//! Devices that fail during a run: reason, exit code and last checkpoint.

use std::path::Path;

use super::Machine;
use crate::workplace::{json, lines, text};

/// Allocations and launches that the stand-in counted in a whole run of `tiny.toml`.
fn counted(machine: &Machine, overrides: &[&str]) -> (u64, u64) {
    let summary = machine.workplace.path("summary.json");
    let mut command = machine.command(&["tiny.toml", "--progress", "none", "--name", "counted"]);
    command.args(overrides.iter().flat_map(|text| ["-s", text])).env("STAND_IN_SUMMARY", &summary);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let counts = json(&summary);
    assert_eq!(counts["bad"], 0, "{counts}");
    (counts["allocations"].as_u64().unwrap(), counts["launches"].as_u64().unwrap())
}

/// Images of this size need allocations beside the one that holds the model.
const LARGE: &str = "pipeline.fewshot-detection.image_size=128";

fn checkpoints(run: &Path) -> usize {
    std::fs::read_dir(run.join("checkpoints")).map_or(0, Iterator::count)
}

#[test]
fn a_run_goes_through_and_pool_and_driver_agree() {
    let Some(machine) = Machine::new() else { return };
    let output = machine.trained(&["memory.components_every_samples=1"]);
    assert_eq!(output.code, 0, "{output:?}");
    let run = machine.workplace.latest("tiny");
    let manifest = json(&run.join("manifest.json"));
    assert_eq!(manifest["device"]["compute_capability"], "9.0");
    assert!(manifest["device"]["llvm"].as_str().unwrap().starts_with("2"), "{manifest}");
    let lines: Vec<serde_json::Value> = lines(&run.join("memory.jsonl"));
    let with_pool = lines.iter().filter(|line| line["device"]["reserved"].as_u64() > Some(0)).count();
    assert!(with_pool > 5, "{with_pool} samples have a pool");
    for line in &lines {
        let (reserved, process) =
            (line["device"]["reserved"].as_u64().unwrap(), line["driver"]["process"].as_u64().unwrap());
        // 520 MiB are the stand-in's context.
        assert!((process - (520 << 20)).abs_diff(reserved) < 4096, "{line}");
    }
}

#[test]
fn a_device_without_room_for_the_model_is_a_memory_limit() {
    let Some(machine) = Machine::new() else { return };
    let output = machine.with("STAND_IN_FAIL_ALLOCATION", 1).trained(&[]);
    assert_eq!(output.code, 5, "{output:?}");
    assert!(output.err.contains("does not have enough memory for the model; an allocation of "), "{output:?}");
    assert!(!output.err.contains("CallError") && !output.err.contains("RecvError"), "{output:?}");
}

#[test]
fn out_of_memory_in_a_step_has_a_post_mortem_and_can_be_resumed() {
    let Some(machine) = Machine::new() else { return };
    // Each step takes its larger allocations anew, so that the last allocations are those of the last steps.
    let anew = ["cleanup.every_steps=1", LARGE];
    let (last, _) = counted(&machine, &anew);
    assert!(last > 6, "an allocation for the model and one a step: {last}");
    let machine = machine.with("STAND_IN_FAIL_ALLOCATION", last - 2);
    let output = machine.trained(&anew);
    assert_eq!(output.code, 5, "{output:?}");
    assert!(output.err.contains("the device is out of memory: an allocation of "), "{output:?}");
    let run = machine.workplace.latest("tiny");
    let dead = json(&run.join("post_mortem.json"));
    assert_eq!(dead["place"], "device", "{dead}");
    assert!(checkpoints(&run) > 0);
    let again = Machine { variables: Vec::new(), ..machine }.xrun(&["resume", "latest", "--progress", "none"]);
    assert_eq!(again.code, 0, "{again:?}");
}

#[test]
fn out_of_memory_in_a_probe_is_too_large() {
    let Some(machine) = Machine::new() else { return };
    let plan = |machine: &Machine, more: &[&str]| machine.xrun(&[&["plan", "tiny.toml", "-s", LARGE], more].concat());
    assert_eq!(plan(&machine, &[]).code, 0);
    let (one, _) = counted(&machine, &[LARGE, "limits.batch_size=1"]);
    let (all, _) = counted(&machine, &[LARGE]);
    assert!(all > one, "larger batches need more allocations: {one}, {all}");
    let machine = machine.with("STAND_IN_FAIL_ALLOCATION", one + 1);
    let output = plan(&machine, &["-s", "experiment.seed=6"]);
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.out.contains("does not fit: the memory probe ran out of memory"), "{output:?}");
    // One image at a time needs no allocation but the model's.
    let output = plan(&machine, &["-s", "experiment.seed=6", "--solve", "limits.batch_size"]);
    assert_eq!(output.code, 0, "{output:?}");
}

#[test]
fn a_kernel_that_fails_or_a_gpu_that_is_lost_names_the_error_of_cuda_and_leaves_a_result_that_goes_on() {
    let Some(machine) = Machine::new() else { return };
    let (_, launches) = counted(&machine, &[]);
    for (code, lose, name) in
        [(700, 0, "CUDA_ERROR_ILLEGAL_ADDRESS"), (999, 0, "CUDA_ERROR_UNKNOWN"), (999, 1, "CUDA_ERROR_UNKNOWN")]
    {
        let Some(machine) = Machine::new() else { return };
        let machine = machine.with("STAND_IN_FAIL_LAUNCH", launches * 3 / 4).with("STAND_IN_FAIL_CODE", code);
        let machine = if lose == 1 { machine.with("STAND_IN_LOSE", 1) } else { machine };
        let output = machine.trained(&["memory.components_every_samples=1"]);
        assert!([1, 70].contains(&output.code) && output.err.contains(name), "{output:?}");
        assert!(output.err.contains("the last checkpoint is intact") && output.err.len() < 2000, "{output:?}");
        let run = machine.workplace.latest("tiny");
        assert!(checkpoints(&run) > 0 && run.join("summary.json").exists());
        // Samples from before are there, and the commands that read results need no device.
        let lines = text(&run.join("memory.jsonl"));
        assert!(lines.lines().any(|line| line.contains("\"driver\":{")), "{lines}");
        for command in [["show", "latest"], ["verdict", "latest"]] {
            assert_eq!(machine.xrun(&command).code, 0, "{command:?}");
        }
        let again = Machine { variables: Vec::new(), ..machine }.xrun(&["resume", "latest", "--progress", "none"]);
        assert_eq!(again.code, 0, "{again:?}");
    }
}

#[test]
fn memory_that_others_take_in_mid_run_is_told_as_theirs() {
    let Some(machine) = Machine::new() else { return };
    let anew = ["cleanup.every_steps=1", LARGE];
    let (_, launches) = counted(&machine, &anew);
    let machine =
        machine.with("STAND_IN_OTHERS_FROM_LAUNCH", launches * 4 / 5).with("STAND_IN_OTHERS_THEN_MIB", 81_500);
    let output = machine.trained(&anew);
    assert_eq!(output.code, 5, "{output:?}");
    assert!(output.err.contains("other processes"), "{output:?}");
    assert!(checkpoints(&machine.workplace.latest("tiny")) > 0);
}
