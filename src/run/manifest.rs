//! What ran, where, on what?

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use chrono::{DateTime, Utc};

use super::fingerprint::code_digest;
use super::git;
use crate::data::digest::digest;
use crate::device::machine;
use crate::device::{Chosen, Kind, multiplies_in_tf32};
use crate::invocation;
use crate::memory::sources;
use crate::plan::Plan;
use crate::printable;
use crate::results::format::{Code, Device, Host, Manifest, VERSION};
use crate::results::process::SlurmJob;
use crate::results::secrets;
use crate::settings::sections::DeviceUse;

/// Identifies the versions of all libraries that this program was built with.
pub fn lock_digest() -> String {
    digest(LOCK_FILE.as_bytes())
}

const LOCK_FILE: &str = include_str!("../../Cargo.lock");

/// Everything known before the first step.
pub fn manifest(
    plan: &Plan,
    run: &str,
    fingerprint: &str,
    chosen: &Chosen,
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
        data_skipped: plan.facts.data_left_out.counts.clone(),
        smaller: plan.facts.smaller.clone(),
        origins: origins.clone(),
        watched: None,
        until: None,
        slurm: SlurmJob::here(),
    }
}

/// The device as it is recorded.
pub fn device(chosen: &Chosen, device: &DeviceUse) -> Device {
    let tf32 = chosen.found.capability.is_some_and(multiplies_in_tf32);
    Device {
        chosen: chosen.kind.to_string(),
        because: chosen.because.clone(),
        name: chosen.found.name.clone(),
        driver: chosen.found.driver.clone(),
        memory: chosen.found.memory,
        compute_capability: chosen.found.capability_words(),
        float32_products: Some(if tf32 { "tf32" } else { "float32" }.to_owned()),
        llvm: chosen.found.llvm.clone(),
        cpu_kernels: (chosen.kind == Kind::Cpu).then(|| device.cpu_kernels.word().to_owned()),
    }
}

/// The command line, one entry a word, without secrets.
pub fn command() -> Vec<String> {
    secrets::words(&std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<String>>())
}

/// Of a run that `--steps` or `--smoke` made short, the command without that, for a shell: what lies in its folder is the
/// short experiment, and would give another short run.
pub fn command_of_the_whole(command: &[String]) -> Option<String> {
    let (mut words, mut short) = (Vec::new(), false);
    let mut rest = command.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--smoke" => short = true,
            "--steps" => {
                short = true;
                rest.next();
            }
            word if word.starts_with("--steps=") => short = true,
            word => words.push(printable::shell_word(word)),
        }
    }
    short.then(|| format!("{} {}", invocation::program(), words.join(" ")))
}

/// What the clock says; its beginning, 1970, where it is set to an earlier time, as on boards without a battery.
pub fn time() -> DateTime<Utc> {
    SystemTime::now().max(SystemTime::UNIX_EPOCH).into()
}

/// RFC 3339, UTC, to the second.
pub fn now() -> String {
    time().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// The program that runs, and the checkout it is run in; with `patch` also what was changed there since its commit.
pub fn code(folder: &Path, patch: bool) -> Code {
    let state = git::state(folder, patch);
    let features =
        [("train", cfg!(feature = "train")), ("cuda", cfg!(feature = "cuda")), ("vulkan", cfg!(feature = "vulkan"))];
    Code {
        xrun: env!("CARGO_PKG_VERSION").to_owned(),
        git_commit: state.commit,
        git_patch: state.patch,
        git_left_out: state.left_out,
        features: features.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()).collect(),
        lock_digest: lock_digest(),
        source_digest: Some(code_digest()),
        built_commit: Some(env!("XRUN_BUILT_COMMIT").to_owned()).filter(|commit| !commit.is_empty()),
        built_with_changes: env!("XRUN_BUILT_WITH_CHANGES").parse().ok(),
    }
}

/// Seconds since 1970 of a time as records have it; `None` of text that is none.
pub fn seconds_of(time: &str) -> Option<f64> {
    Some(DateTime::parse_from_rfc3339(time).ok()?.timestamp_millis() as f64 / 1000.0)
}

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// What this machine is called.
pub fn host_name() -> String {
    line_of("/proc/sys/kernel/hostname")
}

/// This machine.
pub fn host() -> Host {
    let text = line_of;
    Host {
        name: host_name(),
        system: format!("{} {}", std::env::consts::OS, text("/proc/sys/kernel/osrelease")),
        processor: crate::device::processor(),
        instruction_sets: Some(crate::device::instruction_sets()),
        cores: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        memory: machine::memory().map(|(all, _)| all),
        memory_limit: sources::container().and_then(|container| container.limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        // FIPS 180-4, example "abc".
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
