//! Losses, held-out metrics, learning rate and gradient norm.

use maud::{Markup, html};

use crate::report::axes::{Unit, number};
use crate::report::material::{Material, about_intervals};
use crate::report::plots::{COLOURS, Curve, Plot, Shape};
use crate::report::series::Series;
use crate::results::metric::Better;
use crate::results::printable;

/// Metrics in one figure: more lines cannot be told apart.
const METRICS_TOGETHER: usize = 5;
/// Figures of metrics: more are left to metrics.jsonl, and the table has all.
const METRIC_FIGURES_MAX: usize = 6;
/// A curve is cut when its highest is this many times what nearly all of it stays below.
const CUT_FACTOR: f64 = 1.5;

/// First, last and best of what was measured.
pub fn results(material: &Material) -> Markup {
    let metrics = material.metrics();
    let best = material.ending().and_then(|summary| summary.best.as_ref());
    let (first, last) = material.losses();
    let shown = |value: Option<f64>| value.map_or("–".into(), number);
    let highest = |name: &str| {
        material
            .curves
            .metrics
            .iter()
            .find(|(known, _)| known == name)
            .and_then(|(_, series)| Some((series.lowest?, series.highest?)))
    };
    html! {
        @if first.is_some() || !metrics.is_empty() {
            h2 { "Result" }
            div.wide { table {
                thead { tr {
                    th { "" } th { "unit" } th { "better" } th.r { "before" } th.r { "after" } th { "95 %" }
                    th.r { "lowest" } th.r { "highest" } th { "best checkpoint" }
                } }
                tbody {
                    @if first.is_some() {
                        tr {
                            th scope="row" { "training loss" } td { "" } td { "lower" }
                            td.r { (shown(first)) } td.r.strong { (shown(last)) } td { "" } td.r { "" } td.r { "" } td { "" }
                        }
                    }
                    @for metric in &metrics {
                        @let range = highest(&metric.name);
                        tr {
                            th scope="row" { (printable::line(&metric.name, 80)) }
                            td { (printable::line(&metric.unit, 16)) } td { (metric.better.map_or("", Better::words)) }
                            td.r { (shown(metric.before)) } td.r.strong { (shown(metric.after)) }
                            td { @if let Some(interval) = metric.interval { "± " (number(interval.half_width)) } }
                            td.r { (shown(range.map(|range| range.0.y))) } td.r { (shown(range.map(|range| range.1.y))) }
                            td {
                                @if let Some(best) = best.filter(|best| best.metric == metric.name) {
                                    (number(best.value)) " after step " (best.step)
                                }
                            }
                        }
                    }
                }
            } }
            p.note {
                "“Before” is the untrained model. The loss is of single training steps, the metrics are of held-out data."
                @if metrics.iter().any(|metric| metric.unit == "share") { " A share is from 0 to 1." }
                @if let Some(about) = about_intervals(&metrics) { " " (about) "." }
            }
        }
    }
}

/// The figures.
pub fn curves(material: &Material) -> Markup {
    let curves = &material.curves;
    let mut plots: Vec<Plot> = losses(material).into_iter().collect();
    plots.extend(metrics(material));
    plots.extend(means(material));
    let rate = Curve::of("learning rate", &curves.learning_rate, 1, Shape::Line);
    plots.extend(half("Learning rate", rate.into_iter().collect()));
    let norm = Curve::of("each step", &curves.gradient_norm, 2, Shape::Line).map(|curve| Curve {
        shape: if curves.gradient_norm_median.is_empty() { Shape::Line } else { Shape::Faint },
        ..curve
    });
    let median = Curve::of("running median", &curves.gradient_norm_median, 2, Shape::Line);
    let norms = half("Gradient norm, before clipping", norm.into_iter().chain(median).collect());
    plots.extend(norms.map(|plot| {
        let faint = "Faint: each step. Strong: median over the last steps.";
        cut(
            Plot { caption: if plot.curves.len() > 1 { faint.into() } else { String::new() }, ..plot },
            &[&curves.gradient_norm],
        )
    }));
    html! {
        @if !plots.is_empty() {
            h2 { "Training" }
            div.plots { @for plot in &plots { (plot.figure()) } }
        }
    }
}

fn half(title: &str, curves: Vec<Curve>) -> Option<Plot> {
    Plot::of(title, ("step", Unit::Number), Unit::Number, curves).map(|plot| Plot { half: true, ..plot })
}

fn losses(material: &Material) -> Option<Plot> {
    let losses = &material.curves.losses;
    let mut curves = Vec::new();
    for (at, loss) in losses.iter().enumerate() {
        curves.extend(Curve::of(&loss.kind, &loss.raw, colour(at), Shape::Faint));
    }
    for (at, loss) in losses.iter().enumerate() {
        curves.extend(Curve::of(&loss.kind, &loss.smooth, colour(at), Shape::Line));
    }
    let plot = Plot::of("Training loss by kind of step", ("step", Unit::Number), Unit::Number, curves)?;
    let caption = format!(
        "Faint: each step. Strong: exponential moving average over {} steps of the kind; the table is of these.",
        number(material.curves.smoothed_over)
    );
    Some(cut(Plot { caption, ..plot }, &losses.iter().map(|loss| &loss.raw).collect::<Vec<_>>()))
}

/// Shares first: what lies between 0 and 1 has one axis, anything else has its own figure.
fn metrics(material: &Material) -> Vec<Plot> {
    let curves = &material.curves;
    // Means over episodes have a figure of their own.
    let is_mean = |name: &str| curves.means.iter().any(|(known, _)| known == name);
    let mut metrics: Vec<&(String, Series)> = curves.metrics.iter().filter(|(name, _)| !is_mean(name)).collect();
    metrics.sort_by_key(|(name, _)| material.place_of_metric(name));
    let is_share = |series: &Series| {
        series.lowest.is_some_and(|point| point.y >= 0.0) && series.highest.is_some_and(|point| point.y <= 1.0)
    };
    let (shares, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(|(_, series)| is_share(series));
    let curve = |at: usize, (name, series): &(String, Series)| Curve::of(name, series, colour(at), Shape::Points);
    let mut plots = Vec::new();
    for group in shares.chunks(METRICS_TOGETHER) {
        let curves = group.iter().enumerate().filter_map(|(at, metric)| curve(at, metric)).collect();
        let plot = Plot::of("Held-out metrics", ("step", Unit::Number), Unit::Number, curves);
        plots.extend(plot.map(|plot| Plot {
            caption: "After the steps of each validation; step 0 is the untrained model.".into(),
            y: (0.0, plot.y.1.min(1.04)),
            ..plot
        }));
    }
    for metric in others {
        plots.extend(half(&printable::line(&metric.0, 60), curve(0, metric).into_iter().collect()));
    }
    plots.truncate(METRIC_FIGURES_MAX);
    plots
}

/// Means over episodes, each in a band that its interval makes.
fn means(material: &Material) -> Option<Plot> {
    let mut means: Vec<&(String, Series<f64>)> = material.curves.means.iter().collect();
    means.sort_by_key(|(name, _)| material.place_of_metric(name));
    means.truncate(METRICS_TOGETHER);
    let mut curves = Vec::new();
    let mut lowest = f64::INFINITY;
    for (at, (name, series)) in means.iter().enumerate() {
        let points = series.points();
        let base: Vec<f64> = points.iter().map(|point| point.y - point.rest).collect();
        lowest = base.iter().copied().fold(lowest, f64::min);
        curves.push(Curve {
            name: printable::line(name, 60),
            points: points.iter().map(|point| (point.x, point.y + point.rest)).collect(),
            colour: colour(at),
            shape: Shape::Band { base },
            numbers: [0.0; 4],
        });
    }
    for (at, (name, series)) in means.into_iter().enumerate() {
        curves.extend(Curve::of(name, series, colour(at), Shape::Points));
    }
    let plot = Plot::of("Means over episodes", ("step", Unit::Number), Unit::Number, curves)?;
    let caption = "What each episode scores by itself. Bands: 95 % interval of the mean.".into();
    // Nothing that is measured lies below 0; an interval may.
    let bottom = if plot.y.0 >= 0.0 { plot.y.0.min(lowest.max(0.0)) } else { plot.y.0.min(lowest) };
    Some(Plot { caption, y: (bottom, plot.y.1), half: true, ..plot })
}

fn colour(at: usize) -> u8 {
    (at % COLOURS) as u8 + 1
}

/// Lowers the top of a plot to what 98 of 100 points stay below, when single peaks are far higher, and says so.
fn cut(plot: Plot, series: &[&Series]) -> Plot {
    let mut heights: Vec<f64> = series.iter().flat_map(|series| series.points()).map(|point| point.y).collect();
    heights.sort_by(f64::total_cmp);
    let Some(&common) = heights.get((heights.len() * 98 / 100).min(heights.len().saturating_sub(1))) else {
        return plot;
    };
    let Some(peak) = series.iter().filter_map(|series| series.highest).max_by(|a, b| a.y.total_cmp(&b.y)) else {
        return plot;
    };
    let top = plot.y.0 + (common - plot.y.0) * 1.15;
    if !(common > plot.y.0 && peak.y > plot.y.0 + CUT_FACTOR * (top - plot.y.0)) {
        return plot;
    }
    let caption = format!(
        "{} Peaks are cut off above {}; the highest is {} at step {}.",
        plot.caption,
        number(top),
        number(peak.y),
        peak.x
    );
    Plot { caption: caption.trim_start().into(), y: (plot.y.0, top), ..plot }
}
