//! Reproduction of a run: comparison of its metrics with those of a new run, and the changes in code, data and machine.

use std::path::Path;

use super::manifest;
use crate::exit::exit_code;
use crate::host;
use crate::plan::Plan;
use xrun_core::device::{DeviceKind, SelectedDevice, supports_tf32};
use xrun_core::units::pluralize;
use xrun_results::build_info;
use xrun_results::format::{Code, Device, Host, Manifest, Outcome, Summary, VERSION};
use xrun_results::metrics_comparison;
use xrun_results::metrics_comparison::MetricsComparison;
use xrun_results::read;
use xrun_results::read::ReadError;
use xrun_results::reproduction::{Agreement, EnvironmentChange, Reproduction};
use xrun_results::view::RunView;

/// Tolerance on the CPU: bit-identical metrics.
pub const TOLERANCE_CPU: f64 = 0.0;
/// Tolerance on a GPU: mean relative error of each metric over the run. Rounding differs from the first step on, and training
/// amplifies the differences.
pub const TOLERANCE_GPU: f64 = 0.1;

/// Records of the run that is to be reproduced.
#[derive(Clone, Debug)]
pub struct Original {
    /// Manifest of the run.
    pub manifest: Manifest,
    /// Summary; `None` if the run was killed or is active.
    pub summary: Option<Summary>,
    /// Last step in `metrics.jsonl`.
    pub last_step: Option<u64>,
}

impl Original {
    /// Reads the records of a run.
    ///
    /// # Errors
    /// The manifest, or a line of the metrics, is missing or damaged.
    pub fn read(run: &Path) -> Result<Self, ReadError> {
        let mut last_step = None;
        for line in read::metrics(run)? {
            last_step = last_step.max(Some(line?.step()));
        }
        Ok(Self { manifest: read::manifest(run)?, summary: read::summary(run)?, last_step })
    }

    fn outcome(&self) -> Option<Outcome> {
        self.summary.as_ref().map(|summary| summary.outcome)
    }

    fn is_done(&self) -> bool {
        self.outcome().is_some_and(Outcome::is_complete)
    }

    /// Number of steps of the reproduction: those of the original if it ended early, and one more if it failed in a step.
    /// `None` for all steps.
    pub fn stop_after(&self) -> Option<u64> {
        let failed = matches!(self.outcome(), Some(Outcome::Diverged | Outcome::Failed | Outcome::Panicked));
        // At least one, because a run that stops at step 0 does not validate the untrained model.
        let last = self.last_step.unwrap_or(0).max(1);
        (!self.is_done()).then_some(if failed { last + 1 } else { last })
    }
}

/// Changes of code, data, machine and device since the original run. A value that is unknown on one side is no change.
pub fn changes(before: &Manifest, plan: &Plan, chosen: &SelectedDevice) -> Vec<EnvironmentChange> {
    let here = std::env::current_dir().unwrap_or_default();
    let data = plan.facts.data_digests.iter().map(|(name, now)| {
        let value = |digest: Option<&String>| (format!("data: {name}"), digest.cloned());
        (value(before.data.get(name)), value(Some(now)))
    });
    let on_device = |device: &Device| if before.watched.is_some() { Vec::new() } else { device_values(device) };
    let now = (build_info::code(&here, false), manifest::device(chosen, &plan.experiment.device));
    let pairs = std::iter::zip(code_values(&before.code), code_values(&now.0))
        .chain(data)
        .chain(std::iter::zip(host_values(&before.host), host_values(&host::host())))
        // The device of a command is unknown.
        .chain(std::iter::zip(on_device(&before.device), on_device(&now.1)));
    let changed = pairs.filter_map(|((what, then), (_, now))| {
        let (then, now) = then.zip(now).filter(|(then, now)| then != now)?;
        Some(EnvironmentChange { what, then, now })
    });
    let mut changes: Vec<EnvironmentChange> = changed.collect();
    // Several commits may have the same sources.
    if before.code.source_digest == now.0.source_digest {
        changes.retain(|change| change.what != COMMIT);
    }
    // On the CPU the device is the processor, which is compared above.
    changes.dedup_by(|later, earlier| {
        later.what == "device: name" && (&later.then, &later.now) == (&earlier.then, &earlier.now)
    });
    changes
}

/// Name of a value that is compared, and the value; `None` if it is unknown.
type Named = (String, Option<String>);

fn named<const N: usize>(values: [(&str, Option<String>); N]) -> Vec<Named> {
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Name of the commit among the values.
const COMMIT: &str = "code: built from commit";

fn code_values(code: &Code) -> Vec<Named> {
    let changed = if code.built_with_changes == Some(true) { " with changes" } else { "" };
    named([
        ("code: version", Some(code.xrun.clone())),
        ("code: lock file", Some(code.lock_digest.clone())),
        ("code: features", Some(code.features.join(" "))),
        ("code: sources", code.source_digest.clone()),
        (COMMIT, code.built_commit.as_ref().map(|commit| format!("{commit}{changed}"))),
    ])
}

fn host_values(host: &Host) -> Vec<Named> {
    named([
        ("machine: processor", Some(host.processor.clone())),
        ("machine: instruction sets", Some(host.instruction_sets.clone())),
        ("machine: cores", Some(host.cores.to_string())),
        ("machine: system", Some(host.system.clone())),
    ])
}

fn device_values(device: &Device) -> Vec<Named> {
    named([
        ("device", Some(device.chosen.clone())),
        ("device: name", Some(device.name.clone())),
        ("device: driver", Some(device.driver.clone().unwrap_or_else(|| "none".into()))),
        ("device: compute capability", device.compute_capability.clone()),
        ("device: LLVM", device.llvm.clone()),
        ("device: kernels on the CPU", device.cpu_kernels.clone()),
        ("device: products of 32-bit floats", device.float32_products.clone()),
    ])
}

/// Sources of nondeterminism of a device.
fn nondeterminism(chosen: &SelectedDevice) -> Vec<String> {
    if chosen.kind == DeviceKind::Cpu {
        return Vec::new();
    }
    let tf32 = chosen.found.capability.is_some_and(supports_tf32);
    let tf32 = tf32.then_some("some matrix multiplication kernels round their inputs to 10 bits (TF32)");
    [
        "kernels are chosen by timing (autotune), and each has its own order of summation",
        "the order of atomic and parallel reductions varies",
    ]
    .into_iter()
    .chain(tf32)
    .map(str::to_owned)
    .collect()
}

/// Compares the two runs (`paths`: original and reproduction) and concludes whether they agree.
///
/// # Errors
/// A record of either run is missing or damaged.
pub fn conclude(
    original: &Original,
    (from, reproduction): (&Path, &RunView),
    tolerance: f64,
    chosen: &SelectedDevice,
    changes: Vec<EnvironmentChange>,
) -> Result<Reproduction, ReadError> {
    let to = reproduction.path.as_path();
    let compared = metrics_comparison::compare(from, to)?;
    let reproduction_outcome = reproduction.summary().map(|summary| summary.outcome);
    let agreement = agreement_of(&compared, original, reproduction_outcome, tolerance);
    let exit_code = match agreement {
        Agreement::Identical | Agreement::WithinTolerance => exit_code(Outcome::Finished),
        Agreement::Different | Agreement::Incomplete => exit_code(Outcome::Failed),
    };
    Ok(Reproduction {
        version: VERSION,
        original: from.display().to_string(),
        reproduction: to.display().to_string(),
        original_outcome: original.outcome(),
        reproduction_outcome,
        agreement,
        exit_code,
        message: message(agreement, &compared, original, reproduction_outcome, tolerance),
        tolerance,
        lines_compared: compared.lines_compared,
        lines_original: compared.lines_original,
        lines_reproduction: compared.lines_reproduction,
        last_step: compared.last_step,
        values_compared: compared.values_compared,
        values_different: compared.values_different,
        series: compared.series(),
        first_difference: compared.first_difference,
        changes,
        not_deterministic: nondeterminism(chosen),
        notes: notes(original),
    })
}

fn agreement_of(
    compared: &MetricsComparison,
    original: &Original,
    outcome: Option<Outcome>,
    tolerance: f64,
) -> Agreement {
    let near = if compared.identical() {
        Agreement::Identical
    } else if tolerance > 0.0 && compared.within(tolerance) {
        Agreement::WithinTolerance
    } else {
        return Agreement::Different;
    };
    if endings_differ(original, outcome) {
        Agreement::Different
    } else if compared.lines_reproduction < compared.lines_original {
        Agreement::Incomplete
    } else if original.is_done() && compared.lines_reproduction > compared.lines_original {
        Agreement::Different
    } else {
        near
    }
}

/// Returns true if exactly one of the runs diverged: a loss that is not finite is not in the metrics.
fn endings_differ(original: &Original, outcome: Option<Outcome>) -> bool {
    let diverged = |outcome: Option<Outcome>| outcome == Some(Outcome::Diverged);
    diverged(original.outcome()) != diverged(outcome)
}

fn message(
    agreement: Agreement,
    compared: &MetricsComparison,
    original: &Original,
    outcome: Option<Outcome>,
    tolerance: f64,
) -> String {
    let lines = format!(
        "{} with {}",
        pluralize(compared.lines_compared, "line"),
        pluralize(compared.values_compared, "number")
    );
    let last = compared.last_step.unwrap_or(0);
    let first = compared.first_difference.as_ref().map_or(String::new(), |first| {
        let (then, now) = (&first.original, &first.reproduction);
        format!("the first difference is at step {}: {} was {then} and is {now}", first.step, first.value)
    });
    match agreement {
        Agreement::Identical => format!("bit for bit in {lines}, up to step {last}"),
        Agreement::WithinTolerance => format!(
            "{} of {} differ, within the tolerance of {tolerance}; {first}",
            compared.values_different,
            pluralize(compared.values_compared, "number")
        ),
        Agreement::Incomplete => format!(
            "identical in {lines}, but the reproduction has only {} of {} lines",
            compared.lines_reproduction, compared.lines_original
        ),
        Agreement::Different if !first.is_empty() => {
            format!("{} of {} numbers differ; {first}", compared.values_different, compared.values_compared)
        }
        Agreement::Different if endings_differ(original, outcome) => {
            let words = |outcome: Option<Outcome>| outcome.map_or("killed", Outcome::label);
            format!(
                "identical in {lines}, but the run ended as {} and the reproduction as {}",
                words(original.outcome()),
                words(outcome)
            )
        }
        Agreement::Different => {
            format!("{} lines instead of {}", compared.lines_reproduction, compared.lines_original)
        }
    }
}

fn notes(original: &Original) -> Vec<String> {
    let mut notes = Vec::new();
    if !original.is_done() {
        let ended = original
            .outcome()
            .map_or("has no summary (active or killed)".into(), |outcome| format!("ended early ({})", outcome.label()));
        notes.push(format!("the original {ended}; compared up to step {}", original.last_step.unwrap_or(0)));
    }
    match original.manifest.resumed.len() {
        0 => {}
        times => notes.push(format!(
            "the original was resumed {}; a resume may have changed values (-s) for later steps",
            if times == 1 { "once".into() } else { format!("{times} times") }
        )),
    }
    notes
}
