//! Comparison as an HTML page: tables, and overlaid curves of all runs.
//!
//! Like the page of a run, one file without scripts that loads nothing from a network.

use maud::{Markup, html};

use super::text::{name, sections};
use super::{RUNS_MAX, RunComparison, RunCurves};
use crate::comparison::ComparedRun;
use crate::report::axes::{AxisUnit, utc_time};
use crate::report::page::document::document;
use crate::report::plots::{COLOURS, Curve, CurveStyle, Plot};
use crate::report::series::ThinnedSeries;
use xrun_core::printable;

/// Maximum number of figures.
const FIGURES_MAX: usize = 24;
const _: () = assert!(RUNS_MAX <= 2 * COLOURS, "each run has a line of its own");

/// HTML text of the page.
pub fn html(compared: &RunComparison) -> String {
    let runs = &compared.record.runs;
    let title = format!("{} runs compared", runs.len());
    let content = html! {
        header { div.title { h1 { (title) } } }
        (legend(runs))
        // Results come before the settings that led to them.
        (figures(compared))
        (tables(compared))
    };
    document(&title, &thick_lines(), &content, "the files of the runs' directories")
}

/// From the eighth run on, colours and dashes repeat with a thicker line.
fn thick_lines() -> String {
    let style = |at: usize| {
        let again = at + COLOURS;
        format!(
            "\n.c{again} {{ --c: var(--c{at}); --d: var(--d{at}); --l: var(--l{at}); --thick: 4.5px; --tall: .45rem; }}"
        )
    };
    (1..=COLOURS).map(style).collect()
}

fn legend(runs: &[ComparedRun]) -> Markup {
    html! {
        div.wide { table.full.compared {
            thead { tr { th { "" } th { "run" } th { "state" } th { "started" } th.why { "" } } }
            tbody { @for (at, run) in runs.iter().enumerate() { tr {
                th scope="row" { i.swatch.line.(format!("c{}", at + 1)) { } (at + 1) }
                td { (printable::line(&name(run), 200)) }
                td { (run.state) }
                td { (run.started.as_deref().map_or("–".into(), utc_time)) }
                td.why {
                    (printable::line(&run.message, 160))
                    @for damage in &run.damage { br; b { "damaged: " } (printable::line(damage, 400)) }
                }
            } } }
        } }
    }
}

fn tables(compared: &RunComparison) -> Markup {
    html! {
        @for section in sections(compared) {
            h2 { (title(section.title)) }
            div.wide { table.compared {
                thead { tr { th { "" } @for run in 1..=compared.record.runs.len() { th.r { (run) } } } }
                tbody { @for (label, cells) in &section.rows { tr {
                    th scope="row" { (label.trim_start()) }
                    @for cell in cells { td.r { (cell) } }
                } } }
            } }
        }
    }
}

fn title(section: &str) -> String {
    match section {
        "experiment" => "Differences in the experiments".into(),
        "code, data, machine" => "Differences in code, data and machine".into(),
        other => other[..1].to_uppercase() + &other[1..],
    }
}

fn figures(compared: &RunComparison) -> Markup {
    let all = &compared.curves;
    let mut plots: Vec<Plot> = Vec::new();
    for kind in names(all, |run| &run.losses) {
        let caption = "Exponential moving average, as in the report of each run.";
        let plot = overlaid(all, CurveStyle::Line, |run| find_series(&run.losses, &kind));
        let plot = figure(&format!("Training loss, {kind} steps"), caption, AxisUnit::Number, plot, "step");
        plots.extend(plot.map(Plot::logarithmic_if_far_apart));
    }
    for metric in &compared.metrics {
        let caption = "Held-out data; step 0 is the untrained model.";
        let plot = overlaid(all, CurveStyle::Points, |run| find_series(&run.metrics, metric));
        plots.extend(figure(metric, caption, AxisUnit::Number, plot, "step"));
    }
    let memory: [(&str, SelectSeries); 4] = [
        ("Heap", |run| &run.heap),
        ("RSS", |run| &run.rss),
        ("Device in use", |run| &run.in_use),
        ("Device reserved", |run| &run.reserved),
    ];
    for (name, select) in memory {
        let plot = overlaid(all, CurveStyle::Line, |run| Some(select(run)));
        plots.extend(figure(name, "Sampled between steps.", AxisUnit::Bytes, plot, "training time"));
    }
    let left_out = plots.len().saturating_sub(FIGURES_MAX);
    html! {
        @if !plots.is_empty() {
            h2 { "Curves" }
            div.plots { @for plot in plots.iter().take(FIGURES_MAX) { (plot.figure()) } }
            @if left_out > 0 { p.note { (left_out) " more figures are not shown." } }
        }
    }
}

/// Selects a curve of a run.
type SelectSeries = fn(&RunCurves) -> &ThinnedSeries;

/// Names that any of the runs has, in order of their first occurrence.
fn names(all: &[RunCurves], select: fn(&RunCurves) -> &Vec<(String, ThinnedSeries)>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in all.iter().flat_map(select) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn find_series<'a>(series: &'a [(String, ThinnedSeries)], name: &str) -> Option<&'a ThinnedSeries> {
    series.iter().find(|(known, _)| known == name).map(|(_, series)| series)
}

fn overlaid<'a>(
    all: &'a [RunCurves],
    shape: CurveStyle,
    select: impl Fn(&'a RunCurves) -> Option<&'a ThinnedSeries>,
) -> Vec<Curve> {
    let curve = |(at, run): (usize, &'a RunCurves)| {
        Curve::from_series(&format!("run {}", at + 1), select(run)?, (at + 1) as u8, shape.clone())
    };
    all.iter().enumerate().filter_map(curve).collect()
}

fn figure(title: &str, caption: &str, unit: AxisUnit, curves: Vec<Curve>, x: &'static str) -> Option<Plot> {
    let x_unit = if x == "step" { AxisUnit::Number } else { AxisUnit::Seconds };
    let plot = Plot::fitted(&printable::line(title, 80), (x, x_unit), unit, curves)?;
    Some(Plot { caption: caption.into(), half: true, ..plot })
}
