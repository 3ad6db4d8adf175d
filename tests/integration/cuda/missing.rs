//! Pieces of a CUDA installation that are missing or do not fit: is each named, with what to do, before anything is begun?

use std::path::Path;
use std::process::Command;

use super::{Machine, stand_in};
use crate::workplace::skipped;

/// Asked for by name the device is refused, with these words and a cure; `auto` goes on on the CPU and says why.
fn refused(machine: Machine, words: &[&str]) {
    let machine = machine.with("XRUN__MEMORY__PROBE", "false");
    let said = machine.xrun(&["tiny.toml", "--dry-run"]);
    assert_eq!(said.code, 1, "{said:?}");
    let listed = machine.xrun(&["devices"]);
    for word in words {
        assert!(said.err.contains(word), "{word}: {}", said.err);
        assert!(listed.out.contains(word), "{word}: {}", listed.out);
    }
    assert!(said.err.len() < 1200, "no source, no stack: {}", said.err);
    assert!(listed.out.contains("auto is    cpu"), "{}", listed.out);
    let auto = machine.xrun(&["tiny.toml", "--dry-run", "--device", "auto"]);
    assert_eq!(auto.code, 0, "{auto:?}");
    assert!(auto.err.contains("on the CPU, since the GPU cannot be used") && auto.err.contains(words[0]), "{auto:?}");
}

#[test]
fn without_a_driver_there_is_no_gpu_and_auto_says_nothing_of_it() {
    let Some(machine) = Machine::new() else { return };
    if Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists() {
        return skipped("this machine has a driver");
    }
    let machine = machine.without(&["libcuda.so.1"]);
    let said = machine.xrun(&["tiny.toml", "--dry-run"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("the NVIDIA driver (libcuda.so.1) is not installed"), "{said:?}");
    assert!(said.err.contains("--gpus all"), "{said:?}");
    let auto = machine.xrun(&["tiny.toml", "--dry-run", "--device", "auto"]);
    assert!(auto.code == 0 && !auto.err.contains("GPU"), "{auto:?}");
}

#[test]
fn without_the_run_time_compiler_the_wheels_are_named() {
    let Some(machine) = Machine::new() else { return };
    let wheel = "pip install 'nvidia-cuda-nvrtc==13.0.*'";
    refused(machine.without(&["libnvrtc.so"]), &["run-time compiler (libnvrtc.so) is not there", wheel]);
}

#[test]
fn without_the_management_library_it_is_named() {
    let Some(machine) = Machine::new() else { return };
    let words = ["the NVIDIA management library does not load", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"];
    refused(machine.without(&["libnvidia-ml.so.1"]), &words);
}

#[test]
fn without_headers_the_folder_is_named() {
    if ["/usr/local/cuda", "/opt/cuda", "/usr/bin/nvcc"].iter().any(|path| Path::new(path).exists()) {
        return skipped("this machine has a CUDA toolkit where everybody looks");
    }
    let Some(machine) = Machine::new() else { return };
    refused(machine.with("CUDA_PATH", "(unset)"), &["CUDA_PATH is not set", "set CUDA_PATH to the toolkit's folder"]);
    let Some(machine) = Machine::new() else { return };
    refused(
        machine.with("CUDA_PATH", "/nowhere"),
        &["/nowhere has no cuda_runtime.h, crt/host_defines.h, cuda/barrier"],
    );
    let Some(machine) = Machine::new() else { return };
    let machine = machine.without(&["include/cuda/barrier"]);
    refused(machine, &["has no cuda/barrier", "nvidia-cuda-cccl"]);
}

#[test]
fn versions_that_do_not_fit_one_another_are_told() {
    let Some(machine) = Machine::new() else { return };
    let newer_headers = ["are of 13.0 and its run-time compiler is of 12.4", "LD_LIBRARY_PATH="];
    refused(machine.with("STAND_IN_NVRTC", "12.4"), &newer_headers);
    let Some(machine) = Machine::new() else { return };
    let newer_compiler = ["is of 13.0 and the driver takes code up to 12.4", "'nvidia-cuda-nvrtc-cu12==12.4.*'"];
    refused(machine.with("STAND_IN_DRIVER", 12040), &newer_compiler);
    let Some(machine) = Machine::new() else { return };
    refused(machine.with("STAND_IN_COMPUTE", 5.2), &["compute capability 5.2", "an older toolkit"]);
    let Some(machine) = Machine::new() else { return };
    let older = machine.with("STAND_IN_NVRTC", "13.0").with("STAND_IN_DRIVER", 13010).xrun(&["devices"]);
    assert!(older.out.contains("cuda:0") && older.out.contains("compiler 13.0"), "{older:?}");
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
        (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "another process has the device"),
    ] {
        let Some(machine) = Machine::new() else { return };
        refused(machine.with("STAND_IN_CONTEXT_CODE", code), &[name, meaning]);
    }
    let Some(machine) = Machine::new() else { return };
    refused(machine.with("STAND_IN_OTHERS_MIB", 81_500), &["CUDA_ERROR_OUT_OF_MEMORY", "whose processes hold it"]);
}

#[test]
fn visible_devices_are_numbers_or_uuids_and_nothing_else() {
    let Some(machine) = Machine::new() else { return };
    let machine = machine.with("STAND_IN_DEVICES", 2);
    assert!(machine.xrun(&["devices"]).out.contains("cuda:1"));
    let said = machine.xrun(&["tiny.toml", "--dry-run", "--device", "cuda:2"]);
    assert!(said.code == 1 && said.err.contains("there are 2 of them, counted from 0"), "{said:?}");
    for (visible, number) in [("1", 1), ("GPU-00000002-0000-0000-0000-0000000057ad", 1), ("gpu-00000001", 0)] {
        let said = machine.command(&["devices"]).env("CUDA_VISIBLE_DEVICES", visible).output().unwrap();
        let out = String::from_utf8(said.stdout).unwrap();
        assert!(out.contains(&format!("number {number}")) && !out.contains("cuda:1"), "{visible}: {out}");
    }
    for visible in ["", "7", "GPU-ffff", "none"] {
        let said = machine.command(&["devices"]).env("CUDA_VISIBLE_DEVICES", visible).output().unwrap();
        let out = String::from_utf8(said.stdout).unwrap();
        assert!(out.contains(&format!("CUDA_VISIBLE_DEVICES = \"{visible}\" hides all GPUs")), "{visible}: {out}");
        assert!(out.contains("nvidia-smi -L"), "{visible}: {out}");
    }
}

#[test]
fn wheels_in_the_active_virtual_environment_are_found() {
    if ["/usr/local/cuda", "/opt/cuda", "/usr/bin/nvcc"].iter().any(|path| Path::new(path).exists()) {
        return skipped("this machine has a CUDA toolkit where everybody looks");
    }
    let (Some(machine), Some(built)) = (Machine::new(), stand_in()) else { return };
    let wheels = machine.workplace.path("venv/lib/python3.12/site-packages/nvidia/cu13");
    std::fs::create_dir_all(wheels.join("lib")).unwrap();
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
    };
    copy(&built.join("include"), &wheels.join("include"));
    // As in the wheels: a version in the name, and no plain one.
    copy(&built.join("libnvrtc.so"), &wheels.join("lib/libnvrtc.so.13"));
    let environment = machine.workplace.path("venv");
    let machine = machine.without(&["libnvrtc.so"]).with("CUDA_PATH", "(unset)");
    assert!(machine.xrun(&["devices"]).out.contains("auto is    cpu"));
    let machine = machine.with("VIRTUAL_ENV", environment.display());
    let said = machine.xrun(&["devices"]);
    assert!(said.out.contains("auto is    cuda:0") && said.out.contains("compiler 13.0"), "{said:?}");
}
