//! report.html of a sweep: the table, what the points cost against the reference, and the fronts of speed and memory.

use maud::{Markup, html};

use super::table::FRONTS;
use super::text::{Room, cells, changes, has_device, noise, reference, short, titles};
use crate::experiment::read_sweep::written;
use crate::report::axes::{Unit, time_of_day};
use crate::report::page::document::document;
use crate::report::plots::{Curve, Plot, Shape};
use crate::results::printable;
use crate::results::sweep::{Row, Table};

/// More points than this are drawn without words.
const LABELS_MAX: usize = 16;

/// The page's text.
pub fn html(table: &Table) -> String {
    let name = printable::line(&table.experiment, 100);
    let runs = table.rows.iter().map(|row| row.runs.len()).sum::<usize>();
    let finished = table.rows.iter().map(|row| row.finished).sum::<u64>();
    let device = has_device(table);
    let sweep = printable::line(&table.sweep, 100);
    let content = html! {
        header {
            div.title {
                h1 { (name) ", swept" }
                span.badge.(if finished == runs as u64 { "good" } else { "bad" }) { (finished) " of " (runs) " runs finished" }
            }
            p { "Swept: " (printable::line(&table.keys.join(", "), 400)) "." }
            p.note { "Sweep " (sweep) ", begun " (time_of_day(&table.created)) "." }
        }
        h2 { "Points" }
        div.wide { (as_table(&titles(table, Room::Page), table.rows.iter().map(|row| cells(table, row, device, Room::Page)))) }
        (failures(table))
        (against(table))
        (drawn(table))
        (how_to_read(table))
    };
    document(&format!("{name} · sweep {sweep}"), "", &content, "the run directories of the sweep")
}

fn as_table(titles: &[String], rows: impl Iterator<Item = Vec<String>>) -> Markup {
    let right = |at: usize| titles[at].starts_with('>');
    html! {
        table.full {
            thead { tr { @for (at, title) in titles.iter().enumerate() { th.r[right(at)] { (title.trim_start_matches('>')) } } } }
            tbody { @for row in rows { tr { @for (at, cell) in row.iter().enumerate() { td.r[right(at)] { (cell) } } } } }
        }
    }
}

/// Runs that did not finish, with what they said.
fn failures(table: &Table) -> Markup {
    let failed = || table.rows.iter().flat_map(|row| &row.runs).filter(|run| !run.finished);
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

fn against(table: &Table) -> Markup {
    let (titles, rows) = changes(table);
    html! {
        @if let (Some(reference), false) = (reference(table), rows.is_empty()) {
            h2 { "Cost and benefit" }
            p { "Against " (reference) "; " (noise(table)) "." }
            div.wide { (as_table(&titles, rows.into_iter())) }
        }
    }
}

fn drawn(table: &Table) -> Markup {
    let plots: Vec<Plot> =
        FRONTS.iter().filter_map(|(name, memory)| front(table, name, memory)).chain(by_value(table)).collect();
    html! {
        @if !plots.is_empty() {
            h2 { "Speed against memory" }
            div.plots { @for plot in &plots { (plot.figure()) } }
        }
    }
}

/// Each point that finished, and the line of those that no other one beats.
fn front(table: &Table, name: &str, memory: &str) -> Option<Plot> {
    let placed = || table.rows.iter().filter_map(|row| Some((row, row.place(memory)?)));
    if placed().count() < 2 {
        return None;
    }
    let points = placed().map(|(_, (speed, memory))| (memory, speed)).collect();
    let mut on: Vec<(f64, f64)> =
        placed().filter(|(row, _)| row.pareto.contains(&name)).map(|(_, (speed, memory))| (memory, speed)).collect();
    on.sort_by(|a, b| a.0.total_cmp(&b.0));
    let curves = vec![curve("points", points, 7, Shape::Dots), curve("front", on, 1, Shape::Points)];
    let words = match name {
        "heap" => ("Speed and peak of the heap", "peak of the heap"),
        "resident" => ("Speed and peak of resident memory", "peak of resident memory"),
        _ => ("Speed and peak reserved on the device", "peak reserved on the device"),
    };
    let plot = Plot::of(words.0, (words.1, Unit::Bytes), Unit::Number, curves)?;
    let room = 0.08 * (plot.x.1 - plot.x.0);
    let labels = placed().map(|(row, (speed, memory))| (memory, speed, label(row)));
    Some(Plot {
        caption: caption(table),
        x: (plot.x.0 - room, plot.x.1 + room),
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
    format!("Steps a second, upwards, each point with {names}; the line joins those that no other one beats in both.")
}

fn label(row: &Row) -> String {
    match row.values.as_slice() {
        [value] => printable::line(&written(value), 40),
        _ => row.point.to_string(),
    }
}

fn curve(name: &str, points: Vec<(f64, f64)>, colour: u8, shape: Shape) -> Curve {
    let y = |pick: fn(f64, f64) -> f64| points.iter().map(|point| point.1).reduce(pick).unwrap_or_default();
    let end = |point: Option<&(f64, f64)>| point.map_or(0.0, |point| point.1);
    let numbers = [end(points.first()), y(f64::min), y(f64::max), end(points.last())];
    Curve { name: name.to_owned(), points, colour, shape, numbers }
}

/// Speed and peaks along the one swept key, when its values are numbers.
fn by_value(table: &Table) -> Vec<Plot> {
    let [key] = table.keys.as_slice() else { return Vec::new() };
    let mut rows: Vec<(f64, &Row)> =
        table.rows.iter().filter_map(|row| Some((row.values.first()?.as_f64()?, row))).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let line = |name: &str, memory: &str, colour: u8| {
        let points: Vec<(f64, f64)> =
            rows.iter().filter_map(|(value, row)| Some((*value, row.place(memory)?.1))).collect();
        (points.len() > 1).then(|| curve(name, points, colour, Shape::Points))
    };
    let speeds: Vec<(f64, f64)> =
        rows.iter().filter_map(|(value, row)| Some((*value, row.place("heap_peak")?.0))).collect();
    let each = rows.iter().filter(|(_, row)| row.finished > 0).flat_map(|(value, row)| {
        row.runs.iter().filter(|run| run.finished).filter_map(|run| Some((*value, run.steps_per_second?)))
    });
    if speeds.len() < 2 {
        return Vec::new();
    }
    let curves = vec![curve("each run", each.collect(), 7, Shape::Dots), curve("median", speeds, 1, Shape::Points)];
    let memory = [
        line("heap", "heap_peak", 1),
        line("resident", "resident_peak", 2),
        line("device reserved", "device_reserved_peak", 3),
    ];
    let name = printable::line(key, 60);
    let speed = Plot::of(&format!("Steps a second by {name}"), ("value", Unit::Number), Unit::Number, curves);
    let memory = memory.into_iter().flatten().collect();
    let memory = Plot::of(&format!("Peaks by {name}"), ("value", Unit::Number), Unit::Bytes, memory);
    [speed, memory].into_iter().flatten().map(|plot| Plot { half: true, ..plot }).collect()
}

fn how_to_read(table: &Table) -> Markup {
    html! {
        h2 { "How to read this page" }
        p { "A row is a point: a value for each swept key" @if table.repeats > 1 { ", run " (table.repeats) " times with different seeds" } ". "
            b { "Steps a second" } " have the time of cleanups in them, and not that of validations and checkpoints; of several \
            repeats it is the median, with the lowest and the highest, and so is memory. "
            b { "Floor" } " is the least at rest in the second half of a run: what stays. "
            b { "Growth a step" } " is that of the heap, or of the device's pool if that grows faster (Theil-Sen slope of the floors). "
            b { "Front" } " names the memory for which no other point is both faster and smaller." }
        p { "A comparison is " b { "within noise" } " when its interval of 95 % holds 0: repeats of one point differ as much. The \
            noise is pooled over all points; seeds and the drift of the machine are part of it. " b { "The same" } " is less than \
            0.05 % apart, noise included." }
    }
}
