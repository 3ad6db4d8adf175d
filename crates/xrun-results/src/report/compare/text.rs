//! Comparison as text: one column per run, wrapped to the width of the terminal.

use std::fmt::Write;
use std::path::Path;

use super::RunComparison;
use crate::axis::Axis;
use crate::comparison::{ComparedRun, KeyDifference};
use crate::report::axes::{bytes, number, utc_time};
use crate::report::listing::columns;
use crate::{resolved, run_name};
use xrun_core::printable;
use xrun_core::units::seconds;

/// Maximum width of a cell; the record has the whole value.
const CELL_CHARACTERS_MAX: usize = 26;
const LABEL_CHARACTERS_MAX: usize = 44;
const DAMAGE_CHARACTERS_MAX: usize = 400;
/// Width of the gap between columns, as [`columns`] sets them.
const GAP: usize = 2;

/// Rows with a title; one cell per run.
pub struct Section {
    pub title: &'static str,
    pub rows: Vec<(String, Vec<String>)>,
}

/// Legend of the runs and all sections. No line of a section is longer than `width`, unless a single column is. Ends
/// with a line break.
pub fn text(compared: &RunComparison, width: usize) -> String {
    let mut text = legend(&compared.record.runs);
    let sections = sections(compared);
    let label = label_width(&sections);
    let mut from = 0;
    while from < compared.record.runs.len() {
        let count = fitting_runs(&sections, from, width.saturating_sub(label));
        write_runs(&mut text, &sections, from..from + count);
        from += count;
    }
    printable::lines(&text)
}

fn legend(runs: &[ComparedRun]) -> String {
    let rows: Vec<Vec<String>> = runs
        .iter()
        .enumerate()
        .map(|(at, run)| {
            let name = printable::line(&name(run), 120);
            let started = run.started.as_deref().map_or("-".into(), |time| printable::line(&utc_time(time), 40));
            vec![(at + 1).to_string(), name, run.state.clone(), started]
        })
        .collect();
    let mut text = columns(&["", "run", "state", "started"], &rows);
    for (at, run) in runs.iter().enumerate() {
        for damage in &run.damage {
            let _ = writeln!(text, "{} damaged: {}", at + 1, printable::line(damage, DAMAGE_CHARACTERS_MAX));
        }
    }
    text
}

/// Name by which commands find the run.
pub fn name(run: &ComparedRun) -> String {
    run_name::run(Path::new(&run.path), &run.experiment)
}

fn label_width(sections: &[Section]) -> usize {
    let labels = sections.iter().flat_map(|section| &section.rows).map(|(label, _)| label.chars().count());
    labels.max().unwrap_or(0)
}

/// Number of runs, starting with `from`, whose columns fit into `room` characters; at least one.
fn fitting_runs(sections: &[Section], from: usize, room: usize) -> usize {
    let runs = sections.first().and_then(|section| section.rows.first()).map_or(0, |(_, cells)| cells.len());
    let width_of = |run: usize| {
        let cells = sections.iter().flat_map(|section| &section.rows).map(|(_, cells)| cells[run].chars().count());
        GAP + cells.max().unwrap_or(0).max((run + 1).to_string().len())
    };
    let mut used = 0;
    let fits = (from..runs).take_while(|&run| {
        used += width_of(run);
        used <= room
    });
    fits.count().max(1)
}

fn write_runs(text: &mut String, sections: &[Section], runs: std::ops::Range<usize>) {
    // One table, so that the columns of all sections align; titles are lines of their own.
    let mut header = vec![String::new()];
    header.extend(runs.clone().map(|run| format!(">{}", run + 1)));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut rows = Vec::new();
    let mut titles = Vec::new();
    for section in sections {
        titles.push((rows.len(), section.title));
        for (label, cells) in &section.rows {
            let mut row = vec![label.clone()];
            row.extend(cells[runs.clone()].iter().cloned());
            rows.push(row);
        }
    }
    let table = columns(&header, &rows);
    let mut lines = table.lines();
    let _ = writeln!(text, "\n{}", lines.next().unwrap_or_default());
    for (at, line) in lines.enumerate() {
        if let Some((_, title)) = titles.iter().find(|(first, _)| *first == at) {
            let _ = writeln!(text, "{title}:");
        }
        let _ = writeln!(text, "{line}");
    }
}

/// All compared values, without rows that are empty for all runs.
pub fn sections(compared: &RunComparison) -> Vec<Section> {
    let runs = &compared.record.runs;
    let mut sections = vec![
        Section { title: "experiment", rows: difference_rows(&compared.record.differences) },
        Section { title: "code, data, machine", rows: difference_rows(&compared.record.environment) },
        Section { title: "outcome", rows: outcome(runs) },
        Section { title: "result", rows: results(compared) },
        Section { title: "memory", rows: memory(runs) },
        Section { title: "speed", rows: speed(runs) },
    ];
    for section in &mut sections {
        section.rows.retain(|(_, cells)| cells.iter().any(|cell| cell != UNKNOWN));
        for (label, cells) in &mut section.rows {
            *label = printable::line(&format!("  {label}"), LABEL_CHARACTERS_MAX);
            cells.iter_mut().for_each(|cell| *cell = printable::line(cell, CELL_CHARACTERS_MAX));
        }
    }
    sections.retain(|section| !section.rows.is_empty());
    sections
}

/// Cell of an unknown value.
const UNKNOWN: &str = "-";

type LabelledRows = Vec<(String, Vec<String>)>;

fn row(label: &str, runs: &[ComparedRun], cell: impl Fn(&ComparedRun) -> Option<String>) -> (String, Vec<String>) {
    (label.to_owned(), runs.iter().map(|run| cell(run).unwrap_or_else(|| UNKNOWN.into())).collect())
}

fn difference_rows(differences: &[KeyDifference]) -> LabelledRows {
    let cell = |value: &Option<serde_json::Value>| value.as_ref().map_or(UNKNOWN.into(), abbreviated);
    differences.iter().map(|one| (one.key.clone(), one.values.iter().map(cell).collect())).collect()
}

/// Formats a value; of a digest the first ten characters.
fn abbreviated(value: &serde_json::Value) -> String {
    let text = resolved::format_value(value);
    let is_digest = text.len() >= 40 && text.bytes().take(40).all(|byte| byte.is_ascii_hexdigit());
    match is_digest {
        true => {
            format!("{}…{}", &text[..10], text.split_once(' ').map_or(String::new(), |(_, rest)| format!(" {rest}")))
        }
        false => text,
    }
}

fn outcome(runs: &[ComparedRun]) -> LabelledRows {
    vec![
        row("state", runs, |run| Some(run.state.clone())),
        row("steps", runs, |run| {
            let planned = run.steps_planned.filter(|planned| Some(*planned) != run.steps);
            Some(match planned {
                Some(planned) => format!("{}/{planned}", run.steps?),
                None => run.steps?.to_string(),
            })
        }),
    ]
}

fn results(compared: &RunComparison) -> LabelledRows {
    let runs = &compared.record.runs;
    let mut rows = Vec::new();
    for name in &compared.metrics {
        let direction = runs.iter().find_map(|run| run.metrics.get(name)?.direction);
        let shown =
            format!("{name}{}", direction.map_or_else(String::new, |direction| format!(" {}", direction.arrow())));
        rows.push(row(&format!("{shown}, last"), runs, |run| run.metrics.get(name)?.last.map(number)));
        match direction {
            Some(_) => rows.push(row(&format!("{shown}, best"), runs, |run| run.metrics.get(name)?.best.map(number))),
            None => rows.push(row(&format!("{shown}, min and max"), runs, |run| {
                let metric = run.metrics.get(name)?;
                Some(format!("{} to {}", number(metric.lowest?), number(metric.highest?)))
            })),
        }
    }
    rows.push(row("best checkpoint", runs, |run| {
        let best = run.best.as_ref()?;
        Some(format!("{} {} at {}", best.metric, number(best.value), best.step))
    }));
    // Losses are compared only between steps of one kind.
    let mut kinds: Vec<&str> = Vec::new();
    for loss in runs.iter().flat_map(|run| &run.losses) {
        if !kinds.contains(&loss.kind.as_str()) {
            kinds.push(&loss.kind);
        }
    }
    for kind in kinds {
        let loss = |run: &ComparedRun| run.losses.iter().find(|loss| loss.kind == kind).cloned();
        rows.push(row(&format!("loss ↓, {kind}, first step"), runs, |run| Some(number(loss(run)?.first))));
        rows.push(row(&format!("loss ↓, {kind}, final average"), runs, |run| Some(number(loss(run)?.last))));
    }
    rows
}

fn memory(runs: &[ComparedRun]) -> LabelledRows {
    let size = |size: Option<u64>| size.map(|size| bytes(size as f64));
    let signed = |value: f64| if value < 0.0 { format!("-{}", bytes(-value)) } else { bytes(value) };
    let measured = |run: &ComparedRun| run.memory.samples > 0;
    let mut rows = vec![
        row("verdict", runs, |run| run.verdict.map(|verdict| verdict.words().to_owned())),
        row("growing buffer", runs, |run| run.growing_owner.clone()),
        row("heap (peak)", runs, |run| size(Some(run.memory.heap_peak)).filter(|_| measured(run))),
        row("heap (end)", runs, |run| size(Some(run.memory.heap_at_end)).filter(|_| measured(run))),
        row("RSS (peak)", runs, |run| size(run.memory.rss_peak)),
        row("device in use (peak)", runs, |run| size(run.memory.device_in_use_peak)),
        row("device reserved (peak)", runs, |run| size(run.memory.device_reserved_peak)),
    ];
    for series in super::SERIES {
        let growth = |run: &ComparedRun| run.growth.iter().find(|one| one.series == *series).cloned();
        let name = if *series == "rss" { "RSS".into() } else { series.replace('_', " ") };
        rows.push(row(&format!("{name}, growth"), runs, |run| Some(signed(growth(run)?.growth))));
        for axis in [Axis::Steps, Axis::Clock] {
            let per = axis.rate_unit(0);
            let slope = |run: &ComparedRun| growth(run).filter(|one| one.axis == axis)?.slope;
            rows.push(row(&format!("{name}, {}", per.text), runs, |run| Some(signed(slope(run)? * per.length))));
        }
    }
    rows
}

fn speed(runs: &[ComparedRun]) -> LabelledRows {
    vec![
        row("steps/s (training alone)", runs, |run| run.steps_per_second.map(number)),
        row("items/s (training alone)", runs, |run| run.items_per_second.map(number)),
        row("training time", runs, |run| Some(seconds(run.seconds))),
        row("sampling, of training time", runs, |run| Some(format!("{} %", number(100.0 * run.memory.trace_share?)))),
    ]
}
