//! Filtering and sorting of runs.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::ValueEnum;
use serde_json::Value;

use super::format::Outcome;
use super::index::{RunEntry, RunState};
use super::verdict::VerdictWord;
use super::{read, resolved};
use xrun_core::task::metric::Direction;

/// State of a run as a command-line value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StateFilter {
    /// A process works on the run.
    Running,
    /// All planned steps were done.
    Finished,
    /// Validations stopped improving, as `training.early_stopping` defines.
    StoppedEarly,
    /// A signal stopped it.
    Interrupted,
    /// `training.time_limit` was reached.
    TimeLimit,
    /// The verdict on memory is one that `memory.fail_on` names.
    MemoryGrew,
    /// The loss was not a number.
    Diverged,
    /// A memory limit was reached.
    MemoryLimit,
    /// An error of the data, the device or the disk.
    Failed,
    /// A panic.
    Panicked,
    /// Its process is gone and left no summary.
    Killed,
    /// Its records are missing or damaged.
    Unreadable,
}

impl StateFilter {
    fn from_state(state: &RunState) -> Self {
        match state {
            RunState::Running => Self::Running,
            RunState::Killed => Self::Killed,
            RunState::Unreadable(_) => Self::Unreadable,
            RunState::Ended(outcome) => match outcome {
                Outcome::Finished => Self::Finished,
                Outcome::StoppedEarly => Self::StoppedEarly,
                Outcome::Interrupted => Self::Interrupted,
                Outcome::TimeLimit => Self::TimeLimit,
                Outcome::MemoryGrew => Self::MemoryGrew,
                Outcome::Diverged => Self::Diverged,
                Outcome::MemoryLimit => Self::MemoryLimit,
                Outcome::Failed => Self::Failed,
                Outcome::Panicked => Self::Panicked,
            },
        }
    }
}

/// Filter for runs; the default accepts all.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Exact name of the experiment.
    pub experiment: Option<String>,
    /// State of the run.
    pub status: Option<StateFilter>,
    /// Verdict on its memory.
    pub verdict: Option<VerdictWord>,
    /// Tags, all of which the run must have.
    pub tags: Vec<String>,
    /// Dotted keys of the resolved experiment with their values as typed.
    pub values: Vec<(String, String)>,
}

impl RunFilter {
    /// Reason why the filter or order cannot be applied to this run: a damaged file.
    pub fn unreadable_reason(&self, run: &RunEntry, order: &SortKey) -> Option<String> {
        let by_value = !self.values.is_empty() || matches!(order, SortKey::Value(_));
        let values = by_value.then(|| resolved::read_text(&run.path).err()).flatten();
        let verdict = self.verdict.and_then(|_| read::verdict(&run.path).err());
        let error = [values, verdict].into_iter().flatten().find(|error| !error.is_missing())?;
        Some(error.to_string())
    }

    /// Returns `true` if a run passes the filter. Files of the run are read as needed.
    pub fn accepts(&self, run: &RunEntry) -> bool {
        let verdict = || read::verdict(&run.path).ok().flatten().map(|verdict| verdict.verdict);
        let values_fit = || {
            let found = resolved::values(&run.path).unwrap_or_default();
            self.values.iter().all(|(key, typed)| found.get(key).is_some_and(|value| resolved::matches(value, typed)))
        };
        let tagged = || {
            let found = read::notes(&run.path).unwrap_or_default().tags;
            self.tags.iter().all(|tag| found.contains(tag))
        };
        // Conditions that read files come last.
        self.experiment.as_ref().is_none_or(|name| *name == run.experiment)
            && self.status.is_none_or(|status| status == StateFilter::from_state(&run.state))
            && self.verdict.is_none_or(|asked| verdict() == Some(asked))
            && (self.tags.is_empty() || tagged())
            && (self.values.is_empty() || values_fit())
    }
}

/// Sort key for runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// Start time.
    Started,
    /// The experiment's name.
    Experiment,
    /// State, by its word.
    State,
    /// Number of steps done.
    Steps,
    /// Loss as listed.
    Loss,
    /// The best validation.
    Best,
    /// Peak RSS.
    Memory,
    /// Working time.
    Seconds,
    /// Steps per second.
    Speed,
    /// A dotted key of the resolved experiment.
    Value(String),
    /// A metric of the last validation.
    Metric(String),
    /// A metric: its best value in runs whose best checkpoint it selects, its last in others.
    BestMetric(String),
}

/// Sort keys that are not keys of an experiment.
pub const SORT_KEYS: &[&str] =
    &["started", "experiment", "state", "steps", "loss", "best", "memory", "seconds", "speed"];
/// Prefix of the name of a metric.
const METRIC_PREFIX: &str = "metrics.";

impl SortKey {
    /// Parses a sort key; `None` for an unknown word. A text with a dot is a metric or a key of the experiment.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "started" => Self::Started,
            "experiment" => Self::Experiment,
            "state" => Self::State,
            "steps" => Self::Steps,
            "loss" => Self::Loss,
            "best" => Self::Best,
            "memory" => Self::Memory,
            "seconds" => Self::Seconds,
            "speed" => Self::Speed,
            other => match other.strip_prefix(METRIC_PREFIX) {
                Some(name) => Self::Metric(name.to_owned()),
                None if other.contains('.') => Self::Value(other.to_owned()),
                None => return None,
            },
        })
    }

    fn value(&self, run: &RunEntry) -> Value {
        let summary = run.summary.as_ref();
        let number = |value: Option<f64>| value.map_or(Value::Null, Value::from);
        match self {
            Self::Started => run.started.clone().map_or(Value::Null, Value::from),
            Self::Experiment => run.experiment.clone().into(),
            Self::State => run.state.label().into(),
            Self::Steps => run.last_step.map_or(Value::Null, Value::from),
            Self::Loss => number(run.loss.as_ref().map(|(_, loss)| *loss)),
            Self::Best => number(run.best.as_ref().map(|best| best.value)),
            Self::Memory => run.rss_peak.map_or(Value::Null, Value::from),
            Self::Seconds => number(summary.map(|summary| summary.seconds)),
            Self::Speed => number(summary.and_then(|summary| summary.steps_per_second)),
            Self::Value(key) => resolved::values(&run.path).unwrap_or_default().remove(key).unwrap_or(Value::Null),
            Self::Metric(name) => number(summary.and_then(|summary| summary.metrics_last.get(name).copied().flatten())),
            Self::BestMetric(name) => number(metric_value(run, name)),
        }
    }

    /// Group of comparable values: name of the metric or kind of step; empty for all others.
    fn group(&self, run: &RunEntry) -> String {
        match self {
            Self::Loss => run.loss.as_ref().map_or_else(String::new, |(kind, _)| kind.clone()),
            Self::Best => run.best.as_ref().map_or_else(String::new, |best| best.metric.clone()),
            Self::Metric(name) | Self::BestMetric(name) => name.clone(),
            _ => String::new(),
        }
    }
}

/// Sorts in ascending order, metrics by the best first; runs without a value come last, and equal runs are ordered
/// newest first, as is sorting by start. Values of different metrics, or losses of different kinds of steps, form
/// separate groups. `reverse` inverts the order, still with missing values last.
pub fn sort(runs: &mut [RunEntry], order: &SortKey, reverse: bool) {
    let is_metric = matches!(order, SortKey::Best | SortKey::Metric(_) | SortKey::BestMetric(_));
    let directions = if is_metric { directions(runs, order) } else { BTreeMap::new() };
    // `runs` is ordered newest first, and the sort is stable.
    runs.sort_by_cached_key(|run| {
        let group = order.group(run);
        let down = *order == SortKey::Started || directions.get(&group) == Some(&Direction::Higher);
        SortValue { value: order.value(run), group, downwards: reverse != down }
    });
}

/// Better direction of each metric that a run has a value of, from the plan of any of them.
fn directions(runs: &[RunEntry], order: &SortKey) -> BTreeMap<String, Direction> {
    let mut found = BTreeMap::new();
    for run in runs {
        let name = order.group(run);
        if name.is_empty() || found.contains_key(&name) || order.value(run).is_null() {
            continue;
        }
        found.extend(direction(run, &name).map(|direction| (name, direction)));
    }
    found
}

/// Best run by a metric, the newest of equals. A run counts with its best value if that metric selects its best
/// checkpoint, otherwise with its last. Without a name, the best run by each selecting metric. If no plan states
/// which direction is better, all runs with a value. `runs` is ordered newest first.
pub fn best<'a>(runs: &[&'a RunEntry], metric: Option<&str>) -> Vec<&'a RunEntry> {
    let chosen = runs.iter().filter_map(|run| run.best.as_ref().map(|best| best.metric.as_str()));
    let names: BTreeSet<&str> = metric.map_or_else(|| chosen.collect(), |name| BTreeSet::from([name]));
    let mut found = Vec::new();
    for name in names {
        let mut with = runs.iter().filter_map(|run| Some((*run, metric_value(run, name)?)));
        let direction = with.clone().find_map(|(run, _)| direction(run, name));
        match direction {
            Some(direction) => {
                found.extend(with.reduce(|a, b| if direction.prefers(b.1, a.1) { b } else { a }).map(|(run, _)| run));
            }
            None => found.extend(with.by_ref().map(|(run, _)| run)),
        }
    }
    found
}

/// Best value of a metric that selects a run's best checkpoint; the last value of another metric.
fn metric_value(run: &RunEntry, name: &str) -> Option<f64> {
    let best = run.best.as_ref().filter(|best| best.metric == name).map(|best| best.value);
    best.or_else(|| run.summary.as_ref()?.metrics_last.get(name).copied().flatten())
}

/// Names of the metrics of runs, at most [`METRICS_MAX`].
pub fn metrics(runs: impl Iterator<Item = RunEntry>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for run in runs {
        let last = run.summary.iter().flat_map(|summary| summary.metrics_last.keys());
        let best = run.best.iter().map(|best| &best.metric);
        names.extend(last.chain(best).take(METRICS_MAX.saturating_sub(names.len())).cloned());
    }
    names
}

/// Maximum number of metrics of all runs.
const METRICS_MAX: usize = 1000;

/// Better direction of a metric, from the plan of a run.
fn direction(run: &RunEntry, name: &str) -> Option<Direction> {
    metric_direction(&run.path, name)
}

/// Better direction of a metric, from the plan of a run.
pub fn metric_direction(run: &Path, name: &str) -> Option<Direction> {
    read::plan(run).ok()?.metrics.into_iter().find(|metric| metric.name == name)?.direction
}

#[derive(PartialEq)]
struct SortValue {
    value: Value,
    group: String,
    downwards: bool,
}

impl Eq for SortValue {}

impl PartialOrd for SortValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortValue {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Null => 2,
            Value::Number(_) => 0,
            _ => 1,
        };
        let (a, b) = (&self.value, &other.value);
        let within = match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => resolved::format_value(a).cmp(&resolved::format_value(b)),
        };
        let group = rank(a).cmp(&rank(b)).then_with(|| self.group.cmp(&other.group));
        group.then(if self.downwards { within.reverse() } else { within })
    }
}
