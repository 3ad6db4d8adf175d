//! Decision between two settings, for programs that search.

use serde_json::{Value, json};

use super::RunComparison;
use crate::noise::{Change, Noise};
use xrun_core::task::metric::Direction;

/// Largest number of runs of a setting that is proposed.
const RUNS_OF_A_SETTING_MAX: usize = 100;
/// Smallest number of runs of a setting of which the noise says something.
const RUNS_OF_A_SETTING_MIN: usize = 3;

impl RunComparison {
    /// Decision on the second setting against the first, `keep`, `discard` or `undecided`, by the metric that selects the best
    /// checkpoint: its relative change with a 95 % interval, the noise of repeats, and the number of further runs of each setting
    /// after which such a change would be beyond noise (`null` if they are too many). `None` unless there are two settings and a
    /// metric with a better direction.
    pub fn decision(&self) -> Option<Value> {
        let metric = self.runs.iter().find_map(|run| Some(run.view.best()?.metric.clone()))?;
        let direction = self.runs.iter().find_map(|run| run.view.direction(&metric))?;
        if self.runs.iter().map(|run| run.setting).max() != Some(2) {
            return None;
        }
        let values = |setting: usize| {
            let runs = self.runs.iter().filter(|run| run.setting == setting);
            runs.filter_map(|run| run.view.best().filter(|best| best.metric == metric))
                .map(|best| best.value)
                .collect::<Vec<f64>>()
        };
        let (first, second) = (values(1), values(2));
        let noise = Noise::of(&[first.clone(), second.clone()]);
        let change = Change::of(&second, &first, noise);
        let is_better = |change: &Change| (change.change > 0.0) == (direction == Direction::Higher);
        let decision = match &change {
            Some(change) if change.within_noise == Some(false) && is_better(change) => "keep",
            Some(change) if change.within_noise == Some(false) => "discard",
            _ => "undecided",
        };
        let has = first.len().min(second.len());
        let needed = match (noise, change) {
            (None, _) => Some(RUNS_OF_A_SETTING_MIN),
            (Some(noise), Some(change)) => {
                let difference = change.change.ln_1p().abs();
                let of_runs = |runs: usize| Noise { degrees_of_freedom: 2 * (runs - 1), ..noise };
                let shows = |runs: &usize| of_runs(*runs).half_width([*runs; 2]) < difference;
                (RUNS_OF_A_SETTING_MIN.max(has + 1)..=RUNS_OF_A_SETTING_MAX).find(shows)
            }
            (Some(_), None) => None,
        };
        let more_runs = needed.filter(|_| decision == "undecided").map(|needed| needed.saturating_sub(has));
        Some(json!({
            "decision": decision, "metric": metric, "change": change, "noise": noise, "more_runs": more_runs,
        }))
    }
}
