//! Needs of a start: kernels of the start before, a driver of any supported version, and the file with mathematical functions.

use std::path::{Path, PathBuf};

use super::Machine;
use crate::workplace::{Output, skipped};

/// Trains `tiny.toml`, and returns how many kernels CubeCL compiled.
fn compiled(machine: &Machine) -> usize {
    let log = machine.workplace.path("cubecl.log");
    let _ = std::fs::remove_file(&log);
    let output = machine.command(&["tiny.toml", "--progress", "none"]).env("CUBECL_DEBUG_LOG", &log).output().unwrap();
    let output = Output::from(output);
    assert_eq!(output.code, 0, "{output:?}");
    std::fs::read_to_string(&log).unwrap_or_default().matches(COMPILED).count()
}

/// Begin of an entry for a compiled kernel in CubeCL's log.
const COMPILED: &str = "[START_KERNEL_COMPILATION]";

#[test]
fn the_second_start_compiles_nothing_and_a_damaged_cache_only_costs_time() {
    let Some(machine) = Machine::new() else { return };
    let first = compiled(&machine);
    assert!(first > 20, "{first} kernels");
    assert_eq!(compiled(&machine), 0);
    // Of another GPU, and of a driver that takes other code.
    let other = machine.with("STAND_IN_COMPUTE", "8.0");
    assert!(compiled(&other) > 20);
    for file in std::fs::read_dir(other.cache.join("kernels")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() / 3);
        bytes.iter_mut().skip(512).for_each(|byte| *byte = !*byte);
        xrun::files::write::replace(&path, &bytes).unwrap();
    }
    compiled(&other);
}

/// With CubeCL's log it also times kernels by events, for which CUDA 12.8 has another function.
#[test]
fn drivers_of_cuda_12_are_enough() {
    for version in [12_020, 12_080] {
        let Some(machine) = Machine::new() else { return };
        assert!(compiled(&machine.with("STAND_IN_DRIVER", version)) > 20, "{version}");
    }
}

/// A machine without CUDA_PATH, and a Python environment with this file in place of libdevice.
fn with_package(path: &str) -> Option<(Machine, PathBuf)> {
    let machine = Machine::new()?;
    if ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"]
        .iter()
        .any(|root| Path::new(root).join(LIBDEVICE).exists())
    {
        skipped("this machine has a CUDA toolkit");
        return None;
    }
    let environment = machine.workplace.path("environment");
    let file = environment.join("lib/python3.12/site-packages").join(path);
    let own = PathBuf::from(std::env::var_os("CUDA_PATH").expect(".ci/cuda sets it")).join(LIBDEVICE);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::copy(own, &file).unwrap();
    let machine = machine.with("CUDA_PATH", "(unset)").with("PATH", "/nonexistent");
    Some((machine.with("VIRTUAL_ENV", environment.display()), file))
}

const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";

#[test]
fn libdevice_is_found_in_python_packages_and_triton_without_a_variable() {
    for path in ["nvidia/cu13/nvvm/libdevice/libdevice.10.bc", "triton/backends/nvidia/lib/libdevice.10.bc"] {
        let Some((machine, file)) = with_package(path) else { return };
        let output = machine.trained(&[]);
        assert_eq!(output.code, 0, "{path}: {output:?}");
        std::fs::remove_file(file).unwrap();
        let listed = machine.xrun(&["check", "--devices"]);
        assert!(listed.out.contains("pip install nvidia-nvvm"), "{path}: {listed:?}");
    }
}
