//! Is a run that was run again the same run, and what has changed around it?

use std::path::Path;

use super::manifest;
use crate::plan::Plan;
use xrun_core::device::{Chosen, Kind, multiplies_in_tf32};
use xrun_results::agreement;
use xrun_results::agreement::Comparison;
use xrun_results::built;
use xrun_results::format::{Code, Host, Manifest, Outcome, Summary, VERSION};
use xrun_results::read;
use xrun_results::read::ReadError;
use xrun_results::reproduction::{Agreement, Change, Reproduction};
use xrun_watch::host;
use xrun_watch::stop::exit_code;

/// On the CPU the same bits are asked for.
pub const TOLERANCE_CPU: f64 = 0.0;
/// On a GPU each number may be off by this share of its mean size, averaged over the run: rounding differs from the
/// first step on, and training carries it further.
pub const TOLERANCE_GPU: f64 = 0.1;

/// Where the run that is to be reproduced came to.
#[derive(Clone, Debug)]
pub struct Original {
    /// What ran, where, on what.
    pub manifest: Manifest,
    /// How it ended; `None` where nobody wrote that down.
    pub summary: Option<Summary>,
    /// The last step in metrics.jsonl.
    pub last_step: Option<u64>,
}

impl Original {
    /// Reads the records of a run's folder.
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

    /// Whether it came to its end.
    fn is_whole(&self) -> bool {
        self.outcome().is_some_and(Outcome::is_done)
    }

    /// How far it has to be run again: of one that ended early not farther than it came, and of one that failed in a
    /// step through that step.
    pub fn stop_after(&self) -> Option<u64> {
        let failed = matches!(self.outcome(), Some(Outcome::Diverged | Outcome::Failed | Outcome::Panicked));
        // At least one: a run that stops at 0 does not validate the untrained model.
        let last = self.last_step.unwrap_or(0).max(1);
        (!self.is_whole()).then_some(if failed { last + 1 } else { last })
    }
}

/// What is not as it was: code, data, machine, device, by name.
pub fn changes(before: &Manifest, plan: &Plan, chosen: &Chosen) -> Vec<Change> {
    let here = std::env::current_dir().unwrap_or_default();
    let mut changes = Changes::default();
    changes.of_code(&before.code, &built::code(&here, false));
    for (name, now) in &plan.facts.data_digests {
        if let Some(then) = before.data.get(name) {
            changes.note(&format!("data: {name}"), then, now);
        }
    }
    changes.of_host(&before.host, &host::host());
    if before.watched.is_some() {
        // Nobody knows what a command works on.
        return changes.0;
    }
    let (then, now) = (&before.device, manifest::device(chosen, &plan.experiment.device));
    changes.note("device", &then.chosen, &now.chosen);
    changes.note("device: name", &then.name, &now.name);
    let driver = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "none".into());
    changes.note("device: driver", &driver(&then.driver), &driver(&now.driver));
    changes.known("device: compute capability", &then.compute_capability, &now.compute_capability);
    changes.known("device: LLVM", &then.llvm, &now.llvm);
    changes.known("device: kernels on the CPU", &then.cpu_kernels, &now.cpu_kernels);
    changes.known("device: products of 32-bit floats", &then.float32_products, &now.float32_products);
    // On the CPU the device is the processor, which has been named.
    changes.0.dedup_by(|later, earlier| {
        later.what == "device: name" && (&later.then, &later.now) == (&earlier.then, &earlier.now)
    });
    changes.0
}

#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn note(&mut self, what: &str, then: &str, now: &str) {
        if then != now {
            self.0.push(Change { what: what.into(), then: then.into(), now: now.into() });
        }
    }

    /// Of what one of the two does not have nothing can be said.
    fn known(&mut self, what: &str, then: &Option<String>, now: &Option<String>) {
        if let (Some(then), Some(now)) = (then, now) {
            self.note(what, then, now);
        }
    }

    fn of_code(&mut self, then: &Code, now: &Code) {
        self.note("code: version", &then.xrun, &now.xrun);
        self.note("code: lock file", &then.lock_digest, &now.lock_digest);
        self.note("code: features", &then.features.join(" "), &now.features.join(" "));
        self.known("code: sources", &then.source_digest, &now.source_digest);
        let commit = |code: &Code| {
            let changed = if code.built_with_changes == Some(true) { " with changes" } else { "" };
            code.built_commit.as_ref().map(|commit| format!("{commit}{changed}"))
        };
        // The same sources may stand in many commits.
        if then.source_digest != now.source_digest {
            self.known("code: built from commit", &commit(then), &commit(now));
        }
    }

    fn of_host(&mut self, then: &Host, now: &Host) {
        self.note("machine: processor", &then.processor, &now.processor);
        self.note("machine: instruction sets", &then.instruction_sets, &now.instruction_sets);
        self.note("machine: cores", &then.cores.to_string(), &now.cores.to_string());
        self.note("machine: system", &then.system, &now.system);
    }
}

/// What gives other numbers on the same machine.
pub fn not_deterministic(chosen: &Chosen) -> Vec<String> {
    if chosen.kind == Kind::Cpu {
        return Vec::new();
    }
    let tf32 = chosen.found.capability.is_some_and(multiplies_in_tf32);
    let rounded = tf32.then_some("of those that are tried some round the factors of products to ten bits (TF32)");
    [
        "kernels are chosen by timing them (autotune), and each adds numbers up in its own order",
        "sums over many threads end in an order that the device chooses",
    ]
    .into_iter()
    .chain(rounded)
    .map(str::to_owned)
    .collect()
}

/// Compares the two runs and draws the conclusion.
pub fn conclude(
    original: &Original,
    paths: (&Path, &Path),
    tolerance: f64,
    chosen: &Chosen,
    changes: Vec<Change>,
) -> Result<Reproduction, ReadError> {
    let (from, to) = paths;
    let compared = agreement::compare(from, to)?;
    let summary = read::summary(to)?;
    let reproduction_outcome = summary.map(|summary| summary.outcome);
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
        not_deterministic: not_deterministic(chosen),
        notes: notes(original),
    })
}

fn agreement_of(compared: &Comparison, original: &Original, outcome: Option<Outcome>, tolerance: f64) -> Agreement {
    let near = if compared.identical() {
        Agreement::Identical
    } else if tolerance > 0.0 && compared.within(tolerance) {
        Agreement::WithinTolerance
    } else {
        return Agreement::Different;
    };
    if ends_otherwise(original, outcome) {
        Agreement::Different
    } else if compared.lines_reproduction < compared.lines_original {
        Agreement::Incomplete
    } else if original.is_whole() && compared.lines_reproduction > compared.lines_original {
        Agreement::Different
    } else {
        near
    }
}

/// A loss that is not a number belongs to the numbers of a run.
fn ends_otherwise(original: &Original, outcome: Option<Outcome>) -> bool {
    let diverged = |outcome: Option<Outcome>| outcome == Some(Outcome::Diverged);
    diverged(original.outcome()) != diverged(outcome)
}

fn message(
    agreement: Agreement,
    compared: &Comparison,
    original: &Original,
    outcome: Option<Outcome>,
    tolerance: f64,
) -> String {
    let lines = format!("{} lines with {} numbers", compared.lines_compared, compared.values_compared);
    let last = compared.last_step.unwrap_or(0);
    let first = compared.first_difference.as_ref().map_or(String::new(), |first| {
        let (then, now) = (&first.original, &first.reproduction);
        format!("the first difference is at step {}: {} was {then} and is {now}", first.step, first.value)
    });
    match agreement {
        Agreement::Identical => format!("the same bits in {lines}, up to step {last}"),
        Agreement::WithinTolerance => format!(
            "{} of {lines} differ, and on average none by more than {} of its size; {first}",
            compared.values_different, tolerance
        ),
        Agreement::Incomplete => format!(
            "the same in {lines}, and then the reproduction ended: {} lines of {}",
            compared.lines_reproduction, compared.lines_original
        ),
        Agreement::Different if !first.is_empty() => {
            format!("{} of {} numbers differ; {first}", compared.values_different, compared.values_compared)
        }
        Agreement::Different if ends_otherwise(original, outcome) => {
            let words = |outcome: Option<Outcome>| outcome.map_or("cut off", Outcome::words);
            format!(
                "the same in {lines}, but the run ended as {} and the reproduction as {}",
                words(original.outcome()),
                words(outcome)
            )
        }
        Agreement::Different => {
            format!("{} lines became {}", compared.lines_original, compared.lines_reproduction)
        }
    }
}

fn notes(original: &Original) -> Vec<String> {
    let mut notes = Vec::new();
    if !original.is_whole() {
        let ended = original.outcome().map_or("has no summary: it goes on, or was killed".into(), |outcome| {
            format!("ended early ({})", outcome.words())
        });
        notes.push(format!("the run {ended}; it was compared up to step {}", original.last_step.unwrap_or(0)));
    }
    match original.manifest.resumed.len() {
        0 => {}
        times => notes.push(format!(
            "the run was resumed {times} times; if a resume changed a value (-s), the steps before it had another one"
        )),
    }
    notes
}
