//! Reproduction of a run: comparison of its metrics with those of a new run, and the changes in code, data and machine.

use std::path::Path;

use super::manifest;
use crate::exit::exit_code;
use crate::host;
use crate::plan::Plan;
use xrun_core::device::{DeviceKind, SelectedDevice, supports_tf32};
use xrun_core::units::pluralize;
use xrun_results::build_info;
use xrun_results::format::{Code, Host, Manifest, Outcome, Summary, VERSION};
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

/// Changes of code, data, machine and device since the original run.
pub fn changes(before: &Manifest, plan: &Plan, chosen: &SelectedDevice) -> Vec<EnvironmentChange> {
    let here = std::env::current_dir().unwrap_or_default();
    let mut changes = Changes::default();
    changes.compare_code(&before.code, &build_info::code(&here, false));
    for (name, now) in &plan.facts.data_digests {
        if let Some(then) = before.data.get(name) {
            changes.compare(&format!("data: {name}"), then, now);
        }
    }
    changes.compare_host(&before.host, &host::host());
    if before.watched.is_some() {
        // The device of a command is unknown.
        return changes.0;
    }
    let (then, now) = (&before.device, manifest::device(chosen, &plan.experiment.device));
    changes.compare("device", &then.chosen, &now.chosen);
    changes.compare("device: name", &then.name, &now.name);
    let driver = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "none".into());
    changes.compare("device: driver", &driver(&then.driver), &driver(&now.driver));
    changes.compare_known("device: compute capability", &then.compute_capability, &now.compute_capability);
    changes.compare_known("device: LLVM", &then.llvm, &now.llvm);
    changes.compare_known("device: kernels on the CPU", &then.cpu_kernels, &now.cpu_kernels);
    changes.compare_known("device: products of 32-bit floats", &then.float32_products, &now.float32_products);
    // On the CPU the device is the processor, which is compared above.
    changes.0.dedup_by(|later, earlier| {
        later.what == "device: name" && (&later.then, &later.now) == (&earlier.then, &earlier.now)
    });
    changes.0
}

#[derive(Default)]
struct Changes(Vec<EnvironmentChange>);

impl Changes {
    fn compare(&mut self, what: &str, then: &str, now: &str) {
        if then != now {
            self.0.push(EnvironmentChange { what: what.into(), then: then.into(), now: now.into() });
        }
    }

    /// Compares values of which both are known.
    fn compare_known(&mut self, what: &str, then: &Option<String>, now: &Option<String>) {
        if let (Some(then), Some(now)) = (then, now) {
            self.compare(what, then, now);
        }
    }

    fn compare_code(&mut self, then: &Code, now: &Code) {
        self.compare("code: version", &then.xrun, &now.xrun);
        self.compare("code: lock file", &then.lock_digest, &now.lock_digest);
        self.compare("code: features", &then.features.join(" "), &now.features.join(" "));
        self.compare_known("code: sources", &then.source_digest, &now.source_digest);
        let commit = |code: &Code| {
            let changed = if code.built_with_changes == Some(true) { " with changes" } else { "" };
            code.built_commit.as_ref().map(|commit| format!("{commit}{changed}"))
        };
        // Several commits may have the same sources.
        if then.source_digest != now.source_digest {
            self.compare_known("code: built from commit", &commit(then), &commit(now));
        }
    }

    fn compare_host(&mut self, then: &Host, now: &Host) {
        self.compare("machine: processor", &then.processor, &now.processor);
        self.compare("machine: instruction sets", &then.instruction_sets, &now.instruction_sets);
        self.compare("machine: cores", &then.cores.to_string(), &now.cores.to_string());
        self.compare("machine: system", &then.system, &now.system);
    }
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
