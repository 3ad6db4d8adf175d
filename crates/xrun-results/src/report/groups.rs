//! Output of `xrun ls --group`: runs that differ only in their seed, with mean and standard deviation.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::formatting::number;
use super::width::columns_within;
use crate::index::RunState;
use crate::resolved;
use crate::verdict::{TrainingVerdictWord, VerdictWord};
use crate::view::RunView;
use xrun_core::printable;
use xrun_core::units::Bytes;

/// Key of the seed, in which the runs of a group may differ.
const SEED: &str = "experiment.seed";
/// Maximum number of settings shown of a group.
const SETTINGS_MAX: usize = 3;
/// Maximum number of characters of a setting.
const SETTING_CHARACTERS_MAX: usize = 40;

/// Mean and sample standard deviation of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation (n - 1); `None` for a single value.
    pub deviation: Option<f64>,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// Mean and deviation; `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        Some(Self { mean, deviation, count })
    }

    fn text(self, format: impl Fn(f64) -> String) -> String {
        match self.deviation {
            Some(deviation) => format!("{} ± {}", format(self.mean), format(deviation)),
            None => format(self.mean),
        }
    }
}

/// Runs of one experiment with the same settings but for the seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Name of the experiment.
    pub experiment: String,
    /// Settings in which the groups of the experiment differ.
    pub settings: BTreeMap<String, Value>,
    /// Names of the runs, newest first.
    pub runs: Vec<String>,
    /// Seeds of the runs, sorted.
    pub seeds: BTreeSet<u64>,
    /// Metric that selects the best checkpoint.
    pub metric: Option<String>,
    /// Best value of that metric.
    pub best: Option<Spread>,
    /// Loss of the kind with the most steps.
    pub loss: Option<Spread>,
    /// Peak RSS in bytes.
    pub rss_peak: Option<Spread>,
    /// Worst verdict on memory.
    pub verdict: Option<VerdictWord>,
    /// Worst verdict on training.
    pub training: Option<TrainingVerdictWord>,
}

/// Settings, runs and seeds of a group.
type Members<'a> = (BTreeMap<String, Value>, Vec<&'a RunView>, BTreeSet<u64>);

/// Groups of the runs that have ended, in the order of their newest run. Keys of `ignored` do not separate groups. Runs whose
/// experiment cannot be read are left out.
pub fn groups(runs: &[RunView], ignored: &[&str]) -> Vec<Group> {
    let mut found: Vec<Members<'_>> = Vec::new();
    for run in runs.iter().filter(|run| matches!(run.state(), RunState::Ended(_))) {
        let Ok(mut values) = run.values().cloned() else { continue };
        let seed = values.remove(SEED).and_then(|seed| seed.as_u64());
        values.retain(|key, _| !ignored.contains(&key.as_str()));
        let same = found.iter_mut().find(|(known, members, _)| {
            members.first().is_some_and(|first| first.experiment == run.experiment) && *known == values
        });
        match same {
            Some((_, members, seeds)) => {
                members.push(run);
                seeds.extend(seed);
            }
            None => found.push((values, vec![run], seed.into_iter().collect())),
        }
    }
    let settings: Vec<BTreeMap<String, Value>> = (0..found.len()).map(|at| differences(&found, at)).collect();
    found.into_iter().zip(settings).map(|((_, runs, seeds), settings)| group(&runs, seeds, settings)).collect()
}

/// Settings of a group that another group of its experiment has not, or with another value.
fn differences(all: &[Members<'_>], at: usize) -> BTreeMap<String, Value> {
    let experiment = |(_, runs, _): &Members<'_>| runs.first().map(|run| run.experiment.clone());
    let (values, ..) = &all[at];
    let others: Vec<_> = all.iter().filter(|other| experiment(other) == experiment(&all[at])).collect();
    let differs = |(key, value): &(&String, &Value)| others.iter().any(|(other, ..)| other.get(*key) != Some(*value));
    values.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn group(runs: &[&RunView], seeds: BTreeSet<u64>, settings: BTreeMap<String, Value>) -> Group {
    let metric = runs.iter().find_map(|run| run.best()).map(|best| best.metric.clone());
    let spread = |value: &dyn Fn(&RunView) -> Option<f64>| {
        Spread::of(&runs.iter().filter_map(|run| value(run)).collect::<Vec<f64>>())
    };
    let trainings = runs.iter().filter_map(|run| run.listed_training());
    let verdicts = runs.iter().filter_map(|run| run.verdict());
    Group {
        experiment: runs.first().map_or_else(String::new, |run| run.experiment.clone()),
        runs: runs.iter().map(|run| run.run.clone()).collect(),
        seeds,
        settings,
        best: spread(&|run| run.best().filter(|best| Some(&best.metric) == metric.as_ref()).map(|best| best.value)),
        loss: spread(&|run| run.loss().map(|(_, loss)| loss)),
        rss_peak: spread(&|run| run.rss_peak().map(|bytes| bytes as f64)),
        verdict: verdicts.map(|verdict| verdict.verdict).max(),
        training: trainings.map(|training| training.verdict).max(),
        metric,
    }
}

/// Table with one line per group. In a terminal narrower than that, `width`, the least important columns are left out. Ends
/// with a line break.
pub fn text(groups: &[Group], width: Option<usize>) -> String {
    let row = |group: &Group| {
        let setting = |(key, value): (&String, &Value)| {
            let key = key.rsplit('.').next().unwrap_or(key);
            printable::line(&format!("{key}={}", resolved::format_value(value)), SETTING_CHARACTERS_MAX)
        };
        let shown = group.settings.iter().take(SETTINGS_MAX).map(setting).collect::<Vec<_>>().join(", ");
        let more = group.settings.len().saturating_sub(SETTINGS_MAX);
        let settings = if more > 0 { format!("{shown} and {more} more") } else { shown };
        let spread = |spread: Option<Spread>, format: &dyn Fn(f64) -> String| {
            spread.map_or("-".into(), |spread| spread.text(format))
        };
        let metric =
            group.metric.as_deref().map_or(String::new(), |metric| format!("{} ", printable::line(metric, 14)));
        vec![
            printable::line(&group.experiment, 20),
            settings,
            group.runs.len().to_string(),
            group.seeds.len().to_string(),
            format!("{metric}{}", spread(group.best, &number)),
            spread(group.loss, &number),
            spread(group.rss_peak, &|bytes| Bytes(bytes as u64).to_string()),
            group.verdict.map_or("-".into(), |verdict| verdict.words().to_owned()),
            group.training.map_or("-".into(), |training| training.words().to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = groups.iter().map(row).collect();
    let header = ["experiment", "settings", ">runs", ">seeds", "best", "loss", "memory", "worst verdict", "training"];
    columns_within(&header, &rows, width, &["loss", "memory", "seeds", "worst verdict", "training"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        // python3 -c 'import statistics; print(statistics.stdev([0.5, 0.52, 0.57]))'
        let spread = Spread::of(&[0.5, 0.52, 0.57]).unwrap();
        assert!(
            (spread.mean - 0.53).abs() < 1e-12 && (spread.deviation.unwrap() - 0.036_055_512_754_639_9).abs() < 1e-12
        );
        assert_eq!(Spread::of(&[2.0]), Some(Spread { mean: 2.0, deviation: None, count: 1 }));
        assert_eq!(Spread::of(&[]), None);
    }
}
