//! Filtering and sorting of runs.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::resolved;
use super::verdict::{TrainingVerdictWord, VerdictWord};
use super::view::RunView;
use xrun_core::task::metric::Direction;

/// States of a run as command-line values: their labels, with dashes.
pub const STATES: [&str; 13] = [
    "running",
    "finished",
    "stopped-early",
    "interrupted",
    "time-limit",
    "memory-grew",
    "did-not-learn",
    "diverged",
    "memory-limit",
    "failed",
    "panicked",
    "killed",
    "unreadable",
];

/// Filter for runs; the default accepts all.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// State of the run, one of [`STATES`].
    pub status: Option<String>,
    /// Verdict on its memory.
    pub verdict: Option<VerdictWord>,
    /// Verdict on its training.
    pub training: Option<TrainingVerdictWord>,
    /// Tags, all of which the run must have.
    pub tags: Vec<String>,
    /// Dotted keys of the resolved experiment with their values as typed.
    pub values: Vec<(String, String)>,
}

impl RunFilter {
    /// Reason why the filter or order cannot be applied to this run: a damaged file.
    pub fn unreadable_reason(&self, run: &RunView, order: &SortKey) -> Option<String> {
        let by_value = !self.values.is_empty() || matches!(order, SortKey::Value(_));
        let values = by_value.then(|| run.values().err()).flatten();
        let verdict = self.verdict.and_then(|_| run.verdict_error());
        let error = [values, verdict].into_iter().flatten().find(|error| !error.is_missing())?;
        Some(error.to_string())
    }

    /// Returns `true` if a run passes the filter. Files of the run are read as needed.
    pub fn accepts(&self, run: &RunView) -> bool {
        let verdict = || run.verdict().map(|verdict| verdict.verdict);
        let training = || run.listed_training().map(|training| training.verdict);
        let value = |key: &str| run.values().ok()?.get(key);
        let values_fit =
            || self.values.iter().all(|(key, typed)| value(key).is_some_and(|value| resolved::matches(value, typed)));
        let tagged = || self.tags.iter().all(|tag| run.tags().contains(tag));
        // Conditions that read files come last.
        self.status.as_ref().is_none_or(|status| status.replace('-', " ") == run.state().label())
            && self.verdict.is_none_or(|asked| verdict() == Some(asked))
            && self.training.is_none_or(|asked| training() == Some(asked))
            && (self.tags.is_empty() || tagged())
            && (self.values.is_empty() || values_fit())
    }
}

/// Sort key for runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// One of [`SORT_KEYS`].
    Word(&'static str),
    /// A dotted key of the resolved experiment.
    Value(String),
    /// A metric of the last validation.
    Metric(String),
    /// A metric: its best value in runs whose best checkpoint it selects, its last in others.
    BestMetric(String),
}

/// Sort keys that are not keys of an experiment: the start time, the name, the state by its word, the number of steps, the loss
/// as listed, the best validation, peak RSS, the working time, and steps per second.
pub const SORT_KEYS: &[&str] = &[STARTED, "experiment", "state", "steps", "loss", "best", "memory", "seconds", "speed"];
/// Sort key of the order in which runs are found: the newest first.
pub const STARTED: &str = "started";
/// Prefix of the name of a metric.
const METRIC_PREFIX: &str = "metrics.";

impl SortKey {
    /// Parses a sort key; `None` for an unknown word. A text with a dot is a metric or a key of the experiment.
    pub fn parse(text: &str) -> Option<Self> {
        let word = SORT_KEYS.iter().find(|known| **known == text).map(|known| Self::Word(known));
        word.or_else(|| match text.strip_prefix(METRIC_PREFIX) {
            Some(name) => Some(Self::Metric(name.to_owned())),
            None => text.contains('.').then(|| Self::Value(text.to_owned())),
        })
    }

    fn value(&self, run: &RunView) -> Value {
        let summary = run.final_summary();
        let number = |value: Option<f64>| value.map_or(Value::Null, Value::from);
        match self {
            Self::Word("experiment") => run.experiment.clone().into(),
            Self::Word("state") => run.state().label().into(),
            Self::Word("steps") => run.steps().map_or(Value::Null, Value::from),
            Self::Word("loss") => number(run.loss().map(|(_, loss)| loss)),
            Self::Word("best") => number(run.best().map(|best| best.value)),
            Self::Word("memory") => run.rss_peak().map_or(Value::Null, Value::from),
            Self::Word("seconds") => number(summary.map(|summary| summary.seconds)),
            Self::Word("speed") => number(summary.and_then(|summary| summary.steps_per_second)),
            Self::Word(_) => run.started().map_or(Value::Null, Value::from),
            Self::Value(key) => run.values().ok().and_then(|values| values.get(key).cloned()).unwrap_or(Value::Null),
            Self::Metric(name) => number(summary.and_then(|summary| summary.metrics_last.get(name).copied().flatten())),
            Self::BestMetric(name) => number(metric_value(run, name)),
        }
    }

    /// Group of comparable values: name of the metric or kind of step; empty for all others.
    fn group(&self, run: &RunView) -> String {
        match self {
            Self::Word("loss") => run.loss().map_or_else(String::new, |(kind, _)| kind.to_owned()),
            Self::Word("best") => run.best().map_or_else(String::new, |best| best.metric.clone()),
            Self::Metric(name) | Self::BestMetric(name) => name.clone(),
            _ => String::new(),
        }
    }
}

/// Runs in ascending order, metrics by the best first; runs without a value come last, and equal runs are ordered
/// newest first, as is sorting by start. Values of different metrics, or losses of different kinds of steps, form
/// separate groups. `reverse` inverts the order, still with missing values last. `runs` is ordered newest first.
pub fn sorted(runs: impl Iterator<Item = RunView>, order: &SortKey, reverse: bool) -> impl Iterator<Item = RunView> {
    let is_metric = matches!(order, SortKey::Word("best") | SortKey::Metric(_) | SortKey::BestMetric(_));
    let mut directions = BTreeMap::new();
    let mut found = Vec::new();
    for run in runs {
        let (value, group) = (order.value(&run), order.group(&run));
        if is_metric && !group.is_empty() && !value.is_null() && !directions.contains_key(&group) {
            directions.extend(run.direction(&group).map(|direction| (group.clone(), direction)));
        }
        // Without the records: those of all runs need not fit into memory.
        found.push((SortValue { value, group, downwards: reverse }, (run.path, run.experiment, run.run)));
    }
    for (value, _) in &mut found {
        let down = *order == SortKey::Word(STARTED) || directions.get(&value.group) == Some(&Direction::Higher);
        value.downwards = reverse != down;
    }
    // The sort is stable.
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found.into_iter().map(|(_, (path, experiment, run))| RunView::new(path, experiment, run))
}

/// Best run by a metric, the newest of equals. A run counts with its best value if that metric selects its best
/// checkpoint, otherwise with its last. Without a name, the best run by each selecting metric. If no plan states
/// which direction is better, all runs with a value. `runs` is ordered newest first.
pub fn best<'a>(runs: &[&'a RunView], metric: Option<&str>) -> Vec<&'a RunView> {
    let chosen = runs.iter().filter_map(|run| run.best().map(|best| best.metric.as_str()));
    let names: BTreeSet<&str> = metric.map_or_else(|| chosen.collect(), |name| BTreeSet::from([name]));
    let mut found = Vec::new();
    for name in names {
        let mut with = runs.iter().filter_map(|run| Some((*run, metric_value(run, name)?)));
        let direction = with.clone().find_map(|(run, _)| run.direction(name));
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
fn metric_value(run: &RunView, name: &str) -> Option<f64> {
    let best = run.best().filter(|best| best.metric == name).map(|best| best.value);
    best.or_else(|| run.final_summary()?.metrics_last.get(name).copied().flatten())
}

/// Names of the metrics of runs, at most [`METRICS_MAX`].
pub fn metrics(runs: impl Iterator<Item = RunView>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for run in runs {
        let last = run.final_summary().into_iter().flat_map(|summary| summary.metrics_last.keys());
        let best = run.best().into_iter().map(|best| &best.metric);
        names.extend(last.chain(best).take(METRICS_MAX.saturating_sub(names.len())).cloned());
    }
    names
}

/// Maximum number of metrics of all runs.
const METRICS_MAX: usize = 1000;

struct SortValue {
    value: Value,
    group: String,
    downwards: bool,
}

impl SortValue {
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
