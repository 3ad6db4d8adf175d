//! Conclusion of a sweep in sentences: the best trial, differences beyond noise, and how to go on.

use std::collections::BTreeMap;

use super::pareto::RESOLUTION;
use super::records::sweep::{Row, Table};
use super::table::{CLEANUP, MEASURED};
use super::text::{compared, metric_name, metric_value, settings, trial};
use super::trials;
use xrun_core::files::layout;
use xrun_core::invocation;
use xrun_core::printable;
use xrun_core::task::metric::student_t_quantile;
use xrun_results::noise::{Change, Noise, Repeats, Spread};
use xrun_results::report::formatting::number;
use xrun_results::verdict::TrainingVerdictWord;

/// Relative difference for which the number of repeats is given.
const WANTED_DIFFERENCE: f64 = 0.2;
const REPEATS_MAX: u64 = 100;
/// Saving of memory, relative, up to which going without a cleanup loses nothing that matters.
const LOSS_MAX: f64 = 0.05;

/// Sentences on the metric, and on speed and memory; empty without finished trials.
pub fn conclusion(table: &Table) -> Vec<String> {
    if table.rows.iter().all(|row| row.metric.is_none() && row.finished == 0) {
        return Vec::new();
    }
    let metric = match table.is_search() {
        true => best(table).into_iter().collect(),
        false => on_metric(table),
    };
    metric.into_iter().chain(on_measurements(table)).chain(on_cleanup(table)).collect()
}

/// `best: trial 3 (optimizer.adamw.learning_rate = 0.003), map50 0.51`, with the trials that are equal.
fn best(table: &Table) -> Option<String> {
    let row = best_row(table)?;
    let equal: Vec<&Row> = table.rows.iter().filter(|other| other.trial != row.trial && table.is_best(other)).collect();
    let equal = if equal.is_empty() { String::new() } else { format!("; equal: {}", named(&equal)) };
    Some(format!("best: {}, {} {}{equal}", trial(table, row), metric_name(table)?, metric_value(row)?))
}

fn best_row(table: &Table) -> Option<&Row> {
    table.rows.iter().find(|row| Some(row.trial) == table.best)
}

fn on_metric(table: &Table) -> Vec<String> {
    let Some(name) = metric_name(table) else { return Vec::new() };
    let measured: Vec<&Row> = table.rows.iter().filter(|row| row.finished > 0 && row.metric.is_some()).collect();
    let all = Spread::of(measured.iter().flat_map(|row| row.metric).flat_map(|spread| [spread.low, spread.high]));
    if let Some(all) = all.filter(|_| measured.iter().all(|row| row.has_learnt_nothing())) {
        let mut runs = measured.iter().flat_map(|row| &row.runs).filter(|run| run.finished);
        let all_below_chance = runs.all(|run| run.training == Some(TrainingVerdictWord::NoBetterThanChance));
        let than = if all_below_chance { "than chance" } else { "than untrained or chance" };
        return vec![format!("no trial is better {than}: {name} {} to {}", number(all.low), number(all.high))];
    }
    if measured.len() < 2 {
        return best(table).into_iter().collect();
    }
    let median = |row: &Row| row.metric.map(|spread| spread.median);
    if let Some(value) = median(measured[0]).filter(|_| measured.windows(2).all(|two| median(two[0]) == median(two[1])))
    {
        return vec![format!("{name} is {} in all trials", number(value))];
    }
    let Some(noise) = table.noise.get("metric") else { return without_noise(table) };
    let Some(reference) = table.rows.iter().find(|row| Some(row.trial) == table.reference) else { return Vec::new() };
    let beyond = |row: &&&Row| row.change.get("metric").is_some_and(Change::is_shown);
    let different: Vec<&Row> = measured.iter().filter(beyond).copied().collect();
    if different.is_empty() {
        let settings = settings(table, reference);
        return vec![format!("no value differs from {settings} in {name} beyond noise ({})", power(table, *noise))];
    }
    let (Some(best), Some(row)) = (best(table), best_row(table)) else {
        return vec![format!("{name} differs from {} beyond noise in {}", trial(table, reference), named(&different))];
    };
    let against = match row.change.get("metric") {
        Some(change) => format!(": {} against {}", change.words(), trial(table, reference)),
        None => format!("; beyond noise of it: {}", named(&different)),
    };
    let values = |row: &Row| row.repeats("metric", table.metric.as_ref());
    let near = |other: &&&Row| {
        let change = Change::paired(&values(other), &values(row), Some(*noise));
        !table.is_best(other) && change.is_some_and(|change| change.within_noise == Some(true))
    };
    let rivals: Vec<&Row> = measured.iter().filter(near).copied().collect();
    let mut all = vec![format!("{best}{against}")];
    if !rivals.is_empty() {
        all.push(format!("within noise of the best: {}", named(&rivals)));
    }
    all
}

fn without_noise(table: &Table) -> Vec<String> {
    let unknown = match table.repeats {
        1 => "; its difference from the others may be noise: each trial ran once, and --repeats 3 measures the noise",
        _ => "",
    };
    best(table).into_iter().map(|best| format!("{best}{unknown}")).collect()
}

/// `25.6 % beside the seed; 2 repeats show differences from 110 % on, 8 repeats would show 20 %`.
fn power(table: &Table, noise: Noise) -> String {
    let trials = table.rows.len() as u64;
    let shown = |repeats: u64| {
        let degrees = usize::try_from((trials - 1) * repeats.saturating_sub(1)).unwrap_or(usize::MAX);
        (student_t_quantile(degrees) * noise.deviation * (2.0 / repeats as f64).sqrt()).exp_m1()
    };
    let needed = (table.repeats.max(2)..=REPEATS_MAX).find(|&repeats| shown(repeats) <= WANTED_DIFFERENCE);
    let would = needed.filter(|&repeats| repeats > table.repeats).map_or_else(String::new, |repeats| {
        format!(", --repeats {repeats} would show {:.0} %", 100.0 * WANTED_DIFFERENCE)
    });
    format!(
        "{:.1} % beside the seed; {} differences from {:.0} % on{would}",
        100.0 * noise.deviation,
        match table.repeats {
            1 => "1 repeat shows".to_owned(),
            repeats => format!("{repeats} repeats show"),
        },
        (100.0 * shown(table.repeats)).max(1.0)
    )
}

/// The trials of these rows, as in [`trials::named`].
fn named(rows: &[&Row]) -> String {
    trials::named(&rows.iter().map(|row| row.trial).collect::<Vec<_>>())
}

/// The largest difference beyond noise in speed and in each kind of memory, and what differs within noise only.
fn on_measurements(table: &Table) -> Vec<String> {
    let mut all = Vec::new();
    let mut within = Vec::new();
    let all_changes = || table.rows.iter().flat_map(|row| MEASURED.iter().filter_map(move |name| row.change.get(name)));
    let (shown, count) = (all_changes().filter(|change| change.is_shown()).count(), all_changes().count());
    for name in MEASURED.into_iter().filter(|name| table.noise.contains_key(name)) {
        let changes = table.rows.iter().filter_map(|row| Some((row, row.change.get(name)?)));
        let beyond = changes.filter(|(_, change)| change.is_shown());
        match beyond.max_by(|a, b| a.1.change.abs().total_cmp(&b.1.change.abs())) {
            Some((row, change)) => all.push(format!(
                "{}: {} in {}, the largest difference beyond noise ({shown} of {count} differences; by chance one of twenty is)",
                compared(table, name),
                change.words(),
                trial(table, row)
            )),
            None => within.push(compared(table, name)),
        }
    }
    if !within.is_empty() {
        all.push(format!("{}: no difference beyond noise", within.join(", ")));
    }
    all
}

/// The recommended interval of cleanups, or that none pays; `None` where no interval is swept, or nothing is measured.
///
/// Runs with one seed and one value of each other key are pairs. An interval pays if it saves memory beyond noise; of those
/// whose saving may be the largest, the longest interval is recommended.
fn on_cleanup(table: &Table) -> Option<String> {
    let key = table.keys.iter().position(|key| key == CLEANUP).filter(|_| !table.is_search())?;
    let changes = |name: &str| {
        let mut blocks = BTreeMap::new();
        let mut intervals: BTreeMap<u64, Repeats> = BTreeMap::new();
        for row in &table.rows {
            let (interval, mut others) = (row.values[key].as_u64()?, row.values.clone());
            others.remove(key);
            let next = blocks.len() as u64;
            let block = *blocks.entry(format!("{others:?}")).or_insert(next) * table.repeats;
            let repeats = row.repeats(name, None).into_iter().map(|(repeat, value)| (block + repeat, value));
            intervals.entry(interval).or_default().extend(repeats);
        }
        intervals.retain(|_, repeats| !repeats.is_empty());
        let (fewest, reference) = intervals.get_key_value(&0).or(intervals.last_key_value())?;
        let noise = Noise::paired(&intervals.values().cloned().collect::<Vec<_>>());
        let others = intervals.iter().filter(|(interval, _)| *interval != fewest);
        let changes = others.filter_map(|(at, own)| Some((*at, Change::paired(own, reference, noise)?)));
        Some((*fewest, changes.collect::<BTreeMap<u64, Change>>())).filter(|(_, changes)| !changes.is_empty())
    };
    let kinds = MEASURED[1..].iter().copied().filter_map(|name| Some((name, changes(name)?))).collect::<Vec<_>>();
    let fewest = kinds.first()?.1.0;
    let all = || kinds.iter().flat_map(|(name, (_, changes))| changes.iter().map(|(at, own)| (*name, *at, *own)));
    let pays = |(_, _, change): &(&str, u64, Change)| change.is_shown() && change.change <= -RESOLUTION;
    let Some(most) = all().filter(pays).min_by(|a, b| a.2.change.total_cmp(&b.2.change)) else {
        let Some(low) = all().map(|(_, _, change)| change.low).reduce(|a, b| Some(a?.min(b?))).flatten() else {
            return Some(format!(
                "whether a cleanup pays is not known: each {CLEANUP} ran once; --repeats 3 measures it"
            ));
        };
        let least = format!("no {CLEANUP} saves memory beyond noise");
        return Some(match -low <= LOSS_MAX {
            true => {
                format!("{CLEANUP} = {fewest} loses nothing here: {least}, and none more than {:.1} %", -100.0 * low)
            }
            false => format!("{least}, but {:.0} % are not excluded: repeat each trial more often", -100.0 * low),
        });
    };
    let rivals = all().filter(pays).filter(|one| one.0 == most.0 && one.2.low <= Some(most.2.change));
    let (name, interval, change) = rivals.max_by_key(|(_, interval, _)| *interval)?;
    let speed = changes("steps_per_second").and_then(|(_, changes)| changes.get(&interval).copied());
    let speed = speed.map_or_else(String::new, |speed| format!(", speed {}", speed.words()));
    let memory = format!("{} {}", compared(table, name), change.words());
    Some(format!("recommended: {CLEANUP} = {interval}, which has {memory}{speed} against {fewest}"))
}

/// Commands that go on with the best trial, each with its purpose.
pub fn next_commands(table: &Table) -> Vec<(&'static str, String)> {
    let Some(row) = best_row(table).filter(|_| table.is_search()) else { return Vec::new() };
    let Some(run) = row.runs.first() else { return Vec::new() };
    let directory = table.directory.join(layout::TRIALS).join(&run.run);
    let word = |path: &std::path::Path| printable::shell_word(&path.display().to_string());
    let program = invocation::program();
    let resolved = word(&directory.join(layout::RESOLVED));
    let further = run.at_rung.then(|| ("train the best to its end", format!("{program} resume {}", word(&directory))));
    let seeds = format!("{program} sweep {resolved} -s experiment.seed=1,2,3");
    further.into_iter().chain([("run its settings with other seeds", seeds)]).collect()
}
