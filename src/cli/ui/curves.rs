//! Curves of a run for the browser, thinned.

use std::path::Path;

use serde::Serialize;

use crate::printable;
use crate::report::series::ThinnedSeries;
use crate::results::view::RunView;

/// Largest number of points of a curve.
const POINTS_MAX: usize = 400;
const METRICS_MAX: usize = 24;

/// Curves of one run.
#[derive(Clone, Debug, Serialize)]
pub struct RunCurves {
    /// Loss of each kind of steps (a moving average), metrics by step, and memory by time.
    pub curves: Vec<NamedCurve>,
}

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub struct NamedCurve {
    /// `loss, detection`, `map50`, `heap`.
    pub name: String,
    /// Label of the x axis: `step` or `training time`.
    pub x_label: &'static str,
    /// `number` or `bytes`.
    pub unit: &'static str,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
}

/// Reads the curves; a run without records has none.
pub fn read(run: &Path) -> RunCurves {
    let run = RunView::open(run);
    let (curves, trace) = (run.curves(), run.trace());
    let several = curves.losses.len() > 1;
    let losses = curves.losses.iter().map(|loss| {
        let name = if several { format!("loss, {}", loss.kind) } else { "loss".into() };
        named(&name, "step", "number", &loss.smooth)
    });
    let metrics = curves.metrics.iter().take(METRICS_MAX).map(|(name, series)| named(name, "step", "number", series));
    let memory = [
        ("heap", &trace.heap),
        ("RSS", &trace.rss),
        ("device in use", &trace.in_use),
        ("device reserved", &trace.reserved),
    ];
    let memory = memory.into_iter().map(|(name, series)| named(name, "training time", "bytes", series));
    RunCurves { curves: losses.chain(metrics).chain(memory).filter(|curve| !curve.x.is_empty()).collect() }
}

fn named<T: Copy>(name: &str, x_label: &'static str, unit: &'static str, series: &ThinnedSeries<T>) -> NamedCurve {
    let points: Vec<(f64, f64)> = series.points().iter().map(|point| (point.x, point.y)).collect();
    let (x, y) = thinned(&points).into_iter().map(|(x, y)| (rounded(x), rounded(y))).unzip();
    NamedCurve { name: printable::line(name, 60), x_label, unit, x, y }
}

/// The lowest and the highest of neighbouring points, in order.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(POINTS_MAX);
    for chunk in points.chunks(points.len().div_ceil(POINTS_MAX / 2)) {
        let extreme = |pick: fn(&(f64, f64), &(f64, f64)) -> bool| {
            let best = chunk.iter().enumerate().reduce(|a, b| if pick(b.1, a.1) { b } else { a });
            best.map_or(0, |(at, _)| at)
        };
        let (low, high) = (extreme(|a, b| a.1 < b.1), extreme(|a, b| a.1 > b.1));
        kept.push(chunk[low.min(high)]);
        kept.extend((low != high).then(|| chunk[low.max(high)]));
    }
    kept
}

/// Six significant digits, which are shorter to send.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_curve_keeps_its_extremes_and_order() {
        let points: Vec<(f64, f64)> =
            (0..5000).map(|x| (f64::from(x), if x == 3001 { 9.0 } else { f64::from(x % 7) })).collect();
        let kept = thinned(&points);
        assert!(kept.len() <= POINTS_MAX && kept.windows(2).all(|pair| pair[0].0 < pair[1].0), "{}", kept.len());
        assert!(kept.contains(&(3001.0, 9.0)));
        assert_eq!(thinned(&points[..10]), points[..10]);
    }
}
