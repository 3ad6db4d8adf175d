//! `report.html` of a sweep: the tables, the changes against the reference, and the Pareto fronts of speed and memory.

use maud::{Markup, html};

use super::conclusion::{conclusion, next_commands};
use super::pareto::RESOLUTION;
use super::table::FRONTS;
use super::text::{Cells, changes, noise, reference, rows, rungs, short, value};
use crate::records::sweep::{Measured, Row, Table};
use xrun_core::printable;
use xrun_core::units::pluralize;
use xrun_results::report::axes::AxisUnit;
use xrun_results::report::formatting::utc_time;
use xrun_results::report::page::document::document;
use xrun_results::report::plots::{Curve, CurveStyle, Plot};

/// Largest number of trials whose dots are labelled.
const LABELS_MAX: usize = 16;

/// The page's text.
pub fn html(table: &Table) -> String {
    let name = printable::line(&table.experiment, 100);
    let runs = table.rows.iter().map(|row| row.runs.len()).sum::<usize>();
    let finished = table.rows.iter().map(|row| row.finished).sum::<u64>();
    let at_rung = table.rows.iter().flat_map(|row| &row.runs).filter(|run| run.at_rung).count() as u64;
    let all_well = finished + at_rung == runs as u64;
    let sweep = printable::line(&table.sweep, 100);
    let content = html! {
        header {
            div.title {
                h1 { (name) ", swept" }
                span.badge.(if all_well { "good" } else { "bad" }) {
                    (finished) " of " (runs) " runs finished" @if at_rung > 0 { ", " (at_rung) " stopped at a rung" }
                }
            }
            @for (at, sentence) in conclusion(table).iter().enumerate() { p.result[at == 0] { (capitalised(sentence)) "." } }
            @for (purpose, command) in next_commands(table) { p.note { "To " (purpose) ":" } pre { (command) } }
            p { "Swept: " (printable::line(&table.keys.join(", "), 400)) "." }
            p.note { "Sweep " (sweep) ", begun " (utc_time(&table.created)) "." }
            @if let Some(rungs) = rungs(table) { p.note { (rungs) "." } }
        }
        h2 { "Trials" }
        (as_table(rows(table)))
        (failures(table))
        (metric_plots(table))
        (changes_section(table))
        @if !table.is_search() {
            (speed_and_memory(table))
        }
        (how_to_read(table))
    };
    document(&format!("{name} · sweep {sweep}"), "", &content, "the run directories of the sweep")
}

/// A sentence with its first letter as a capital.
fn capitalised(sentence: &str) -> String {
    let mut characters = sentence.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// A table. A narrow page shows each row as a list.
fn as_table((titles, rows): Cells) -> Markup {
    let title = |at: usize| titles[at].trim_start_matches('>');
    let right = |at: usize| titles[at].starts_with('>');
    html! {
        div.wide { table.full.stacked {
            thead { tr { @for at in 0..titles.len() { th.r[right(at)] { (title(at)) } } } }
            tbody { @for row in &rows { tr { @for (at, cell) in row.iter().enumerate() {
                td.r[right(at)] data-title=(title(at)) {
                    (cell.text) @if !cell.range.is_empty() { " " small { (cell.range) } }
                }
            } } } }
        } }
    }
}

/// Runs that did not finish, with their messages.
fn failures(table: &Table) -> Markup {
    let failed = || table.rows.iter().flat_map(|row| &row.runs).filter(|run| !run.finished && !run.at_rung);
    html! {
        @if failed().next().is_some() {
            h2 { "Not finished" }
            div.damage { @for run in failed().take(100) {
                p { b { (run.run) } " " (run.outcome) @if let Some(message) = &run.message { ": " (printable::line(message, 400)) } }
            } }
            @if failed().count() > 100 { p.note { "And " (failed().count() - 100) " more." } }
        }
    }
}

fn changes_section(table: &Table) -> Markup {
    let changes = changes(table);
    html! {
        @if let (Some(reference), false) = (reference(table), changes.1.is_empty()) {
            h2 { "Cost and benefit" }
            p { "Against " (reference) "; " (noise(table)) "." }
            (as_table(changes))
        }
    }
}

fn speed_and_memory(table: &Table) -> Markup {
    let fronts = FRONTS.iter().filter_map(|(name, memory)| pareto_plot(table, name, memory));
    plots("Speed against memory", fronts.collect())
}

fn plots(title: &str, plots: Vec<Plot>) -> Markup {
    html! {
        @if !plots.is_empty() {
            h2 { (title) }
            div.plots { @for plot in &plots { (plot.figure()) } }
        }
    }
}

/// The finished trials by speed and memory, with their Pareto front.
fn pareto_plot(table: &Table, name: &str, memory: &str) -> Option<Plot> {
    let placed = || table.rows.iter().filter_map(|row| Some((row, row.speed_and_memory(memory)?)));
    if placed().count() < 2 {
        return None;
    }
    let points = placed().map(|(_, (speed, memory))| (memory, speed)).collect();
    let mut on: Vec<(f64, f64)> =
        placed().filter(|(row, _)| row.pareto.contains(&name)).map(|(_, (speed, memory))| (memory, speed)).collect();
    on.sort_by(|a, b| a.0.total_cmp(&b.0));
    let front = (!on.is_empty()).then(|| curve("Pareto front", on, 1, CurveStyle::Points));
    let curves = [Some(curve("trials", points, 7, CurveStyle::Dots)), front].into_iter().flatten().collect();
    let words = match name {
        "heap" => ("Speed and peak of the heap", "peak of the heap"),
        "rss" => ("Speed and peak RSS", "peak RSS"),
        _ => ("Speed and peak reserved on the device", "peak reserved on the device"),
    };
    let plot = Plot::fitted(words.0, (words.1, AxisUnit::Bytes), AxisUnit::Number, curves)?;
    // Differences below what counts as one are no spread.
    let margin = (0.08 * (plot.x.1 - plot.x.0)).max(RESOLUTION * plot.x.1);
    let labels = placed().map(|(row, (speed, memory))| (memory, speed, label(row)));
    Some(Plot {
        caption: caption(table),
        x: (plot.x.0 - margin, plot.x.1 + margin),
        labels: if placed().count() <= LABELS_MAX { labels.collect() } else { vec![] },
        half: true,
        ..plot
    })
}

fn caption(table: &Table) -> String {
    let names = match table.keys.as_slice() {
        [_] => format!("its {}", printable::line(short(&table.keys)[0], 40)),
        _ => "its number".into(),
    };
    let front = match table.rows.iter().any(|row| !row.pareto.is_empty()) {
        true => "Line: the Pareto front.",
        false => "No Pareto front: no trial differs from another by 1 % beyond noise.",
    };
    format!("Steps per second against memory, each trial with {names}. {front}")
}

fn label(row: &Row) -> String {
    match row.values.as_slice() {
        [one] => value(one),
        _ => row.trial.to_string(),
    }
}

fn curve(name: &str, points: Vec<(f64, f64)>, colour: u8, shape: CurveStyle) -> Curve {
    let y = |pick: fn(f64, f64) -> f64| points.iter().map(|point| point.1).reduce(pick).unwrap_or_default();
    let end = |point: Option<&(f64, f64)>| point.map_or(0.0, |point| point.1);
    let numbers = [end(points.first()), y(f64::min), y(f64::max), end(points.last())];
    Curve { name: name.to_owned(), points, colour, shape, numbers }
}

/// Largest number of plots of one kind.
const KEYS_MAX: usize = 4;

/// The metric over each swept key whose values are numbers.
fn metric_plots(table: &Table) -> Markup {
    let plot = |(at, key): (usize, &String)| {
        let metric = table.metric.as_ref()?;
        let title = format!("{} by {}", printable::line(metric, 60), printable::line(key, 60));
        let of_run = |run: &Measured| run.metrics.get(metric).copied().flatten();
        let plot = by_value(table, at, &title, of_run, |row| Some(row.metric?.median))?;
        let arrow = table.direction.map_or_else(String::new, |direction| format!("; {} is better", direction.words()));
        let caption = format!("After the last validation{arrow}. {}", plot.caption);
        Some(Plot { caption, ..plot })
    };
    plots("Result", table.keys.iter().enumerate().take(KEYS_MAX).filter_map(plot).collect())
}

/// A measurement of each finished run by the value of a key, with a line through the medians where it is the only key. `None`
/// with fewer than two values.
fn by_value(
    table: &Table,
    key: usize,
    title: &str,
    of_run: impl Fn(&Measured) -> Option<f64>,
    median: impl Fn(&Row) -> Option<f64>,
) -> Option<Plot> {
    let mut rows: Vec<(f64, &Row)> =
        table.rows.iter().filter_map(|row| Some((row.values.get(key)?.as_f64()?, row))).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let runs = rows.iter().flat_map(|(value, row)| row.runs.iter().filter(|run| run.finished).map(|run| (*value, run)));
    let each: Vec<(f64, f64)> = runs.filter_map(|(value, run)| Some((value, of_run(run)?))).collect();
    if !each.windows(2).any(|pair| pair[0].0 != pair[1].0) {
        return None;
    }
    let medians = || rows.iter().filter_map(|(value, row)| Some((*value, median(row)?))).collect();
    let line = (table.keys.len() == 1).then(|| curve("median", medians(), 1, CurveStyle::Points));
    let caption = match line {
        Some(_) => "Dots: each run. Line: medians.",
        None => "Dots: each run, with all values of the other keys.",
    };
    let curves = std::iter::once(curve("each run", each, 7, CurveStyle::Dots)).chain(line).collect();
    let plot = Plot::fitted(title, ("value", AxisUnit::Number), AxisUnit::Number, curves)?;
    Some(Plot { half: true, caption: caption.into(), ..logarithmic_if_wide(plot) })
}

/// Makes the axis logarithmic where the largest value is at least ten times the smallest.
fn logarithmic_if_wide(plot: Plot) -> Plot {
    let xs = || plot.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
    if low > 0.0 && high >= 10.0 * low { plot.on_logarithmic_x() } else { plot }
}

fn how_to_read(table: &Table) -> Markup {
    html! {
        h2 { "How to read this page" }
        p { "A row is a trial, run " (pluralize(table.repeats, "time")) " with different seeds; numbers are medians, and "
            code { "table.csv" } " has minimum and maximum. "
            @if !table.rungs.is_empty() {
                "A run stops at a " b { "rung" } "; the best are promoted. The best trial is one of those at the highest rung. "
            }
            b { "Steps per second" } " include cleanups, and exclude validations and checkpoints. "
            b { "Floor" } " is the minimum between steps in the second half of a run. "
            b { "Pareto front" } " names the memory for which no other trial is both faster and smaller by 1 % and beyond noise. "
            "Trials are compared in pairs of runs with one seed; a comparison is " b { "within noise" } " when its 95 % confidence \
            interval contains 0." }
    }
}
