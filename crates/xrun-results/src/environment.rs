//! Code, data, machine and device of a run by name, as two runs are compared.

use std::collections::BTreeMap;

use crate::format::{Code, Device, Host};

/// Name of the commit among the values.
pub const COMMIT: &str = "code: built from commit";
/// Name of the host among the values.
pub const HOST_NAME: &str = "machine: name";

/// Known values, each with its name.
pub fn environment(
    code: &Code,
    host: &Host,
    device: &Device,
    data: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let changed = if code.built_with_changes == Some(true) { " with changes" } else { "" };
    let code = [
        ("code: version", Some(code.xrun.clone())),
        ("code: lock file", Some(code.lock_digest.clone())),
        ("code: features", Some(code.features.join(" "))),
        ("code: sources", code.source_digest.clone()),
        (COMMIT, code.built_commit.as_ref().map(|commit| format!("{commit}{changed}"))),
    ];
    let data = data.iter().map(|(name, digest)| (format!("data: {name}"), Some(digest.clone())));
    let machine = [
        (HOST_NAME, Some(host.name.clone())),
        ("machine: processor", Some(host.processor.clone())),
        ("machine: instruction sets", Some(host.instruction_sets.clone())),
        ("machine: cores", Some(host.cores.to_string())),
        ("machine: system", Some(host.system.clone())),
    ];
    let device = [
        ("device", Some(device.chosen.clone())),
        ("device: name", Some(device.name.clone())),
        ("device: driver", Some(device.driver.clone().unwrap_or_else(|| "none".into()))),
        ("device: compute capability", device.compute_capability.clone()),
        ("device: LLVM", device.llvm.clone()),
        ("device: kernels on the CPU", device.cpu_kernels.clone()),
        ("device: products of 32-bit floats", device.float32_products.clone()),
    ];
    let named = |(name, value): (&str, Option<String>)| (name.to_owned(), value);
    let all = code.map(named).into_iter().chain(data).chain(machine.map(named)).chain(device.map(named));
    all.filter_map(|(name, value)| Some((name, value?))).collect()
}
