//! Memory contract next to an experiment file: `plan --lock` writes it, `check --locked` and `run --locked` enforce it.

use std::path::{Path, PathBuf};

use super::terminal::{Failure, Terminal};
use crate::experiment::overrides::overridden_key;
use crate::files::{checksum, file, write};
use crate::invocation;
use crate::plan::contract::{Contract, Contracts, Violation};
use crate::printable;
use crate::results::format::Forecast;
use crate::results::view::RunView;
use crate::run::fingerprint::fingerprint;
use crate::run::prepare::Planned;

/// Largest size of a contract file.
const BYTES_MAX: u64 = 1 << 20;

/// Path of the contract of an experiment file.
pub fn path(experiment: &Path) -> PathBuf {
    experiment.with_extension("memory.lock")
}

/// Refuses overrides other than the device, since a contract describes the file.
pub fn refuse_overrides(overrides: &[String]) -> Result<(), Failure> {
    match overrides.iter().find(|text| !text.starts_with("--device=")) {
        None => Ok(()),
        Some(text) => Err(Failure::Usage(format!(
            "--lock: a contract describes the file, but `{}` is set on the command line; set it in the file",
            printable::line(overridden_key(text), 80)
        ))),
    }
}

/// Writes the contract of this kind of device. Those of other devices are kept, unless the file is damaged, which is reported.
pub fn write(
    experiment: &Path,
    planned: &Planned,
    forecast: &Forecast,
    terminal: Terminal,
) -> Result<PathBuf, Failure> {
    let path = path(experiment);
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _turn =
        file::lock_directory(directory).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    let before = match path.exists().then(|| contracts(experiment)) {
        Some(Err(Failure::Usage(damage))) => {
            terminal.info(&format!("dropped the contracts of other devices: {damage}"));
            None
        }
        before => before.transpose()?,
    };
    let contracts = Contracts::with(before, &device(planned), current(planned, forecast));
    let (program, name) =
        (invocation::program(), experiment.file_name().unwrap_or_default().to_string_lossy().into_owned());
    let name = printable::line(&name, 200);
    let about = format!(
        "Memory contract of {name}, in bytes. Written by `{program} plan {name} --lock`,\n\
         enforced by `{program} check {name} --locked` and `{program} run {name} --locked`."
    );
    let text = contracts.to_toml(&about).map_err(Failure::Failed)?;
    write::replace(&path, &checksum::text(&text)).map_err(Failure::failed)?;
    Ok(path)
}

/// Reads the contract of this kind of device.
pub fn read(experiment: &Path, planned: &Planned) -> Result<Contract, Failure> {
    let (contracts, device) = (contracts(experiment)?, device(planned));
    contracts.of(&device).cloned().ok_or_else(|| {
        Failure::Usage(format!(
            "{}: no contract for `{device}`, only for {}; `{} plan {} --lock` on such a device adds it",
            path(experiment).display(),
            contracts.devices().join(", "),
            invocation::program(),
            experiment.display()
        ))
    })
}

/// Violations of the contract by the forecast.
pub fn violations(contract: &Contract, planned: &Planned, forecast: &Forecast) -> Vec<Violation> {
    contract.violations(&current(planned, forecast))
}

/// Messages about violations of the contract by a run.
pub fn run_violations(contract: &Contract, run: &RunView) -> Vec<String> {
    run.summary().map_or_else(Vec::new, |summary| contract.run_violations(summary, run.verdict()))
}

/// Advice on a violation.
pub fn advice(experiment: &Path, contract: &Contract, planned: &Planned) -> String {
    let changed = match contract.fingerprint == fingerprint(&planned.plan) {
        true => {
            "experiment, data and program are those of the contract, so the machine differs or the measurement was inaccurate"
        }
        false => "the experiment, its data or the program has changed since the contract was written",
    };
    format!(
        "{changed}; revert the change, or write a new contract with `{} plan {} --lock` and commit it",
        invocation::program(),
        printable::shell_word(&experiment.to_string_lossy())
    )
}

fn current(planned: &Planned, forecast: &Forecast) -> Contract {
    Contract::new(&planned.plan, forecast, fingerprint(&planned.plan))
}

/// Kind of device: `cuda` for `cuda:1`.
fn device(planned: &Planned) -> String {
    let kind = planned.chosen.kind.to_string();
    kind.split(':').next().unwrap_or_default().to_owned()
}

fn contracts(experiment: &Path) -> Result<Contracts, Failure> {
    let path = path(experiment);
    let bytes = file::bytes(&path, BYTES_MAX).map_err(|error| {
        let help = format!("`{} plan {} --lock` writes it", invocation::program(), experiment.display());
        Failure::Usage(format!("{}: {error}; {help}", path.display()))
    })?;
    parsed(&bytes).map_err(|error| {
        let help = format!("`{} plan {} --lock` writes a new one", invocation::program(), experiment.display());
        Failure::Usage(format!("{}: {}; {help}", path.display(), error.trim_end()))
    })
}

fn parsed(bytes: &[u8]) -> Result<Contracts, String> {
    match checksum::check_text(bytes) {
        Ok(true) => Contracts::read(&String::from_utf8_lossy(bytes)),
        Ok(false) => Err("the checksum in the last line is missing".into()),
        Err(_) => Err("edited or damaged (the checksum differs)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_of_a_contract_is_refused() {
        let text = "# Two\n# lines.\nversion = 1\n\n[device.cpu]\nfingerprint = \"ab\"\nsteps = 60\nheap_peak = 1234\nslope = 0.5\n\n\
                    [device.cpu.owners.log_lines]\ncap = 4096\npeak = 300\n\n[device.cpu.parts]\nactivations = 77\n";
        let sealed = checksum::text(text);
        assert!(parsed(&sealed).is_ok());
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parsed(&flipped).is_err(), "bit {bit}: {}", String::from_utf8_lossy(&flipped));
        }
        assert!(parsed(text.as_bytes()).is_err(), "without its checksum");
        assert!(parsed(&checksum::text(text.replace("steps", "stops"))).is_err(), "an unknown key");
    }
}
