//! Manifest of a run: experiment, code, machine, device and data.

use std::collections::BTreeMap;

use crate::host::host;
use crate::plan::Plan;
use xrun_core::device::{DeviceKind, SelectedDevice, supports_tf32};
use xrun_core::settings::sections::DeviceSettings;
use xrun_results::build_info::code;
use xrun_results::format::{Device, Manifest, VERSION};
use xrun_results::process::SlurmJob;
use xrun_results::timestamp::now;

/// Builds the manifest, with everything known before the first step.
pub fn manifest(
    plan: &Plan,
    run: &str,
    fingerprint: &str,
    chosen: &SelectedDevice,
    command: &[String],
    origins: &BTreeMap<String, String>,
) -> Manifest {
    let about = &plan.experiment.experiment;
    Manifest {
        description: about.description.clone(),
        seed: about.seed,
        command: command.to_vec(),
        data: plan.facts.data_digests.iter().cloned().collect(),
        data_skipped: plan.facts.data_skipped.counts.clone(),
        lowered: plan.facts.lowered.clone(),
        origins: origins.clone(),
        ..of_process(&about.name, run, fingerprint, device(chosen, &plan.experiment.device), about.patch)
    }
}

/// Manifest of a process that begins here and now, without an experiment. `patch`: uncommitted changes are recorded.
pub fn of_process(name: &str, run: &str, fingerprint: &str, device: Device, patch: bool) -> Manifest {
    let working_directory = std::env::current_dir().unwrap_or_default();
    Manifest {
        version: VERSION,
        experiment: name.to_owned(),
        run: run.to_owned(),
        fingerprint: fingerprint.to_owned(),
        code: code(&working_directory, patch),
        working_directory: working_directory.display().to_string(),
        started: now(),
        host: host(),
        device,
        slurm: SlurmJob::from_environment(),
        ..Manifest::default()
    }
}

/// Record of the device.
pub fn device(chosen: &SelectedDevice, device: &DeviceSettings) -> Device {
    let tf32 = chosen.found.capability.is_some_and(supports_tf32);
    Device {
        chosen: chosen.kind.to_string(),
        because: chosen.because.clone(),
        name: chosen.found.name.clone(),
        driver: chosen.found.driver.clone(),
        memory: chosen.found.memory,
        compute_capability: chosen.found.capability_text(),
        float32_products: Some(if tf32 { "tf32" } else { "float32" }.to_owned()),
        llvm: chosen.found.llvm.clone(),
        cpu_kernels: (chosen.kind == DeviceKind::Cpu).then(|| device.cpu_kernels.as_str().to_owned()),
    }
}
