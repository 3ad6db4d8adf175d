//! The memory contract beside an experiment's file: `plan --lock` writes it, `check --locked` and `run --locked` hold it.

use std::path::{Path, PathBuf};

use super::terminal::{Failure, Terminal};
use crate::experiment::overrides::key_of;
use crate::files::{file, seal, write};
use crate::invocation;
use crate::plan::contract::{Contract, Contracts, Moved};
use crate::printable;
use crate::results::format::Forecast;
use crate::results::read;
use crate::run::fingerprint::fingerprint;
use crate::run::prepare::Planned;

/// A contract is small.
const BYTES_MAX: u64 = 1 << 20;

/// The contract of an experiment's file.
pub fn path(experiment: &Path) -> PathBuf {
    experiment.with_extension("memory.lock")
}

/// A contract is of the file as it stands.
pub fn refuse_overrides(overrides: &[String]) -> Result<(), Failure> {
    match overrides.iter().find(|text| !text.starts_with("--device=")) {
        None => Ok(()),
        Some(text) => Err(Failure::Usage(format!(
            "--lock: the contract is of the file, and `{}` is set on the command line; write it into the file",
            printable::line(key_of(text), 80)
        ))),
    }
}

/// Writes the contract of this kind of device; those of others stay, unless the file was damaged, which is said.
pub fn write(
    experiment: &Path,
    planned: &Planned,
    forecast: &Forecast,
    terminal: Terminal,
) -> Result<PathBuf, Failure> {
    let path = path(experiment);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _turn = file::turn(folder).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    let before = match path.exists().then(|| contracts(experiment)) {
        Some(Err(Failure::Usage(damage))) => {
            terminal.say(&format!("contracts of other devices are dropped: {damage}"));
            None
        }
        before => before.transpose()?,
    };
    let contracts = Contracts::with(before, &device(planned), now(planned, forecast));
    let (program, name) =
        (invocation::program(), experiment.file_name().unwrap_or_default().to_string_lossy().into_owned());
    let name = printable::line(&name, 200);
    let about = format!(
        "What memory {name} may need, in bytes. `{program} plan {name} --lock` writes this,\n\
         `{program} check {name} --locked` and `{program} run {name} --locked` hold it."
    );
    let text = contracts.to_toml(&about).map_err(Failure::Failed)?;
    write::replace(&path, &seal::text(&text)).map_err(Failure::failed)?;
    Ok(path)
}

/// The contract that holds for this kind of device.
pub fn contract(experiment: &Path, planned: &Planned) -> Result<Contract, Failure> {
    let (contracts, device) = (contracts(experiment)?, device(planned));
    contracts.of(&device).cloned().ok_or_else(|| {
        Failure::Usage(format!(
            "{}: has no contract for `{device}`, only for {}; `{} plan {} --lock` on such a machine adds it",
            path(experiment).display(),
            contracts.devices().join(", "),
            invocation::program(),
            experiment.display()
        ))
    })
}

/// What the experiment is expected to need beyond its contract.
pub fn broken(contract: &Contract, planned: &Planned, forecast: &Forecast) -> Vec<Moved> {
    contract.broken_by(&now(planned, forecast))
}

/// What a run came to need beyond its contract.
pub fn broken_by_run(contract: &Contract, run: &Path) -> Vec<String> {
    let Some(summary) = read::summary(run).ok().flatten() else { return Vec::new() };
    contract.broken_by_run(&summary, read::verdict(run).ok().flatten().as_ref())
}

/// What a person does about it.
pub fn advice(experiment: &Path, contract: &Contract, planned: &Planned) -> String {
    let changed = match contract.fingerprint == fingerprint(&planned.plan) {
        true => {
            "the experiment, its data and the program are those of the contract; the machine is not, or a measurement was off"
        }
        false => "the experiment, its data or the program is another one than that of the contract",
    };
    format!(
        "{changed}; take the change back, or write the new contract with `{} plan {} --lock` and commit it",
        invocation::program(),
        printable::shell_word(&experiment.to_string_lossy())
    )
}

fn now(planned: &Planned, forecast: &Forecast) -> Contract {
    Contract::new(&planned.plan, forecast, fingerprint(&planned.plan))
}

/// `cuda` of `cuda:1`.
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
        let again = format!("`{} plan {} --lock` writes it anew", invocation::program(), experiment.display());
        Failure::Usage(format!("{}: {}; {again}", path.display(), error.trim_end()))
    })
}

fn parsed(bytes: &[u8]) -> Result<Contracts, String> {
    match seal::check_text(bytes) {
        Ok(true) => Contracts::read(&String::from_utf8_lossy(bytes)),
        Ok(false) => Err("its last line, the checksum, is missing".into()),
        Err(_) => Err("was edited or damaged, since its checksum differs".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_of_a_contract_is_refused() {
        let text = "# Two\n# lines.\nversion = 1\n\n[device.cpu]\nfingerprint = \"ab\"\nsteps = 60\nheap_peak = 1234\nslope = 0.5\n\n\
                    [device.cpu.owners.log_lines]\ncap = 4096\npeak = 300\n\n[device.cpu.parts]\nactivations = 77\n";
        let sealed = seal::text(text);
        assert!(parsed(&sealed).is_ok());
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parsed(&flipped).is_err(), "bit {bit}: {}", String::from_utf8_lossy(&flipped));
        }
        assert!(parsed(text.as_bytes()).is_err(), "without its checksum");
        assert!(parsed(&seal::text(&text.replace("steps", "stops"))).is_err(), "a key that there is not");
    }
}
