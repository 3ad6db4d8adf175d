//! Plan of a run: the experiment with every value known, and every buffer with its owner and cap.

pub mod calendar;
pub mod contract;
pub mod describe;
pub mod duration;
pub mod fit;
pub mod forecast;
pub mod shorten;

use shorten::MAX_STEPS;

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::graphs;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::bounded::planned::{MemoryKind, PlannedBuffer};
use xrun_core::experiment::Experiment;
use xrun_core::experiment::leaks::Leak;
use xrun_core::files::write;
use xrun_core::settings::rung::Rung;
use xrun_core::settings::sections::Limits;
use xrun_core::task::metric::PlannedMetric;
use xrun_core::task::{Metric, TaskFacts};
use xrun_core::units::pluralize;
use xrun_results::format::{Forecast, PlanFile, PlannedRung, VERSION};

/// Steps of a probe until the graphs of one kind of steps are recorded: a pass after four, the update after four more.
const PROBE_STEPS_CAPTURED: u64 = 12;
/// Maximum factor of them for several kinds: a probe has two minutes.
const PROBE_KINDS_MAX: u64 = 9;

/// Experiment together with the facts about its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Experiment, with every value known.
    pub experiment: Experiment,
    /// Facts that the pipeline found in the data.
    pub facts: TaskFacts,
    /// Optimiser steps in an epoch.
    pub steps_per_epoch: u64,
    /// Optimiser steps in all; 0 if unknown.
    pub steps: u64,
    /// Buffers of the run, sorted by name; the ledger has the same names.
    pub owners: Vec<PlannedBuffer>,
    /// Memory forecast, if a probe was made.
    pub forecast: Option<Forecast>,
}

/// Buffers that every run has, whatever its pipeline.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Lines of `metrics.jsonl` that are not written yet.
    pub metrics_lines: Buffer,
    /// Lines of `memory.jsonl` that are not written yet.
    pub memory_lines: Buffer,
    /// Lines of `log.txt` that are not written yet.
    pub log_lines: Buffer,
    /// Window of gradient norms.
    pub gradient_norms: Buffer,
}

impl Buffers {
    /// Declares the buffers with the caps of the limits.
    pub fn new(limits: &Limits) -> Self {
        let lines = |name, count, key: &'static str| {
            write::lines(name, count).key(key).because(format!("`{key}` lines, written when full"))
        };
        let norms = limits.gradient_norm_window as u64;
        let gradient_norms = Buffer::new("gradient_norms", Policy::Evict, Cap { items: norms, bytes: 8 * norms });
        Self {
            metrics_lines: lines("metrics_lines", limits.metrics_queue, "limits.metrics_queue"),
            memory_lines: lines("memory_lines", limits.metrics_queue, "limits.metrics_queue"),
            log_lines: lines("log_lines", limits.log_queue, "limits.log_queue"),
            gradient_norms: gradient_norms
                .key("limits.gradient_norm_window")
                .because("`limits.gradient_norm_window` numbers of 8 bytes"),
        }
    }

    fn all(&self) -> [&Buffer; 4] {
        [&self.metrics_lines, &self.memory_lines, &self.log_lines, &self.gradient_norms]
    }
}

/// Builds the plan of an experiment and the facts about its data.
pub fn resolve(experiment: Experiment, facts: TaskFacts) -> Plan {
    let (steps_per_epoch, steps) = experiment.training.steps(facts.batches_per_epoch);
    let mut facts = facts;
    let early = &experiment.training.early_stopping;
    // A direction that the file sets replaces that of the pipeline everywhere.
    if let (Some(name), Some(_)) = (early.named_metric(), early.mode) {
        facts.metrics.iter_mut().filter(|metric| metric.name == name).for_each(|metric| metric.direction = early.mode);
    }
    let steps = if facts.steps_are_known { steps } else { 0 };
    let mut owners = facts.owners.clone();
    if experiment.command().is_none() {
        owners.extend(Buffers::new(&experiment.limits).all().map(PlannedBuffer::from));
    }
    owners.sort_by(|a, b| a.name.cmp(&b.name));
    Plan { steps_per_epoch, steps, owners, forecast: None, experiment, facts }
}

impl Plan {
    /// Returns the plan for a device with a memory pool, where leaked tensors are on the device, and steps are captured.
    pub fn with_pool(mut self) -> Self {
        let on: Vec<&Leak> = self.experiment.active_leaks().filter(|leak| leak.holds_tensors).collect();
        let leaks_tensors = |name: &str| on.iter().any(|leak| leak.owner == name);
        for owner in self.owners.iter_mut().filter(|owner| leaks_tensors(&owner.name)) {
            owner.place = MemoryKind::Device;
        }
        if graphs::are_wanted(&self.experiment) && !self.facts.captures.is_empty() {
            let buffer = graphs::buffer(&self.experiment.limits, self.facts.captures);
            self.owners.push(PlannedBuffer { place: MemoryKind::Device, ..PlannedBuffer::from(&buffer) });
            self.owners.sort_by(|a, b| a.name.cmp(&b.name));
            // Those of one kind wait for those of the others, and only a fraction of the steps are of their kind.
            let captured = PROBE_STEPS_CAPTURED * self.facts.captured_kinds.pow(2).min(PROBE_KINDS_MAX);
            self.facts.probe_steps = self.facts.probe_steps.max(captured);
        }
        self
    }

    /// Returns whether steps and validations are captured.
    pub fn is_captured(&self) -> bool {
        self.owners.iter().any(|owner| owner.name == graphs::NAME)
    }

    /// Epoch (from 1) of step `step` (from 1); 0 for step 0.
    pub fn epoch_of(&self, step: u64) -> u64 {
        step.div_ceil(self.steps_per_epoch)
    }

    /// Number of epochs that the run enters; fewer than `training.epochs` if `training.max_steps` ends it earlier.
    pub fn epochs(&self) -> u64 {
        self.epoch_of(self.steps)
    }

    /// Text such as `490 steps, 10 epochs of 49 steps`, or `30 steps of 490 (training.max_steps), 49 steps per epoch`.
    pub fn steps_text(&self) -> String {
        if !self.facts.steps_are_known {
            return "decided by the command".into();
        }
        let epochs = pluralize(self.experiment.training.epochs, "epoch");
        let steps = pluralize(self.steps, "step");
        let all = self.steps_per_epoch.saturating_mul(self.experiment.training.epochs);
        match self.steps < all {
            true => {
                format!("{steps} of {all} ({MAX_STEPS}), {} per epoch", pluralize(self.steps_per_epoch, "step"))
            }
            false => format!("{steps}, {epochs} of {}", pluralize(self.steps_per_epoch, "step")),
        }
    }

    /// Validation metric that selects the best checkpoint: the one that the file names, or the first that has a direction.
    pub fn best_by(&self) -> Option<&Metric> {
        let metrics = &self.facts.metrics;
        let early = self.experiment.training.early_stopping.named_metric();
        match early.or(self.experiment.checkpoint.best.as_deref()) {
            Some(name) => metrics.iter().find(|metric| metric.name == name),
            None => metrics.iter().find(|metric| metric.direction.is_some()),
        }
    }

    /// Key that reduces the memory of a step.
    pub fn batch_key(&self) -> &'static str {
        match (self.facts.whole_batches, self.facts.batch_keys) {
            (true, [key, ..]) => key,
            _ => "limits.batch_size",
        }
    }

    /// What a rung of `limits.on_pressure` gives, as often as it can be taken.
    pub fn planned_rung(&self, rung: Rung) -> PlannedRung {
        let limits = &self.experiment.limits;
        let of = |rung: Rung| self.owners.iter().filter(move |owner| owner.rung == Some(rung));
        let batches = |count: u64| of(Rung::Prefetch).map(|owner| owner.bytes / owner.items.max(1) * count).sum();
        let workers = limits.workers.max(1) as u64;
        let step = || self.forecast.as_ref()?.rows.iter().find(|row| forecast::is_step_memory(&row.name));
        let items = (limits.batch_size as u64).min(self.facts.batch_items).max(1);
        let gives = match rung {
            Rung::Caches => Some(of(rung).map(PlannedBuffer::full).sum()),
            Rung::Prefetch => Some(batches(limits.batches_ahead() - workers.min(limits.batches_ahead()))),
            Rung::Workers => Some(batches(workers - 1)),
            Rung::MicroBatch => step().map(|row| row.bytes - row.bytes / items),
            Rung::ActivationCheckpointing | Rung::Park => None,
        };
        let durations = self.forecast.as_ref().and_then(|forecast| forecast.probe_durations.as_ref());
        let duration = durations.and_then(|durations| durations.rungs.get(&rung).copied());
        PlannedRung { rung, gives, bits: rung.bits(), duration }
    }

    /// Builds the record `plan.json`. `parameters` is the number of parameters of the model.
    pub fn to_file(&self, parameters: u64) -> PlanFile {
        let planned = self.facts.metrics.iter().map(PlannedMetric::from);
        let best_by = self.best_by().map(|metric| metric.name.to_owned());
        let declared = self.facts.declared_metrics.iter().find(|metric| metric.direction.is_some());
        PlanFile {
            version: VERSION,
            epochs: self.experiment.training.epochs,
            steps_per_epoch: self.steps_per_epoch,
            steps: self.steps,
            validations: calendar::validations(self),
            parameters,
            trained_parameters: self.facts.trained_parameters,
            owners: self.owners.clone(),
            metrics: planned.chain(self.facts.declared_metrics.iter().cloned()).collect(),
            best_by: best_by.or_else(|| declared.map(|metric| metric.name.clone())),
            images: self.facts.images.to_owned(),
            stages: self.facts.stages.iter().map(|name| (*name).to_owned()).collect(),
            forecast: self.forecast.clone(),
            lowered: self.facts.lowered.clone(),
            rungs: self.experiment.limits.on_pressure.iter().map(|rung| self.planned_rung(*rung)).collect(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Plan of an experiment with the pipeline `dummy`.
    pub fn plan_of(text: &str) -> Plan {
        let experiment: Experiment = toml::from_str(text).unwrap();
        let (facts, _) = experiment.prepare(&xrun_core::bounded::ledger::Ledger::default()).unwrap();
        resolve(experiment, facts)
    }

    #[test]
    fn accumulation_reduces_the_steps_of_an_epoch() {
        let plan =
            plan_of("[pipeline.dummy]\nsteps_per_epoch = 10\n[training]\nepochs = 2\ngradient_accumulation = 4\n");
        assert_eq!((plan.steps_per_epoch, plan.steps), (3, 6));
        insta::assert_snapshot!(plan.steps_text(), @"6 steps, 2 epochs of 3 steps");
        let short = plan_of("[pipeline.dummy]\n[training]\nepochs = 9\nmax_steps = 30\n");
        insta::assert_snapshot!(short.steps_text(), @"30 steps of 90 (training.max_steps), 10 steps per epoch");
        assert_eq!((plan.epochs(), short.epochs()), (2, 3));
        assert_eq!([0, 1, 3, 4, 6].map(|step| plan.epoch_of(step)), [0, 1, 1, 2, 2]);
    }

    #[test]
    fn a_constant_metric_does_not_select_the_best_checkpoint() {
        let mut plan = plan_of("[pipeline.dummy]\n");
        plan.facts.metrics = vec![Metric::constant("chance", "%"), Metric::lower("rmse", "")];
        assert_eq!(plan.best_by().map(|metric| metric.name), Some("rmse"));
        let written = serde_json::to_value(plan.to_file(1)).unwrap();
        assert_eq!(
            (&written["metrics"][0]["direction"], &written["best_by"]),
            (&serde_json::Value::Null, &"rmse".into())
        );
    }

    #[test]
    fn captured_steps_are_planned_on_a_device_with_a_pool() {
        let graphs = |settings: &str, captures| {
            let mut plan = plan_of(&format!("[pipeline.dummy]\n{settings}"));
            (plan.facts.captures, plan.facts.captured_kinds) = (captures, 2);
            let plan = plan.with_pool();
            let owner = plan.owners.iter().find(|owner| owner.name == "graphs");
            owner.map(|owner| (owner.place, owner.bytes, plan.facts.probe_steps))
        };
        let limited = graphs("[limits]\ndevice_memory = \"1 GiB\"\n", "the update");
        assert_eq!(limited, Some((MemoryKind::Device, 1 << 30, 4 * PROBE_STEPS_CAPTURED)));
        assert_eq!((graphs("[device]\ngraphs = \"off\"\n", "the update"), graphs("", "")), (None, None));
    }

    #[test]
    fn a_ladder_is_planned_with_what_each_rung_gives() {
        let plan = plan_of(
            "[pipeline.dummy]\ncache_per_step = \"1 MiB\"\n[limits]\nframe_cache = \"8 MiB\"\n\
             on_pressure = [\"caches\", \"micro_batch\", \"park\"]\n",
        );
        let rungs = plan.to_file(1).rungs;
        let gives: Vec<_> = rungs.iter().map(|rung| (rung.rung.name(), rung.gives, rung.bits.words())).collect();
        let expected =
            [("caches", Some(8 << 20), "same bits"), ("micro_batch", None, "rounding"), ("park", None, "same bits")];
        assert_eq!(gives, expected);
    }

    #[test]
    fn every_run_has_line_buffers_and_gradient_norms() {
        let plan = plan_of("[pipeline.dummy]\n");
        let keys: Vec<(&str, Option<&str>)> =
            plan.owners.iter().map(|owner| (owner.name.as_str(), owner.key.as_deref())).collect();
        let expected = [
            ("gradient_norms", Some("limits.gradient_norm_window")),
            ("log_lines", Some("limits.log_queue")),
            ("memory_lines", Some("limits.metrics_queue")),
            ("metrics_lines", Some("limits.metrics_queue")),
        ];
        assert_eq!(keys, expected);
    }
}
