//! Comparison of several runs: as text, as a record, and as a page with overlaid curves.
//!
//! Caps: [`RUNS_MAX`] runs, each with the curves and the trace of a report.

mod components;
mod names;
mod page;
mod rows;
mod text;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use super::ReportError;
use super::run_report;
use crate::axis::Axis;
use crate::comparison::{ComparedMetric, ComparedRun, Comparison, KeyDifference, SeriesGrowth};
use crate::format::{Manifest, VERSION};
use crate::verdict::SeriesVerdict;
use crate::view::RunView;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::files::layout;

pub use components::components;
pub use page::html;
pub use rows::{LOSS, View};
pub use text::text;

/// Maximum number of runs: seven colours, each with its dashes, in two line widths.
pub const RUNS_MAX: usize = 14;

/// Series of a verdict that measure all memory of one kind.
const SERIES: &[&str] = &["heap", "rss", "device_in_use", "device_reserved"];

/// Compared runs and their curves.
#[derive(Debug)]
pub struct RunComparison {
    /// Document that `xrun compare --json` prints.
    pub record: Comparison,
    /// Names of metrics, in the order of the runs' reports.
    metrics: Vec<String>,
    runs: Vec<RunView>,
}

/// Reads the runs, in the order given.
pub fn gather(runs: &[PathBuf]) -> Result<RunComparison, ReportError> {
    let mut views = Vec::with_capacity(runs.len());
    let mut compared = Vec::with_capacity(runs.len());
    let mut experiments = Vec::with_capacity(runs.len());
    let mut environment = Vec::with_capacity(runs.len());
    let mut metrics: Vec<String> = Vec::new();
    for run in runs {
        let report = run_report::open(run)?;
        for metric in report.metrics() {
            if !metrics.contains(&metric.name) {
                metrics.push(metric.name);
            }
        }
        compared.push(compared_run(&report));
        // A run without a readable experiment takes part with no values.
        let mut values = values(&report);
        // A fork names the device that `auto` chose for its parent.
        if let (Some(device), Some(manifest)) = (values.get_mut("experiment.device"), report.manifest()) {
            *device = manifest.device.chosen.as_str().into();
        }
        experiments.push(values);
        environment.push(report.manifest().map(self::environment).unwrap_or_default());
        views.push(report);
    }
    let differences = differences(&experiments);
    let names: Vec<&str> = compared.iter().map(|run: &ComparedRun| run.experiment.as_str()).collect();
    let labels = names::labels(&names, &differences);
    let settings = names::settings(&experiments);
    for ((run, label), setting) in compared.iter_mut().zip(labels).zip(settings) {
        (run.label, run.setting) = (label, setting);
    }
    let record =
        Comparison { version: VERSION, runs: compared, differences, environment: self::differences(&environment) };
    Ok(RunComparison { record, metrics, runs: views })
}

impl RunComparison {
    /// Names that [`View::metrics`] may have: all metrics, and the loss.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        self.metrics.iter().map(String::as_str).chain([LOSS])
    }
}

/// Values of the experiment, or the command line of a watched command without one.
fn values(report: &RunView) -> BTreeMap<String, Value> {
    let mut values = report.values().cloned().unwrap_or_default();
    // That of an experiment follows from its values, and names the run's own directory.
    if let Some(watched) = report.watched().filter(|_| values.is_empty()) {
        values.insert(names::COMMAND.to_owned(), Value::from(watched.command.clone()));
    }
    values
}

fn compared_run(report: &RunView) -> ComparedRun {
    let ending = report.final_summary();
    let verdict = report.verdict();
    ComparedRun {
        experiment: report.experiment_name().to_owned(),
        run: report.run.clone(),
        path: report.path.display().to_string(),
        // Both need all runs.
        label: String::new(),
        setting: 0,
        metrics_digest: report.curves().last_step.and_then(|_| digest_of_file(&report.path.join(layout::METRICS)).ok()),
        watched: report.watched().is_some(),
        state: report.state().label().to_owned(),
        message: report.message(),
        started: report.manifest().map(|manifest| manifest.started.clone()),
        fingerprint: report.manifest().map(|manifest| manifest.fingerprint.clone()),
        steps: report.steps(),
        steps_planned: report.steps_planned(),
        seconds: report.seconds(),
        steps_per_second: ending.and_then(|summary| summary.steps_per_second),
        items_per_second: ending.and_then(|summary| summary.items_per_second),
        losses: report.losses(),
        metrics: metrics(report),
        best: ending.and_then(|summary| summary.best.clone()),
        training: report.training().map(|training| training.verdict),
        memory: report.memory().clone(),
        verdict: verdict.map(|verdict| verdict.verdict),
        growing_owner: verdict.and_then(|verdict| verdict.owner.clone()),
        growth: verdict.map_or(Vec::new(), |verdict| {
            verdict
                .series
                .iter()
                .filter(|one| SERIES.contains(&one.name.as_str()))
                .map(|one| growth(one, verdict.axis))
                .collect()
        }),
        damage: report.damage().to_vec(),
        line_damage: report.line_damage().cloned().collect(),
    }
}

fn growth(one: &SeriesVerdict, axis: Axis) -> SeriesGrowth {
    let findings = &one.findings;
    SeriesGrowth {
        series: one.name.clone(),
        verdict: findings.verdict,
        growth: findings.growth,
        axis,
        slope: findings.slope,
        slope_low: findings.slope_low,
        slope_high: findings.slope_high,
    }
}

fn metrics(report: &RunView) -> BTreeMap<String, ComparedMetric> {
    let range = |name: &str| {
        let series = report.curves().metrics.iter().find(|(known, _)| known == name);
        // Thinning keeps the lowest and the highest point.
        let trained = series.into_iter().flat_map(|(_, series)| series.points()).filter(|point| point.x > 0.0);
        trained.fold((None::<f64>, None::<f64>), |(low, high), point| {
            (Some(low.map_or(point.y, |low| low.min(point.y))), Some(high.map_or(point.y, |high| high.max(point.y))))
        })
    };
    (report.metrics().into_iter())
        .map(|metric| {
            let (lowest, highest) = range(&metric.name);
            let (direction, best) = (metric.direction, metric.best.map(|(value, _)| value));
            (metric.name, ComparedMetric { last: metric.after, lowest, highest, direction, best })
        })
        .collect()
}

/// Code, data, machine and device, by name.
fn environment(manifest: &Manifest) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            all.insert(name.to_owned(), Value::from(value));
        }
    };
    let code = &manifest.code;
    let changed = if code.built_with_changes == Some(true) { " with changes" } else { "" };
    add("code: version", Some(code.xrun.clone()));
    add("code: lock file", Some(code.lock_digest.clone()));
    add("code: sources", code.source_digest.clone());
    add("code: built from commit", code.built_commit.as_ref().map(|commit| format!("{commit}{changed}")));
    add("machine: name", Some(manifest.host.name.clone()));
    add("machine: processor", Some(manifest.host.processor.clone()));
    add("machine: cores", Some(manifest.host.cores.to_string()));
    add("machine: system", Some(manifest.host.system.clone()));
    add("device", Some(format!("{} {}", manifest.device.chosen, manifest.device.name)));
    add("device: driver", manifest.device.driver.clone());
    for (name, digest) in &manifest.data {
        add(&format!("data: {name}"), Some(digest.clone()));
    }
    all
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
