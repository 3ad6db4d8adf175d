//! `xrun blame RUN`: find the part of an experiment that makes memory grow, by twins of the run with parts switched off.
//!
//! A twin starts from the last checkpoint and is deterministic, so it differs from the control in the switches alone. Halves of the switches are
//! tested (group testing): one culprit among `n` needs about `2 + log2 n` twins. Growth that ends, such as that of a cache that fills, counts
//! as none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::{Args, ValueHint};
use serde::Serialize;
use serde_json::Value;

use super::resume::find_run;
use super::terminal::{Failure, Terminal};
use super::{RUN_HELP, Results};
use crate::bounded::ledger::Policy;
use crate::child;
use crate::experiment::overrides::as_arguments;
use crate::experiment::{Experiment, read as experiment};
use crate::files::layout;
use crate::report::formatting::{bytes, percent};
use crate::report::width;
use crate::results::verdict::{FOOTPRINT, Findings, VerdictWord};
use crate::results::{read, resolved, run_name};
use crate::settings::sections::TRACKERS;
use crate::units::pluralize;

#[derive(Clone, Debug, Args)]
pub struct BlameArguments {
    #[arg(help = RUN_HELP, default_value = "latest", value_hint = ValueHint::DirPath)]
    run: String,
    /// Steps of each twin; more find slower growth.
    #[arg(long, value_name = "STEPS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(20..))]
    steps: u64,
    /// Key to leave as it is in all twins (repeatable).
    #[arg(long, value_name = "KEY")]
    keep: Vec<String>,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Part of an experiment that a twin can do without.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Switch {
    name: String,
    /// Overrides that switch it off.
    off: Vec<String>,
}

/// A twin that ran.
#[derive(Clone, Debug, Serialize)]
struct Twin {
    /// Parts that were switched off; none in the control.
    off: Vec<String>,
    run: String,
    verdict: VerdictWord,
    /// Growth of the heap, or of the footprint of a command, in bytes per step; 0 if it ends.
    growth: f64,
    /// Fraction of the control's growth that is gone.
    removed: f64,
    /// The last loss is that of the control.
    same_loss: bool,
}

/// Answer of `blame`.
#[derive(Debug, Serialize)]
struct Blamed {
    /// Parts without which memory does not grow, with the fraction of the growth that each removes alone, largest first.
    culprits: Vec<(String, f64)>,
    /// Parts without which memory grows less, and goes on growing: they are not the cause, or not the only one.
    slower: Vec<(String, f64)>,
    message: String,
    twins: Vec<Twin>,
}

/// Fraction of the control's growth whose removal is a finding.
const REMOVED_MIN: f64 = 0.2;
/// Fraction of the control's growth whose removal ends it: what remains is the growth of the runner's own records.
const ENDS_MIN: f64 = 0.85;
/// Factor on the steps of a control that does not grow, though the run did.
const LONGER: u64 = 4;
/// Smallest growth of a twin that its verdict calls growth, on the heap, and of the processes of a command.
const HEAP_GROWTH_MIN: u64 = 64 << 10;
const COMMAND_GROWTH_MIN: u64 = 1 << 20;

pub fn run(arguments: &BlameArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let run = find_run(&arguments.results, &arguments.run)?;
    let values = resolved::values(&run).map_err(Failure::failed)?;
    let owners = read::plan(&run).map_err(Failure::failed)?.owners.into_iter();
    let caches: Vec<String> =
        owners.filter(|buffer| buffer.policy == Policy::Evict).filter_map(|buffer| buffer.key).collect();
    let mut switches = switches(&values, &caches);
    switches.retain(|switch| !arguments.keep.contains(&switch.name) && is_valid(switch, &run));
    if switches.is_empty() {
        return Err(Failure::Usage(format!("{}: nothing in this experiment can be switched off", run.display())));
    }
    let mut search = Search::new(&run, &values, arguments, terminal)?;
    let blamed = search.run(&switches)?;
    terminal.answer(arguments.json, &blamed, || text(&blamed, terminal.width()));
    Ok(0)
}

/// Parts of an experiment that are on and can be switched off, by its values and the keys of its caches.
fn switches(values: &BTreeMap<String, Value>, caches: &[String]) -> Vec<Switch> {
    let mut switches = Vec::new();
    let mut add = |name: &str, off: &[&str]| {
        switches.push(Switch { name: name.to_owned(), off: off.iter().map(|text| (*text).to_owned()).collect() });
    };
    let number = |key: &str| values.get(key).and_then(Value::as_f64).unwrap_or_default();
    if is_command(values) {
        for (key, value) in values.iter().filter(|(key, _)| key.starts_with("pipeline.command.values.")) {
            match value {
                Value::Bool(true) => add(key, &[&format!("{key}=false")]),
                Value::Number(number) if number.as_f64() != Some(0.0) => add(key, &[&format!("{key}=0")]),
                _ => {}
            }
        }
        return switches;
    }
    for (key, _) in values.iter().filter(|(key, value)| key.starts_with("leaks.") && **value == Value::Bool(true)) {
        add(key, &[&format!("{key}=false")]);
    }
    if number("limits.workers") > 0.0 {
        add("limits.workers", &["limits.workers=0"]);
    }
    // Sizes below a block are no cache; 0 is not valid for each of them.
    for key in caches {
        add(key, &[&format!("{key}=\"4 KiB\"")]);
    }
    if number("validation.every_steps") > 0.0 || number("validation.every_epochs") > 0.0 {
        add("validation", &["validation.every_steps=0", "validation.every_epochs=0", "validation.at_start=false"]);
    }
    if number("checkpoint.every_steps") > 0.0 {
        add("checkpoint.every_steps", &["checkpoint.every_steps=0"]);
    }
    for key in TRACKERS.iter().filter(|key| values.get(**key) == Some(&Value::Bool(true))) {
        add(key, &[&format!("{key}=false")]);
    }
    for key in values.keys().filter(|key| key.ends_with(".augmentations") && number(key) > 1.0) {
        add(key, &[&format!("{key}=1")]);
    }
    for (key, _) in values.iter().filter(|(key, value)| key.ends_with(".flip") && **value == Value::Bool(true)) {
        add(key, &[&format!("{key}=false")]);
    }
    switches
}

/// Returns whether the experiment of a run is valid without a part: a pipeline has no effect on keys of buffers that it lacks.
fn is_valid(switch: &Switch, run: &Path) -> bool {
    experiment_of(run, &switch.off).is_some()
}

fn experiment_of(run: &Path, overrides: &[String]) -> Option<Experiment> {
    let read = experiment::read_resolved(&run.join(layout::RESOLVED), overrides);
    read.ok().map(|checked| checked.experiment)
}

fn is_command(values: &BTreeMap<String, Value>) -> bool {
    values.keys().any(|key| key.starts_with("pipeline.command."))
}

/// Twins of a run, each run at most once.
struct Search<'a> {
    run: PathBuf,
    name: String,
    arguments: &'a BlameArguments,
    terminal: &'a Terminal,
    is_command: bool,
    /// Step of the checkpoint that the twins start from.
    from: u64,
    /// Number of steps of each twin.
    steps: u64,
    steps_per_epoch: u64,
    epochs: u64,
    /// Smallest growth of the run that its verdict calls growth, and its number of steps.
    growth_min: (u64, u64),
    /// Growth and last loss of the newest control.
    control: Option<(f64, Option<f64>)>,
    twins: Vec<Twin>,
}

impl<'a> Search<'a> {
    fn new(
        run: &Path,
        values: &BTreeMap<String, Value>,
        arguments: &'a BlameArguments,
        terminal: &'a Terminal,
    ) -> Result<Self, Failure> {
        let manifest = read::manifest(run).map_err(Failure::failed)?;
        let is_command = is_command(values);
        let from = if is_command { 0 } else { newest_checkpoint(run)? };
        let plan = read::plan(run).map_err(Failure::failed)?;
        let growth_min = experiment_of(run, &[]).map_or(HEAP_GROWTH_MIN, |found| found.memory.growth_min.0);
        let steps = read::summary(run).ok().flatten().map_or(plan.steps, |summary| summary.steps);
        Ok(Self {
            run: run.to_path_buf(),
            name: format!("{}_blame", manifest.experiment),
            arguments,
            terminal,
            is_command,
            from,
            steps: arguments.steps,
            steps_per_epoch: plan.steps_per_epoch,
            epochs: plan.epochs,
            growth_min: (growth_min, steps),
            control: None,
            twins: Vec::new(),
        })
    }

    /// Overrides of all twins.
    fn common(&self) -> Vec<String> {
        let steps = self.from + self.steps;
        // What is growth at the rate of the whole run is growth in a twin.
        let (growth_min, run_steps) = self.growth_min;
        let scaled = growth_min as f64 * self.steps as f64 / run_steps.max(1) as f64;
        let floor = if self.is_command { COMMAND_GROWTH_MIN } else { HEAP_GROWTH_MIN };
        let growth_min = (scaled as u64).max(floor).min(growth_min);
        let mut common = vec![
            "memory.probe=false".to_owned(),
            "memory.fail_on=\"never\"".to_owned(),
            format!("memory.growth_min={growth_min}"),
            format!("training.max_steps={steps}"),
        ];
        if !self.is_command && self.steps_per_epoch > 0 {
            common.push(format!("training.epochs={}", steps.div_ceil(self.steps_per_epoch).max(self.epochs)));
        }
        common
    }

    /// Runs the control, once more with more steps if it does not grow and the run did. Returns whether it grows.
    fn control(&mut self) -> Result<(Twin, bool), Failure> {
        let verdict = read::verdict(&self.run).map_err(Failure::failed)?;
        let run_grew = verdict.is_some_and(|verdict| verdict.verdict >= VerdictWord::Suspect);
        loop {
            let control = self.twin(&[])?;
            let grows = control.growth > 0.0
                && (control.verdict >= VerdictWord::Suspect || control.verdict == VerdictWord::Inconclusive);
            if grows || !run_grew || self.steps > self.arguments.steps {
                return Ok((control, grows));
            }
            self.steps *= LONGER;
        }
    }

    fn run(&mut self, switches: &[Switch]) -> Result<Blamed, Failure> {
        let (control, grows) = self.control()?;
        if !grows {
            let message = format!(
                "the control does not grow in {} from the checkpoint ({}); more may show it: --steps {}",
                pluralize(self.steps, "step"),
                control.verdict.words(),
                LONGER * self.steps
            );
            let (culprits, slower) = (Vec::new(), Vec::new());
            return Ok(Blamed { culprits, slower, message, twins: std::mem::take(&mut self.twins) });
        }
        let mut found = Vec::new();
        let all = self.twin(switches)?;
        if all.removed >= REMOVED_MIN {
            self.halve(switches, all.removed, &mut found)?;
        }
        self.drop_needless(switches, all.removed, &mut found)?;
        let without = named(switches, |name| found.iter().any(|(other, _)| other == name));
        let ends = !found.is_empty() && self.twin(&without)?.removed >= ENDS_MIN;
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        let message = message(&found, ends, switches.len(), &all);
        let (culprits, slower) = if ends { (found, Vec::new()) } else { (Vec::new(), found) };
        Ok(Blamed { culprits, slower, message, twins: std::mem::take(&mut self.twins) })
    }

    /// Drops a culprit without which the others remove the same growth: a cache that fills hides a part of a leak.
    fn drop_needless(
        &mut self,
        switches: &[Switch],
        removed: f64,
        culprits: &mut Vec<(String, f64)>,
    ) -> Result<(), Failure> {
        let mut at = 0;
        while culprits.len() > 1 && at < culprits.len() {
            let others = named(switches, |name| {
                culprits.iter().enumerate().any(|(other, (culprit, _))| other != at && culprit == name)
            });
            let rest = removed - self.twin(&others)?.removed;
            if rest < REMOVED_MIN {
                culprits.remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Finds the culprits in a group whose removal removes this fraction of the growth.
    fn halve(&mut self, group: &[Switch], removed: f64, culprits: &mut Vec<(String, f64)>) -> Result<(), Failure> {
        if let [one] = group {
            culprits.push((one.name.clone(), removed));
            return Ok(());
        }
        let (first, second) = group.split_at(group.len() / 2);
        let of_first = self.twin(first)?.removed;
        if of_first >= REMOVED_MIN {
            self.halve(first, of_first, culprits)?;
        }
        if removed - of_first < REMOVED_MIN {
            return Ok(());
        }
        // A single switch is a finding only if it was tested alone.
        let of_second = self.twin(second)?.removed;
        if of_second >= REMOVED_MIN { self.halve(second, of_second, culprits) } else { Ok(()) }
    }

    fn twin(&mut self, off: &[Switch]) -> Result<Twin, Failure> {
        let names: Vec<String> = off.iter().map(|switch| switch.name.clone()).collect();
        if let Some(known) = self.twins.iter().find(|twin| !off.is_empty() && twin.off == names) {
            return Ok(known.clone());
        }
        let what = if names.is_empty() { "control".to_owned() } else { format!("without {}", names.join(", ")) };
        self.terminal.info(&format!("twin {}: {what}", self.twins.len() + 1));
        let run = self.start(off)?;
        let summary = read::summary(&run).map_err(Failure::failed)?;
        let verdict = read::verdict(&run).map_err(Failure::failed)?;
        let (Some(summary), Some(verdict)) = (summary, verdict) else {
            return Err(Failure::Failed(format!("{}: the twin has not ended", run.display())));
        };
        // 0 if it has ended or will end.
        let endless = |found: &Findings| if found.verdict.ends() { 0.0 } else { found.slope.unwrap_or_default() };
        let series = |name: &str| verdict.series.iter().find(|one| one.name == name).map(|one| endless(&one.findings));
        let growth = ["heap", FOOTPRINT, "device_in_use"].into_iter().filter_map(series).fold(0.0, f64::max);
        if off.is_empty() {
            self.control = Some((growth, summary.loss_last));
        }
        let (control, control_loss) = self.control.unwrap_or((growth, None));
        let twin = Twin {
            off: names,
            run: run_name::run(&run, &self.name),
            verdict: verdict.verdict,
            growth,
            removed: if control > 0.0 { 1.0 - growth / control } else { 0.0 },
            same_loss: summary.loss_last == control_loss,
        };
        self.twins.push(twin.clone());
        Ok(twin)
    }

    /// Runs a twin to its end; returns its directory.
    fn start(&self, off: &[Switch]) -> Result<PathBuf, Failure> {
        let mut command = child::command().map_err(Failure::failed)?;
        match self.is_command {
            true => command.arg("run").arg(self.run.join(layout::RESOLVED)),
            false => command.arg("fork").arg(&self.run),
        };
        command.args(["--name", &self.name, "--results"]).arg(&self.arguments.results.directory);
        let common = self.common();
        let overrides = common.iter().chain(off.iter().flat_map(|switch| &switch.off));
        command.args(overrides.flat_map(|text| as_arguments(text)));
        command.args(["-q", "--json", "--force", "--progress", "none"]);
        let output = command.stderr(Stdio::inherit()).output().map_err(Failure::failed)?;
        let answer: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| Failure::Failed(format!("{}: the twin printed no JSON", self.run.display())))?;
        let text = |key: &str| answer[key].as_str().unwrap_or_default();
        match output.status.success() {
            true => Ok(PathBuf::from(text("run"))),
            false => Err(Failure::Failed(format!("a twin failed: {}", text("message")))),
        }
    }
}

/// The switches whose names fulfil a condition.
fn named(switches: &[Switch], is: impl Fn(&str) -> bool) -> Vec<Switch> {
    switches.iter().filter(|switch| is(&switch.name)).cloned().collect()
}

fn newest_checkpoint(run: &Path) -> Result<u64, Failure> {
    match read::checkpoints(run).unwrap_or_default().last() {
        Some((step, _)) => Ok(*step),
        None => Err(Failure::Usage(format!("{}: the run has no checkpoint to start twins from", run.display()))),
    }
}

fn message(found: &[(String, f64)], ends: bool, switches: usize, all: &Twin) -> String {
    let names = |part: &str| {
        let named: Vec<String> =
            found.iter().map(|(name, removed)| format!("{name} ({}{part})", percent(*removed))).collect();
        named.join(" and ")
    };
    let functions = format!("the functions that allocate it are in {} of the control", layout::ALLOCATIONS);
    match found {
        [] if all.removed < REMOVED_MIN => format!(
            "none of the {switches} parts is the cause: without all of them {} of the growth is left; {functions}",
            percent(1.0 - all.removed)
        ),
        [] => "the growth is gone without all parts, and no part alone removes it".to_owned(),
        _ if ends => format!("memory grows because of {}", names(" of the growth")),
        _ => format!("memory grows less without {}, and goes on growing; {functions}", names(" less")),
    }
}

fn text(blamed: &Blamed, terminal_width: Option<usize>) -> String {
    let header = ["twin", "verdict", ">growth per step", ">removed", "loss", "without"];
    let rows: Vec<Vec<String>> = (1..)
        .zip(&blamed.twins)
        .map(|(number, twin): (usize, &Twin)| {
            let off = if twin.off.is_empty() { "nothing (control)".to_owned() } else { twin.off.join(", ") };
            let loss = if twin.same_loss { "same" } else { "differs" };
            let removed = if twin.off.is_empty() { "-".to_owned() } else { percent(twin.removed.max(0.0)) };
            let growth = bytes(twin.growth.max(0.0));
            vec![number.to_string(), twin.verdict.words().to_owned(), growth, removed, loss.to_owned(), off]
        })
        .collect();
    format!("{}\n\n{}", blamed.message, width::table(&header, &rows, terminal_width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_can_be_switched_off() {
        let values = BTreeMap::from([
            ("limits.workers".to_owned(), Value::from(2)),
            ("limits.frame_cache".to_owned(), Value::from("4 MiB")),
            ("leaks.frame_cache".to_owned(), Value::from(true)),
            ("leaks.gradients".to_owned(), Value::from(false)),
            ("validation.every_epochs".to_owned(), Value::from(1)),
            ("checkpoint.every_steps".to_owned(), Value::from(0)),
        ]);
        let names: Vec<String> =
            switches(&values, &["limits.frame_cache".to_owned()]).into_iter().map(|switch| switch.name).collect();
        assert_eq!(names, ["leaks.frame_cache", "limits.workers", "limits.frame_cache", "validation"]);
    }
}
