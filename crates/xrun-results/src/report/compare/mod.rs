//! Comparison of several runs: as text, as a record, and as a page with overlaid curves.
//!
//! Caps: [`RUNS_MAX`] runs, each with the curves and the trace of a report.

mod decision;
mod names;
mod page;
mod rows;
mod text;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};

use super::ReportError;
use super::result::MetricResult;
use super::table::distinct;
use super::{run_report, summary};
use crate::format::{Manifest, VERSION};
use crate::view::RunView;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::files::layout;

pub use page::html;
pub use rows::{LOSS, View};
pub use text::text;

/// Maximum number of runs: seven colours, each with its dashes, in two line widths.
pub const RUNS_MAX: usize = 14;

/// A key whose value is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyDifference {
    /// A dotted key such as `cleanup.every_steps`, or a name such as `machine: processor`.
    pub key: String,
    /// Value of each run; `None` if it has none.
    pub values: Vec<Option<Value>>,
}

/// One of the compared runs.
#[derive(Debug)]
pub struct ComparedRun {
    /// The run.
    pub view: RunView,
    /// Name by what differs from the other runs: `lr 0.005, epochs 3`.
    pub label: String,
    /// Number of its setting, from 1. Runs whose experiments differ in the seed only have the same one.
    pub setting: usize,
    /// SHA-256 of `metrics.jsonl`; runs with the same one are identical. `None` if the run has no metrics.
    pub metrics_digest: Option<String>,
    /// Its metrics.
    metrics: Vec<MetricResult>,
}

impl ComparedRun {
    fn metric(&self, name: &str) -> Option<&MetricResult> {
        self.metrics.iter().find(|metric| metric.planned.name == name)
    }
}

/// Compared runs, in the order of the command line.
#[derive(Debug)]
pub struct RunComparison {
    /// The runs.
    pub runs: Vec<ComparedRun>,
    /// Keys of the resolved experiments whose values differ; `command` for the command lines of watched commands.
    pub differences: Vec<KeyDifference>,
    /// Differences in code, data, machine and device.
    pub environment: Vec<KeyDifference>,
}

/// Reads the runs, in the order given.
pub fn gather(runs: &[PathBuf]) -> Result<RunComparison, ReportError> {
    let views: Vec<RunView> = runs.iter().map(|run| run_report::open(run)).collect::<Result<_, _>>()?;
    let experiments: Vec<BTreeMap<String, Value>> = views.iter().map(values).collect();
    let environment = views.iter().map(|view| view.manifest().map(self::environment).unwrap_or_default());
    let environment = differences(&environment.collect::<Vec<_>>());
    let differences = differences(&experiments);
    let names: Vec<&str> = views.iter().map(RunView::experiment_name).collect();
    let labels = names::labels(&names, &differences);
    let compared = |((view, label), setting): ((RunView, String), usize)| {
        let digest = || digest_of_file(&view.path.join(layout::METRICS)).ok();
        let metrics_digest = view.curves().last_step.and_then(|_| digest());
        ComparedRun { label, setting, metrics_digest, metrics: view.metrics(), view }
    };
    let settings = names::settings(&experiments);
    let runs = views.into_iter().zip(labels).zip(settings).map(compared).collect();
    Ok(RunComparison { runs, differences, environment })
}

impl RunComparison {
    /// Names of all metrics, in the order of the runs' reports.
    fn metrics(&self) -> Vec<&str> {
        distinct(self.runs.iter().flat_map(|run| &run.metrics).map(|metric| metric.planned.name.as_str()))
    }

    /// Names that [`View::metrics`] may have: all metrics, and the loss.
    pub fn names(&self) -> Vec<&str> {
        self.metrics().into_iter().chain([LOSS]).collect()
    }

    /// Document that `xrun compare --json` prints: each run as `xrun show --json` prints it, and what differs.
    pub fn json(&self) -> Result<Value, ReportError> {
        let run = |run: &ComparedRun| {
            let mut shown = summary::json(&run.view)?;
            shown["label"] = run.label.as_str().into();
            shown["setting"] = run.setting.into();
            shown["metrics_digest"] = json!(run.metrics_digest);
            Ok(shown)
        };
        let runs = self.runs.iter().map(run).collect::<Result<Vec<Value>, ReportError>>()?;
        Ok(json!({
            "version": VERSION, "runs": runs, "differences": self.differences, "environment": self.environment,
            "decision": self.decision(),
        }))
    }
}

/// Values of the experiment, or the command line of a watched command without one. A run without a readable experiment takes
/// part with no values.
fn values(report: &RunView) -> BTreeMap<String, Value> {
    let mut values = report.values().cloned().unwrap_or_default();
    // That of an experiment follows from its values, and names the run's own directory.
    if let Some(watched) = report.watched().filter(|_| values.is_empty()) {
        values.insert(names::COMMAND.to_owned(), Value::from(watched.command.clone()));
    }
    // A fork names the device that `auto` chose for its parent.
    if let (Some(device), Some(manifest)) = (values.get_mut("experiment.device"), report.manifest()) {
        *device = manifest.device.chosen.as_str().into();
    }
    values
}

/// Code, data, machine and device, by name.
fn environment(Manifest { code, host, device, data, .. }: &Manifest) -> BTreeMap<String, Value> {
    let all = crate::environment::environment(code, host, device, data);
    all.into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// Keys whose values are not equal in all maps.
fn differences(all: &[BTreeMap<String, Value>]) -> Vec<KeyDifference> {
    let keys: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let values = |key: &String| all.iter().map(|one| one.get(key).cloned()).collect::<Vec<_>>();
    keys.into_iter()
        .map(|key| KeyDifference { key: key.clone(), values: values(key) })
        .filter(|difference| difference.values.windows(2).any(|pair| pair[0] != pair[1]))
        .collect()
}
