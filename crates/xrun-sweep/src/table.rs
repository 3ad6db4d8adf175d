//! The table of a sweep, a row for each trial, from the run directories: `table.csv`, `table.json`, `report.html`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::journal::Histories;
use super::measure::{Queued, measure};
use super::pareto::{SpeedAndMemory, pareto_front};
use super::trials::{RunId, masked};
use crate::records::search::Search;
use crate::records::sweep::{Measured, Measurements, Row, SweepRecord, Table};
use xrun_core::experiment::read_sweep::shown;
use xrun_core::task::metric::Direction;
use xrun_results::format::VERSION;
use xrun_results::loss;
use xrun_results::noise::{Change, Noise, Repeats, Spread};
use xrun_results::verdict::{TrainingVerdictWord, VerdictWord};

/// Measurements of a machine that are compared with the reference.
pub const MEASURED: [&str; 4] = ["steps_per_second", "heap_peak", "rss_peak", "device_reserved_peak"];
/// All numbers that are compared with the reference.
pub const COMPARED: [&str; 5] = ["metric", "steps_per_second", "heap_peak", "rss_peak", "device_reserved_peak"];

/// Key whose value 0 is the reference.
pub const CLEANUP: &str = "cleanup.every_steps";

/// Name of each Pareto front, and the memory that is compared with speed.
pub const FRONTS: [(&str, &str); 3] = [("heap", "heap_peak"), ("rss", "rss_peak"), ("device", "device_reserved_peak")];

impl Table {
    /// Returns whether the trials were searched for the best metric; they are then not compared by speed and memory.
    pub fn is_search(&self) -> bool {
        ["asha", "tpe"].contains(&self.method.as_str())
    }

    /// Returns whether the metric of a trial is that of the best one.
    pub fn is_best(&self, row: &Row) -> bool {
        let median = |row: &Row| row.metric.map(|spread| spread.median);
        let best = self.rows.iter().find(|row| Some(row.trial) == self.best);
        best.is_some_and(|best| row.finished > 0 && best.rung == row.rung && median(best) == median(row))
    }

    /// Trials in the order in which they are shown: those of a search with the best metric at the highest rung first.
    pub fn shown_rows(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        if let Some(direction) = self.direction.filter(|_| self.is_search()) {
            let cost = |row: &Row| match (row.metric.map(|spread| spread.median), direction) {
                (Some(value), Direction::Lower) => value,
                (Some(value), Direction::Higher) => -value,
                (None, _) => f64::INFINITY,
            };
            let rung = |row: &Row| std::cmp::Reverse(row.rung);
            rows.sort_by(|a, b| rung(a).cmp(&rung(b)).then(cost(a).total_cmp(&cost(b))));
        }
        rows
    }
}

impl Row {
    /// The spreads of `table.csv` by their names.
    fn spreads(&self) -> impl Iterator<Item = (&'static str, Option<Spread>)> {
        let measurements = self.measurements.list(|size| size, |number| number);
        measurements.into_iter().chain([("metric", self.metric), ("loss", self.loss)])
    }

    fn spread(&self, name: &str) -> Option<Spread> {
        self.spreads().find(|(known, _)| *known == name)?.1
    }

    /// Measurements of its finished runs by their repeats.
    pub fn repeats(&self, name: &str, metric: Option<&String>) -> Repeats {
        let measured = |run: &Measured| match name {
            "metric" => run.metrics.get(metric?).copied().flatten(),
            _ => {
                let all = run.measurements.list(|size| size as f64, |number| number);
                all.into_iter().find(|(known, _)| *known == name)?.1
            }
        };
        let is_memory = !["metric", "steps_per_second"].contains(&name);
        let comparable = |run: &&Measured| run.finished && !(is_memory && run.interrupted);
        self.runs.iter().filter(comparable).filter_map(|run| Some((run.repeat, measured(run)?))).collect()
    }

    /// Returns whether all of its finished runs were judged no better than chance, or than the untrained model.
    pub fn has_learnt_nothing(&self) -> bool {
        let mut finished = self.runs.iter().filter(|run| run.finished).peekable();
        let nothing = [TrainingVerdictWord::NoBetterThanChance, TrainingVerdictWord::NoProgress];
        finished.peek().is_some() && finished.all(|run| run.training.is_some_and(|word| nothing.contains(&word)))
    }

    /// Speed and memory of a trial that finished.
    pub fn speed_and_memory(&self, memory: &str) -> Option<(f64, f64)> {
        let finished = self.finished > 0;
        Some((self.measurements.steps_per_second?.median, self.spread(memory)?.median)).filter(|_| finished)
    }
}

/// Measures all runs of a sweep. `queued` has the runs in the queue of a cluster.
pub fn table(sweep: &Path, record: &SweepRecord, histories: &mut Histories, queued: &BTreeMap<RunId, Queued>) -> Table {
    let rungs = record.search.as_ref().map_or(&[][..], Search::rungs);
    let mut run =
        |run| histories.measured(run, |process| measure(sweep, run, process, queued.get(&run).copied(), rungs));
    let mut trial = |trial| (1..=record.repeats).map(|repeat| run(RunId { trial, repeat })).collect();
    let trials = (1..=record.trials.len() as u64).map(&mut trial);
    let name = sweep.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Table { directory: sweep.to_path_buf(), ..assemble(&name, record, trials) }
}

/// Reads the table of a sweep that this process does not run.
pub fn read(sweep: &Path, record: &SweepRecord) -> Table {
    table(sweep, record, &mut Histories::read(sweep, record), &BTreeMap::new())
}

/// The table of the measurements of each trial.
fn assemble(name: &str, record: &SweepRecord, trials: impl Iterator<Item = Vec<Measured>>) -> Table {
    let values = |trial| record.keys.iter().zip(record.values(trial)).map(|(key, value)| masked(key, value)).collect();
    let mut rows: Vec<Row> = (1..).zip(trials).map(|(trial, runs)| row(trial, values(trial), runs)).collect();
    let measured = || rows.iter().flat_map(|row| &row.runs);
    let search = record.search.as_ref();
    let searched = search.map(|search| (search.metric.clone(), Some(search.direction)));
    let best_by = searched.or_else(|| measured().find_map(|run| run.best_by.clone()));
    let (metric, direction) = match best_by {
        Some((metric, direction)) => (Some(metric), direction),
        None => (measured().find_map(|run| run.metrics.keys().next().cloned()), None),
    };
    let loss_kind = measured().find_map(|run| Some(loss::dominant(&run.losses)?.kind.clone()));
    for row in &mut rows {
        if let Some(metric) = &metric {
            row.metric =
                Spread::of(measured_runs(&row.runs).filter_map(|run| run.metrics.get(metric).copied().flatten()));
        }
        if let Some(kind) = &loss_kind {
            let last_loss = |run: &Measured| run.losses.iter().find(|loss| loss.kind == *kind).map(|loss| loss.last);
            row.loss = Spread::of(measured_runs(&row.runs).filter_map(last_loss));
        }
    }
    let rungs = search.map_or_else(Vec::new, |search| search.rungs().to_vec());
    for row in rows.iter_mut().filter(|_| !rungs.is_empty()) {
        let steps = row.steps.unwrap_or_default();
        row.rung = Some(rungs.iter().filter(|rung| **rung <= steps).count() as u64);
    }
    let best = direction.and_then(|direction| match rungs.is_empty() {
        true => best(&rows, direction, search.is_some()),
        false => best_at_top_rung(&rows, direction),
    });
    let best = best.filter(|trial| rows.iter().any(|row| row.trial == *trial && !row.has_learnt_nothing()));
    // A search optimizes a metric: its trials are not compared by speed.
    let reference = search.map_or_else(|| reference(record, &rows), |_| None);
    let noise = compare(&mut rows, reference, metric.as_ref());
    for (name, memory) in FRONTS {
        let measured = |row: &Row| {
            row.speed_and_memory(memory)?;
            Some(SpeedAndMemory { speed: row.repeats("steps_per_second", None), memory: row.repeats(memory, None) })
        };
        let measured: Vec<Option<SpeedAndMemory>> = rows.iter().map(measured).collect();
        let noise_of = |name: &str| noise.get(name).copied();
        let front = pareto_front(&measured, (noise_of("steps_per_second"), noise_of(memory)));
        rows.iter_mut().zip(front).filter(|(_, on)| *on).for_each(|(row, _)| row.pareto.push(name));
    }
    Table {
        version: VERSION,
        experiment: record.experiment.clone(),
        sweep: name.to_owned(),
        created: record.created.clone(),
        method: record.method.clone(),
        repeats: record.repeats,
        keys: record.keys.clone(),
        metric,
        direction,
        best,
        rungs,
        loss_kind,
        reference,
        noise,
        rows,
        directory: PathBuf::new(),
    }
}

/// The finished trial with the best median of the metric; the first of equal ones.
fn best(rows: &[Row], direction: Direction, is_search: bool) -> Option<u64> {
    let finished = rows.iter().filter(|row| row.finished > 0);
    let measured: Vec<(u64, f64)> = finished.filter_map(|row| Some((row.trial, row.metric?.median))).collect();
    // Of equal trials none is the best, except in a search, which has a result.
    let equal = measured.windows(2).all(|pair| pair[0].1 == pair[1].1);
    if equal && !is_search { None } else { first_of_best(measured, direction) }
}

/// The best trial at the highest rung that was reached: metrics after fewer steps are not comparable.
fn best_at_top_rung(rows: &[Row], direction: Direction) -> Option<u64> {
    let has_arrived = |row: &&Row| row.runs.iter().any(|run| run.finished || run.at_rung);
    let top = rows.iter().filter(has_arrived).filter_map(|row| row.rung).max()?;
    let at_top = rows.iter().filter(has_arrived).filter(|row| row.rung == Some(top));
    first_of_best(at_top.filter_map(|row| Some((row.trial, row.metric?.median))).collect(), direction)
}

fn first_of_best(measured: Vec<(u64, f64)>, direction: Direction) -> Option<u64> {
    measured
        .into_iter()
        .reduce(|best, one| if direction.prefers(one.1, best.1) { one } else { best })
        .map(|(trial, _)| trial)
}

/// The runs that are measured: those that finished, or else all.
fn measured_runs(runs: &[Measured]) -> impl Iterator<Item = &Measured> {
    let any = runs.iter().any(|run| run.finished);
    runs.iter().filter(move |run| run.finished || !any)
}

pub fn row(trial: u64, values: Vec<Value>, runs: Vec<Measured>) -> Row {
    type Numbers = Measurements<u64, f64>;
    let number = |number: fn(&Numbers) -> Option<f64>| {
        Spread::of(measured_runs(&runs).filter_map(|run| number(&run.measurements)))
    };
    // The memory of a run that was interrupted is that of processes that began again.
    let uninterrupted = || measured_runs(&runs).filter(|run| !run.interrupted);
    let size = |size: fn(&Numbers) -> Option<u64>| {
        Spread::of(uninterrupted().filter_map(|run| size(&run.measurements)).map(|bytes| bytes as f64))
    };
    // A run that is too short shows no growth, and a buffer that fills up to its cap is none.
    let shows_growth = |run: &&Measured| !matches!(run.verdict, Some(VerdictWord::Inconclusive | VerdictWord::Filling));
    Row {
        trial,
        values,
        outcome: outcome(&runs),
        steps: runs.iter().filter_map(|run| run.steps).max(),
        rung: None,
        finished: runs.iter().filter(|run| run.finished).count() as u64,
        interrupted: runs.iter().filter(|run| run.interrupted).count() as u64,
        exit_code: runs.iter().filter_map(|run| run.exit_code.or(run.signal.map(|signal| 128 + signal))).max(),
        measurements: Measurements {
            steps_per_second: number(|run| run.steps_per_second),
            cleanup_seconds: number(|run| run.cleanup_seconds),
            heap_peak: size(|run| run.heap_peak),
            heap_floor: size(|run| run.heap_floor),
            rss_peak: size(|run| run.rss_peak),
            rss_floor: size(|run| run.rss_floor),
            device_in_use_peak: size(|run| run.device_in_use_peak),
            device_in_use_floor: size(|run| run.device_in_use_floor),
            device_reserved_peak: size(|run| run.device_reserved_peak),
            device_reserved_floor: size(|run| run.device_reserved_floor),
            growth: Spread::of(uninterrupted().filter(shows_growth).filter_map(|run| run.measurements.growth)),
        },
        verdict: measured_runs(&runs).filter_map(|run| run.verdict).max(),
        training: measured_runs(&runs).filter_map(|run| run.training).max(),
        metric: None,
        loss: None,
        change: BTreeMap::new(),
        pareto: Vec::new(),
        runs,
    }
}

/// `finished`, or `1 finished, 1 killed (signal 9)`.
fn outcome(runs: &[Measured]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs {
        let why = match (run.finished, run.signal, run.exit_code) {
            (true, _, _) | (_, None, None | Some(0)) => run.outcome.clone(),
            (_, Some(signal), _) => format!("{} (signal {signal})", run.outcome),
            (_, None, Some(code)) => format!("{} (exit {code})", run.outcome),
        };
        *counts.entry(why).or_default() += 1;
    }
    match counts.len() {
        1 => counts.into_keys().next().unwrap_or_default(),
        _ => counts.iter().map(|(why, count)| format!("{count} {why}")).collect::<Vec<_>>().join(", "),
    }
}

/// Trial that others are compared with: the first finished one with `cleanup.every_steps = 0`, or else the first finished one.
fn reference(record: &SweepRecord, rows: &[Row]) -> Option<u64> {
    let cleanup = record.keys.iter().position(|key| key == CLEANUP);
    let has_no_cleanup = |row: &&Row| cleanup.is_some_and(|at| row.values[at] == 0);
    let finished = || rows.iter().filter(|row| row.finished > 0);
    finished().find(has_no_cleanup).or_else(|| finished().next()).map(|row| row.trial)
}

/// Adds the changes against the reference to the rows; returns the noise of each number.
fn compare(rows: &mut [Row], reference: Option<u64>, metric: Option<&String>) -> BTreeMap<&'static str, Noise> {
    let mut noises = BTreeMap::new();
    let Some(at) = rows.iter().position(|row| Some(row.trial) == reference) else { return noises };
    for name in COMPARED {
        let trials: Vec<Repeats> = rows.iter().map(|row| row.repeats(name, metric)).collect();
        let noise = Noise::paired(&trials);
        noises.extend(noise.map(|noise| (name, noise)));
        for (other, values) in trials.iter().enumerate().filter(|(other, _)| *other != at) {
            rows[other].change.extend(Change::paired(values, &trials[at], noise).map(|change| (name, change)));
        }
    }
    noises
}

/// The cells of a row of `table.csv`, with their titles.
pub fn cells(table: &Table, row: &Row) -> Vec<(String, String)> {
    fn text(value: Option<impl ToString>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let mut cells = vec![("trial".to_owned(), row.trial.to_string())];
    cells.extend(table.keys.iter().cloned().zip(row.values.iter().map(plain)));
    let mut add = |title: &str, cell: String| cells.push((title.to_owned(), cell));
    add("runs", row.runs.len().to_string());
    add("finished", row.finished.to_string());
    add("outcome", row.outcome.clone());
    add("exit_code", text(row.exit_code));
    for (name, spread) in row.spreads() {
        add(name, text(spread.map(|spread| spread.median)));
        add(&format!("{name}_low"), text(spread.map(|spread| spread.low)));
        add(&format!("{name}_high"), text(spread.map(|spread| spread.high)));
    }
    add("verdict", text(row.verdict.map(VerdictWord::words)));
    for name in COMPARED {
        let change = row.change.get(name);
        let is_reference = Some(row.trial) == table.reference && row.spread(name).is_some();
        add(&format!("{name}_change"), text(change.map(|change| change.change)));
        add(&format!("{name}_change_low"), text(change.and_then(|change| change.low)));
        add(&format!("{name}_change_high"), text(change.and_then(|change| change.high)));
        let words = change.map(Change::words).or_else(|| is_reference.then(|| "the reference".to_owned()));
        add(&format!("{name}_against_reference"), text(words));
    }
    add("pareto", row.pareto.join(" "));
    add("steps", text(row.steps));
    add("rung", text(row.rung));
    add("interrupted", row.interrupted.to_string());
    add("training", text(row.training.map(TrainingVerdictWord::words)));
    cells
}

/// A value without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => shown(other),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
