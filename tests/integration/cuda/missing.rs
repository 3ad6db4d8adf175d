//! Missing or incompatible parts of a driver: each is named with a cure before the run begins.

use std::path::Path;

use super::Machine;
use crate::workplace::skipped;

/// Asked for by name the device is refused, with these words and a cure; `auto` goes on on the CPU and says why.
fn refused(machine: Machine, words: &[&str]) {
    let machine = machine.with("XRUN__MEMORY__PROBE", "false");
    let output = machine.xrun(&["tiny.toml", "--dry-run"]);
    assert_eq!(output.code, 1, "{output:?}");
    let listed = machine.xrun(&["check", "--devices"]);
    for word in words {
        assert!(output.err.contains(word), "{word}: {}", output.err);
        assert!(listed.out.contains(word), "{word}: {}", listed.out);
    }
    assert!(output.err.len() < 1200, "no source, no stack: {}", output.err);
    assert!(listed.out.contains("auto is    cpu"), "{}", listed.out);
    let auto = machine.xrun(&["tiny.toml", "--dry-run", "--device", "auto"]);
    assert_eq!(auto.code, 0, "{auto:?}");
    assert!(auto.err.contains("using the CPU") && auto.err.contains(words[0]), "{auto:?}");
}

#[test]
fn without_a_driver_there_is_no_gpu_and_auto_says_nothing_of_it() {
    let Some(machine) = Machine::new() else { return };
    if Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists() {
        return skipped("this machine has a driver");
    }
    let machine = machine.without(&["libcuda.so.1"]);
    let output = machine.xrun(&["tiny.toml", "--dry-run"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("the NVIDIA driver (libcuda.so.1) is not installed"), "{output:?}");
    assert!(output.err.contains("--gpus all"), "{output:?}");
    let auto = machine.xrun(&["tiny.toml", "--dry-run", "--device", "auto"]);
    assert!(auto.code == 0 && !auto.err.contains("GPU"), "{auto:?}");
}

#[test]
fn what_is_missing_or_too_old_is_named() {
    let Some(machine) = Machine::new() else { return };
    let words = ["cannot load the NVIDIA management library", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"];
    refused(machine.without(&["libnvidia-ml.so.1"]), &words);
    for (variable, value, words) in [
        ("CUDA_PATH", "/nonexistent", ["libdevice.10.bc is not in CUDA_PATH", "pip install nvidia-nvvm"]),
        ("STAND_IN_DRIVER", "11080", ["supports only CUDA 11.8", "version 525"]),
        ("STAND_IN_COMPUTE", "5.2", ["compute capability 5.2", "requires 6.0"]),
    ] {
        let Some(machine) = Machine::new() else { return };
        refused(machine.with(variable, value), &words);
    }
}

#[test]
fn a_driver_that_does_not_start_names_its_error_and_what_it_means() {
    for (code, name, meaning) in [
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "after an update of the driver"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "fabric manager"),
        (999, "CUDA_ERROR_UNKNOWN", "nvidia-smi"),
    ] {
        let Some(machine) = Machine::new() else { return };
        refused(machine.with("STAND_IN_INIT_CODE", code), &[name, meaning]);
    }
    for (code, name, meaning) in [
        (2, "CUDA_ERROR_OUT_OF_MEMORY", "the GPU's memory is full"),
        (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "another process uses the device"),
    ] {
        let Some(machine) = Machine::new() else { return };
        refused(machine.with("STAND_IN_CONTEXT_CODE", code), &[name, meaning]);
    }
    let Some(machine) = Machine::new() else { return };
    refused(machine.with("STAND_IN_OTHERS_MIB", 81_500), &["CUDA_ERROR_OUT_OF_MEMORY", "nvidia-smi"]);
}

#[test]
fn visible_devices_are_numbers_or_uuids_and_nothing_else() {
    let Some(machine) = Machine::new() else { return };
    let machine = machine.with("STAND_IN_DEVICES", 2);
    assert!(machine.xrun(&["check", "--devices"]).out.contains("cuda:1"));
    let output = machine.xrun(&["tiny.toml", "--dry-run", "--device", "cuda:2"]);
    assert!(output.code == 1 && output.err.contains("the last index is 1"), "{output:?}");
    for (visible, number) in [("1", 1), ("GPU-00000002-0000-0000-0000-0000000057ad", 1), ("gpu-00000001", 0)] {
        let output = machine.command(&["check", "--devices"]).env("CUDA_VISIBLE_DEVICES", visible).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(out.contains(&format!("number {number}")) && !out.contains("cuda:1"), "{visible}: {out}");
    }
    for visible in ["", "7", "GPU-ffff", "none"] {
        let output = machine.command(&["check", "--devices"]).env("CUDA_VISIBLE_DEVICES", visible).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(out.contains(&format!("CUDA_VISIBLE_DEVICES = \"{visible}\" hides all GPUs")), "{visible}: {out}");
        assert!(out.contains("nvidia-smi -L"), "{visible}: {out}");
    }
}
