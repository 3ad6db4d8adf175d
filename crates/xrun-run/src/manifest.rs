//! Manifest of a run: experiment, code, machine, device and data.

use std::collections::BTreeMap;

use crate::plan::Plan;
use xrun_core::device::{DeviceKind, SelectedDevice, supports_tf32};
use xrun_core::settings::sections::DeviceSettings;
use xrun_results::build_info::code;
use xrun_results::format::{Device, Manifest, VERSION};
use xrun_results::process::SlurmJob;
use xrun_results::timestamp::now;
use xrun_watch::host::host;

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
    let working_directory = std::env::current_dir().unwrap_or_default();
    Manifest {
        version: VERSION,
        experiment: about.name.clone(),
        description: about.description.clone(),
        run: run.to_owned(),
        fingerprint: fingerprint.to_owned(),
        seed: about.seed,
        command: command.to_vec(),
        code: code(&working_directory, about.patch),
        working_directory: working_directory.display().to_string(),
        started: now(),
        resumed: Vec::new(),
        resume_commands: Vec::new(),
        host: host(),
        device: device(chosen, &plan.experiment.device),
        data: plan.facts.data_digests.iter().cloned().collect(),
        data_skipped: plan.facts.data_skipped.counts.clone(),
        lowered: plan.facts.lowered.clone(),
        origins: origins.clone(),
        watched: None,
        parent: None,
        until: None,
        slurm: SlurmJob::from_environment(),
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
