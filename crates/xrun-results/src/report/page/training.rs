//! Losses, validation metrics, learning rate and gradient norm.

use maud::{Markup, html};

use crate::report::axes::AxisUnit;
use crate::report::formatting::number;
use crate::report::plots::{COLOURS, Curve, CurveStyle, Plot};
use crate::report::result::MetricResult;
use crate::report::summary;
use crate::report::table::{Table, grouped};
use crate::view::RunView;
use xrun_core::printable;

/// Maximum number of figures of metrics; the table lists all metrics.
const METRIC_FIGURES_MAX: usize = 12;

/// Table of best, last and first values.
pub fn results(report: &RunView) -> Markup {
    let metrics = report.metrics();
    let result = summary::metrics(report);
    html! {
        (result.html())
        @if !result.table.rows.is_empty() {
            p.note {
                "“Before” is before the first step, “after” the last validation, both on held-out data."
                @if metrics.iter().any(|metric| metric.planned.unit == "share") { " A share is a fraction from 0 to 1." }
            }
            (descriptions(&metrics))
        }
    }
}

/// Descriptions of the metrics, each once for all metrics that share it.
fn descriptions(metrics: &[MetricResult]) -> Markup {
    let described = metrics.iter().filter(|metric| !metric.planned.about.is_empty());
    let groups = grouped(described.map(|metric| (metric.planned.about.as_str(), metric.planned.name.as_str())));
    let row =
        |(about, names): &(&str, Vec<&str>)| vec![printable::line(&names.join(", "), 200), printable::line(about, 300)];
    let table = Table::new(&["metric", "description"], groups.iter().map(row).collect());
    html! {
        @if !groups.is_empty() {
            details { summary { "Descriptions of the metrics" } (table.html()) }
        }
    }
}

/// Figures of losses, metrics, learning rate and gradient norm.
pub fn curves(report: &RunView) -> Markup {
    let curves = report.curves();
    let (metrics, left_out) = metrics(report);
    let mut plots: Vec<Plot> = losses(report).into_iter().chain(metrics).collect();
    let rate = Curve::from_series("learning rate", &curves.learning_rate, 1, CurveStyle::Line);
    plots.extend(half("Learning rate", rate.into_iter().collect()));
    let norm = Curve::from_series("each step", &curves.gradient_norm, 2, CurveStyle::Line).map(|curve| Curve {
        shape: if curves.gradient_norm_median.is_empty() { CurveStyle::Line } else { CurveStyle::Faint },
        ..curve
    });
    let median = Curve::from_series("running median", &curves.gradient_norm_median, 2, CurveStyle::Line);
    let norms = half("Gradient norm, before clipping", norm.into_iter().chain(median).collect());
    plots.extend(norms.map(|plot| {
        let faint = "Faint: each step. Strong: median over the last steps.";
        let caption = if plot.curves.len() > 1 { faint.into() } else { String::new() };
        Plot { caption, ..plot }
    }));
    html! {
        @if !plots.is_empty() {
            h2 { "Training" }
            div.plots { @for plot in &plots { (plot.figure()) } }
            @if left_out > 0 { p.note { (left_out) " more figures are not shown; " code { "metrics.jsonl" } " has all numbers." } }
        }
    }
}

fn half(title: &str, curves: Vec<Curve>) -> Option<Plot> {
    Plot::fitted(title, ("step", AxisUnit::Number), AxisUnit::Number, curves).map(|plot| Plot { half: true, ..plot })
}

fn losses(report: &RunView) -> Option<Plot> {
    let losses = &report.curves().losses;
    let mut curves = Vec::new();
    for (at, loss) in losses.iter().enumerate() {
        curves.extend(Curve::from_series(&loss.kind, &loss.raw, colour(at), CurveStyle::Faint));
    }
    for (at, loss) in losses.iter().enumerate() {
        curves.extend(Curve::from_series(&loss.kind, &loss.smooth, colour(at), CurveStyle::Line));
    }
    let plot = Plot::fitted("Training loss by kind of step", ("step", AxisUnit::Number), AxisUnit::Number, curves)?;
    let caption = format!(
        "Faint: each step. Strong: exponential moving average over {} steps of its kind, as in the table.",
        number(report.curves().averaging_window)
    );
    Some(Plot { caption, ..plot }.logarithmic_if_far_apart())
}

/// One figure per family of metrics, that of the best checkpoint's metric first; and the number of figures left out.
fn metrics(report: &RunView) -> (Vec<Plot>, usize) {
    let measured = report.metrics();
    let families = grouped(measured.iter().map(|metric| (metric.planned.family.as_str(), metric)));
    let mut plots: Vec<Plot> = Vec::new();
    for (family, members) in &families {
        for group in members.chunks(COLOURS) {
            plots.extend(figure(report, family, group));
        }
    }
    if let Some(first) = plots.first_mut() {
        first.half = false;
    }
    let left_out = plots.len().saturating_sub(METRIC_FIGURES_MAX);
    plots.truncate(METRIC_FIGURES_MAX);
    (plots, left_out)
}

/// Figure of a family of metrics, with bands for the 95 % intervals of means over episodes.
fn figure(report: &RunView, family: &str, members: &[&MetricResult]) -> Option<Plot> {
    let (mut bands, mut lines) = (Vec::new(), Vec::new());
    let mut lowest = f64::INFINITY;
    let highest_possible = match members.first().map(|metric| metric.planned.unit.as_str()) {
        Some("share") => 1.0,
        Some("%") => 100.0,
        _ => f64::INFINITY,
    };
    for (at, metric) in members.iter().enumerate() {
        let line = &metric.planned.line;
        let Some(series) = report.curves().metric(&metric.planned.name) else { continue };
        let points = series.points();
        // A metric that is no mean over episodes has no intervals.
        if points.iter().any(|point| point.extra > 0.0) {
            let lower: Vec<f64> = points.iter().map(|point| point.y - point.extra).collect();
            lowest = lower.iter().copied().fold(lowest, f64::min);
            bands.push(Curve {
                name: printable::line(line, 60),
                points: points.iter().map(|point| (point.x, (point.y + point.extra).min(highest_possible))).collect(),
                colour: colour(at),
                shape: CurveStyle::Band { base: lower },
                numbers: [0.0; 4],
            });
        }
        lines.extend(Curve::from_series(line, series, colour(at), CurveStyle::Points));
    }
    let has_bands = !bands.is_empty();
    let unit = members.first().map_or("", |metric| metric.planned.unit.as_str());
    let unit = if unit.is_empty() || unit == "share" { String::new() } else { format!(" ({unit})") };
    let title = printable::line(&format!("{family}{unit}"), 80);
    let plot = half(&title, bands.into_iter().chain(lines).collect())?;
    let mut caption = String::from("Held-out data; step 0 is the untrained model.");
    if has_bands {
        caption.push_str(" Bands: 95 % interval of the mean.");
    }
    // A quantity that starts at 0 has no values below it, but an interval may.
    let bottom = if plot.y.0 >= 0.0 { plot.y.0.min(lowest.max(0.0)) } else { plot.y.0.min(lowest) };
    let plot = Plot { y: (bottom, plot.y.1.min(1.04 * highest_possible)), caption, ..plot };
    // A fraction has a known range, and a band may reach below 0.
    Some(if highest_possible.is_infinite() && !has_bands { plot.logarithmic_if_far_apart() } else { plot })
}

fn colour(at: usize) -> u8 {
    (at % COLOURS) as u8 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::MetricsLine;
    use crate::read;
    use crate::report::run_report::open;
    use crate::report::sample::{PLAIN, finished, write_lines};
    use crate::report::series::ThinnedSeries;
    use xrun_core::files::{layout, write};
    use xrun_core::task::metric::{Direction, PlannedMetric};

    /// Sample run with two families of metrics for these widths, validated after steps 0, 10 and 20.
    fn quantised(results: &std::path::Path, widths: &[String]) -> RunView {
        let run = finished(results, PLAIN);
        let mut plan = read::plan(&run).unwrap();
        let metric = |family: &str, width: &String, direction, unit: &str| PlannedMetric {
            name: format!("{family}_{width}"),
            unit: unit.into(),
            family: family.into(),
            line: width.clone(),
            about: format!("What {family} is."),
            ..PlannedMetric::plain("", direction)
        };
        let of_width =
            |width| [metric("perplexity", width, Direction::Lower, ""), metric("f1", width, Direction::Higher, "%")];
        plan.metrics = widths.iter().flat_map(of_width).collect();
        plan.best_by = Some(format!("perplexity_{}", widths[0]));
        write::replace_json(&run.join(layout::PLAN), &plan).unwrap();
        let validation = |(step, shrunk): (u64, f64)| {
            let values = [("perplexity", 532.0 / shrunk), ("f1", 4.0 * shrunk)];
            let of_width = |width: &String| values.map(|(family, value)| (format!("{family}_{width}"), Some(value)));
            let metrics = widths.iter().flat_map(of_width).collect();
            MetricsLine::Validation { step, epoch: 1, metrics, intervals: Default::default() }
        };
        write_lines(&run.join(layout::METRICS), &[(0, 1.0), (10, 20.0), (20, 24.0)].map(validation));
        std::fs::remove_file(run.join(layout::SUMMARY)).unwrap();
        open(&run).unwrap()
    }

    #[test]
    fn a_family_of_metrics_is_one_figure_and_the_best_checkpoint_metric_comes_first() {
        let results = tempfile::tempdir().unwrap();
        let widths = ["full", "8 bit"].map(str::to_owned);
        let report = quantised(results.path(), &widths);
        let (plots, left_out) = metrics(&report);
        let lines = |plot: &Plot| plot.curves.iter().map(|curve| curve.name.clone()).collect::<Vec<_>>();
        let figures: Vec<(&str, Vec<String>)> = plots.iter().map(|plot| (plot.title.as_str(), lines(plot))).collect();
        assert_eq!(figures, [("perplexity", widths.to_vec()), ("f1 (%)", widths.to_vec())]);
        assert_eq!(left_out, 0);
        assert!(plots[0].log_y && !plots[1].log_y, "532 and 22 on one axis");
        assert!(!plots[0].half && plots[1].half);
        assert!(plots[1].y.0 == 0.0 && plots[1].y.1 <= 104.0, "{:?}", plots[1].y);
        let f1 = report.metrics().into_iter().find(|metric| metric.planned.name == "f1_full").unwrap();
        assert_eq!(f1.value(f1.after.unwrap()), "96 %");
        let page = super::results(&report).into_string();
        assert_eq!(page.matches("What f1 is.").count(), 1, "said once of all widths");
    }

    #[test]
    fn a_family_with_more_curves_than_colours_is_split_into_figures() {
        let results = tempfile::tempdir().unwrap();
        let widths: Vec<String> = (2..=16).map(|bits| format!("{bits} bit")).collect();
        let (plots, left_out) = metrics(&quantised(results.path(), &widths));
        let drawn: usize = plots.iter().map(|plot| plot.curves.len()).sum();
        assert_eq!((drawn, left_out), (2 * 15, 0));
        assert!(plots.iter().all(|plot| plot.curves.len() <= COLOURS));
    }

    #[test]
    fn the_axis_is_logarithmic_only_for_a_wide_range() {
        let plot = |last: f64| {
            let mut smooth = ThinnedSeries::default();
            (0..50).for_each(|step| smooth.add(f64::from(step), 10.0 * (last / 10.0).powf(f64::from(step) / 49.0), ()));
            half("loss", vec![Curve::from_series("a", &smooth, 1, CurveStyle::Line).unwrap()])
                .unwrap()
                .logarithmic_if_far_apart()
        };
        let (far, near) = (plot(0.01), plot(3.0));
        assert!(far.log_y && !far.caption.is_empty() && !near.log_y && near.caption.is_empty());
    }
}
