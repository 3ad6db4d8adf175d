//! Comparison as an HTML page: what differs, and overlaid curves of all runs.
//!
//! Like the page of a run, one file that loads nothing from a network.

use maud::{Markup, html};

use super::rows::{Column, LOSS, Row, View, tables, title};
use super::{ComparedRun, RUNS_MAX, RunComparison};
use crate::report::axes::AxisUnit;
use crate::report::formatting::utc_time;
use crate::report::page::document::{document, thick_lines};
use crate::report::plots::{COLOURS, Curve, CurveStyle, Plot};
use crate::report::series::ThinnedSeries;
use crate::report::table::{Table, distinct};
use crate::view::RunView;
use xrun_core::printable;
use xrun_core::units::pluralize;

/// Maximum number of figures.
const FIGURES_MAX: usize = 24;
const _: () = assert!(RUNS_MAX <= 2 * COLOURS, "each run has a line of its own");

/// HTML text of the page.
pub fn html(compared: &RunComparison, view: &View) -> String {
    let tables = tables(compared, view);
    let title = title(compared, &tables.columns);
    let content = html! {
        header {
            div.title { h1 { (title) } }
            @for note in &tables.notes { p { (note) "." } }
        }
        (legend(&compared.runs))
        @for section in &tables.sections {
            h2 { (section.title[..1].to_uppercase()) (&section.title[1..]) }
            (rows_table(&section.rows, &tables.columns))
        }
        (figures(compared, view))
        (same(&tables.same))
    };
    document(&title, &thick_lines(), &content, "the files of the runs' directories")
}

fn legend(runs: &[ComparedRun]) -> Markup {
    html! {
        div.wide { table.full.stacked {
            thead { tr { th { "" } th { "name" } th { "directory" } th { "state" } th { "started" } th.why { "" } } }
            tbody { @for (at, run) in runs.iter().enumerate() { tr {
                td data-title="run" { i.swatch.line.(format!("c{}", at + 1)) { } (at + 1) }
                td.strong data-title="name" { (run.label) }
                td data-title="directory" { (printable::line(&run.view.name(), 200)) }
                td data-title="state" { (run.view.state().label()) }
                td data-title="started" { (run.view.started().map_or("–".into(), utc_time)) }
                td.why {
                    (printable::line(&run.view.message(), 160))
                    @for damage in run.view.damage() { br; b { "damaged: " } (printable::line(damage, 400)) }
                }
            } } }
        } }
    }
}

fn rows_table(rows: &[Row], columns: &[Column]) -> Markup {
    html! {
        div.wide { table.compared {
            thead { tr { th { "" } @for column in columns { th.r {
                @if let [run] = column.runs[..] { i.swatch.line.(format!("c{}", run + 1)) { } }
                (column.label)
            } } } }
            tbody { @for row in rows { tr {
                th scope="row" { (row.label) }
                @for cell in &row.cells { td.r {
                    @if cell.best { b.good title="best" { "★ " (cell.text) } } @else {
                        // A narrow page breaks a path behind a slash.
                        @for (at, part) in cell.text.split_inclusive('/').enumerate() { @if at > 0 { wbr; } (part) }
                    }
                    @if !cell.deviation.is_empty() { " ±" (cell.deviation) }
                    @if !cell.change.is_empty() { small { (cell.change) @if !cell.interval.is_empty() { " (" (cell.interval) ")" } } }
                } }
            } } }
        } }
    }
}

fn same(same: &[(String, String)]) -> Markup {
    html! {
        @if !same.is_empty() {
            h2 { "The same in all runs" }
            details {
                summary { (pluralize(same.len() as u64, "value")) }
                (Table::new(&["value", ">in all"], same.iter().map(|(label, value)| vec![label.clone(), value.clone()]).collect()).html())
            }
        }
    }
}

fn figures(compared: &RunComparison, view: &View) -> Markup {
    let all = compared.runs.as_slice();
    let mut plots: Vec<Plot> = Vec::new();
    let losses = all.iter().flat_map(|run| &run.view.curves().losses).filter(|_| view.shows(LOSS));
    for kind in distinct(losses.map(|loss| &loss.kind)) {
        let caption = "Exponential moving average, as in the report of each run.";
        let plot = overlaid(all, CurveStyle::Line, |run| {
            run.curves().losses.iter().find(|loss| loss.kind == *kind).map(|loss| &loss.smooth)
        });
        let plot = figure(&format!("Training loss, {kind} steps"), caption, AxisUnit::Number, plot, "step");
        plots.extend(plot.map(Plot::logarithmic_if_far_apart));
    }
    for metric in compared.metrics().into_iter().filter(|metric| view.shows(metric)) {
        let caption = "Held-out data; step 0 is the untrained model.";
        let plot = overlaid(all, CurveStyle::Points, |run| run.curves().metric(metric));
        plots.extend(figure(metric, caption, AxisUnit::Number, plot, "step"));
    }
    let memory: [(&str, SelectSeries); 4] = [
        ("Heap", |run| &run.trace().heap),
        ("RSS", |run| &run.trace().rss),
        ("Device in use", |run| &run.trace().in_use),
        ("Device reserved", |run| &run.trace().reserved),
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
type SelectSeries = fn(&RunView) -> &ThinnedSeries;

fn overlaid<'a, T: Copy + 'a>(
    all: &'a [ComparedRun],
    shape: CurveStyle,
    select: impl Fn(&'a RunView) -> Option<&'a ThinnedSeries<T>>,
) -> Vec<Curve> {
    let curve = |(at, run): (usize, &'a ComparedRun)| {
        Curve::from_series(&run.label, select(&run.view)?, (at + 1) as u8, shape.clone())
    };
    all.iter().enumerate().filter_map(curve).collect()
}

fn figure(title: &str, caption: &str, unit: AxisUnit, curves: Vec<Curve>, x: &'static str) -> Option<Plot> {
    let x_unit = if x == "step" { AxisUnit::Number } else { AxisUnit::Seconds };
    let plot = Plot::fitted(&printable::line(title, 80), (x, x_unit), unit, curves)?;
    Some(Plot { caption: caption.into(), half: true, ..plot })
}
