//! Reproduction of a run: comparison of its metrics with those of a new run, and the changes in code, data and machine.

use std::collections::BTreeMap;
use std::path::Path;

use super::manifest;
use crate::exit::exit_code;
use crate::host;
use crate::launch::Extent;
use crate::plan::Plan;
use xrun_core::device::{DeviceKind, SelectedDevice, supports_tf32};
use xrun_core::units::pluralize;
use xrun_results::build_info;
use xrun_results::environment::{COMMIT, HOST_NAME, environment};
use xrun_results::format::{Manifest, Outcome, Summary, VERSION};
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

    /// Extent of the reproduction: the steps of the original if it was interrupted, and one more if it failed in a step.
    pub fn extent(&self) -> Extent {
        if self.is_done() {
            return Extent::Whole;
        }
        let failed = matches!(self.outcome(), Some(Outcome::Diverged | Outcome::Failed | Outcome::Panicked));
        // At least one, because a run that stops at step 0 does not validate the untrained model.
        let last = self.last_step.unwrap_or(0).max(1);
        Extent::Until(if failed { last + 1 } else { last })
    }
}

/// Changes of code, data, machine and device since the original run. A value that is unknown on one side is no change.
pub fn changes(before: &Manifest, plan: &Plan, chosen: &SelectedDevice) -> Vec<EnvironmentChange> {
    let here = std::env::current_dir().unwrap_or_default();
    let (code, device) = (build_info::code(&here, false), manifest::device(chosen, &plan.experiment.device));
    let data = plan.facts.data_digests.iter().cloned().collect();
    let mut then: BTreeMap<String, String> =
        environment(&before.code, &before.host, &before.device, &before.data).into_iter().collect();
    then.remove(HOST_NAME);
    // The device of a command is unknown.
    then.retain(|what, _| before.watched.is_none() || !what.starts_with("device"));
    // Several commits may have the same sources.
    if before.code.source_digest == code.source_digest {
        then.remove(COMMIT);
    }
    let now = environment(&code, &host::host(), &device, &data).into_iter();
    let changed = now.filter_map(|(what, now)| {
        let then = then.remove(&what).filter(|then| *then != now)?;
        Some(EnvironmentChange { what, then, now })
    });
    let mut changes: Vec<EnvironmentChange> = changed.collect();
    // On the CPU the device is the processor, which is compared above.
    changes.dedup_by(|later, earlier| {
        later.what == "device: name" && (&later.then, &later.now) == (&earlier.then, &earlier.now)
    });
    changes
}

/// Sources of nondeterminism of a device.
fn nondeterminism(chosen: &SelectedDevice) -> Vec<String> {
    if chosen.kind == DeviceKind::Cpu {
        return Vec::new();
    }
    let tf32 = chosen.found.capability.is_some_and(supports_tf32);
    let tf32 = tf32.then_some("some matrix multiplication kernels round their inputs to 10 bits (TF32)");
    ["the order of atomic and parallel reductions varies"].into_iter().chain(tf32).map(str::to_owned).collect()
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
        compared: compared.into_metrics(),
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
    } else if compared.metrics.lines_reproduction < compared.metrics.lines_original {
        Agreement::Incomplete
    } else if original.is_done() && compared.metrics.lines_reproduction > compared.metrics.lines_original {
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
        pluralize(compared.metrics.lines_compared, "line"),
        pluralize(compared.metrics.values_compared, "number")
    );
    let last = compared.metrics.last_step.unwrap_or(0);
    let first = compared.metrics.first_difference.as_ref().map_or(String::new(), |first| {
        let (then, now) = (&first.original, &first.reproduction);
        format!("the first difference is at step {}: {} was {then} and is {now}", first.step, first.value)
    });
    match agreement {
        Agreement::Identical => format!("bit for bit in {lines}, up to step {last}"),
        Agreement::WithinTolerance => format!(
            "{} of {} differ, within the tolerance of {tolerance}; {first}",
            compared.metrics.values_different,
            pluralize(compared.metrics.values_compared, "number")
        ),
        Agreement::Incomplete => format!(
            "identical in {lines}, but the reproduction has only {} of {} lines",
            compared.metrics.lines_reproduction, compared.metrics.lines_original
        ),
        Agreement::Different if !first.is_empty() => {
            format!(
                "{} of {} numbers differ; {first}",
                compared.metrics.values_different, compared.metrics.values_compared
            )
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
            format!("{} lines instead of {}", compared.metrics.lines_reproduction, compared.metrics.lines_original)
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
