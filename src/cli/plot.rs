//! `xrun show --plot loss,rss`: curves of a run in the terminal, drawn with Braille characters.

use textplots::{Chart, LabelBuilder, LabelFormat, Plot, Shape};

use crate::problem::nearest;
use crate::report::formatting::number;
use crate::report::series::ThinnedSeries;
use crate::results::view::RunView;
use crate::units::{Bytes, seconds};

/// Rows of characters of a plot.
const ROWS: u32 = 10;
/// Least and greatest number of columns of the curve; labels follow on its right.
const COLUMNS: (usize, usize) = (32, 100);
/// Columns for the labels: `1023.9 MiB` and a space.
const LABEL_COLUMNS: usize = 12;
/// Largest number of curves of one call.
const CURVES_MAX: usize = 16;

/// Quantity on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Number,
    Bytes,
    Seconds,
    Step,
}

impl Quantity {
    fn label(self, value: f64) -> String {
        match self {
            Self::Number => number(value),
            Self::Bytes => Bytes(value.max(0.0) as u64).to_string(),
            Self::Seconds => seconds(value),
            Self::Step => format!("step {value:.0}"),
        }
    }
}

/// Curve to plot: its title, points, and the quantities on its axes.
struct Curve {
    title: String,
    points: Vec<(f64, f64)>,
    x: Quantity,
    y: Quantity,
}

impl Curve {
    fn new<T: Copy>(title: String, series: &ThinnedSeries<T>, x: Quantity, y: Quantity) -> Self {
        let points = series.points().into_iter().map(|point| (point.x, point.y));
        Self { title, points: points.filter(|(_, y)| y.abs() < LARGEST).collect(), x, y }
    }
}

/// Values from this size on are not drawn: the plot computes in 32 bits.
const LARGEST: f64 = 1e30;

/// Plots of the named series, for a terminal of `width` characters. Ends with a line break.
///
/// # Errors
/// The run has no series of a name.
pub fn plot(report: &RunView, names: &[String], width: Option<usize>) -> Result<String, String> {
    let columns = width.map_or(COLUMNS.1, |width| width.saturating_sub(LABEL_COLUMNS)).clamp(COLUMNS.0, COLUMNS.1);
    let found: Vec<Vec<Curve>> = names.iter().map(|name| curves(report, name)).collect::<Result<_, _>>()?;
    Ok(found.iter().flatten().take(CURVES_MAX).map(|curve| draw(curve, columns)).collect::<Vec<_>>().join("\n"))
}

/// Names of the series that a run has.
fn names(report: &RunView) -> Vec<&str> {
    let (curves, trace) = (report.curves(), report.trace());
    let series = [
        ("loss", curves.losses.is_empty()),
        ("rss", trace.rss.is_empty()),
        ("heap", trace.heap.is_empty()),
        ("device", trace.reserved.is_empty()),
        ("learning_rate", curves.learning_rate.is_empty()),
        ("gradient_norm", curves.gradient_norm.is_empty()),
    ];
    let own = series.into_iter().filter(|(_, is_empty)| !is_empty).map(|(name, _)| name);
    own.chain(curves.metrics.iter().map(|(name, _)| name.as_str())).collect()
}

fn curves(report: &RunView, name: &str) -> Result<Vec<Curve>, String> {
    use Quantity::{Bytes, Number, Seconds, Step};
    let known = names(report);
    if !known.contains(&name) {
        let near = nearest(name, known.iter().copied());
        let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        return Err(format!("--plot {name}: the run has no such series; {near}known: {}", known.join(", ")));
    }
    let (curves, trace) = (report.curves(), report.trace());
    let one = |series, x, y| vec![Curve::new(name.to_owned(), series, x, y)];
    Ok(match name {
        "loss" => {
            let over = number(curves.averaging_window);
            let title = |kind: &str| match curves.losses.len() {
                1 => format!("loss, moving average over {over} steps"),
                _ => format!("loss {kind}, moving average over {over} steps"),
            };
            curves.losses.iter().map(|loss| Curve::new(title(&loss.kind), &loss.smooth, Step, Number)).collect()
        }
        "rss" => one(&trace.rss, Seconds, Bytes),
        "heap" => one(&trace.heap, Seconds, Bytes),
        "device" => one(&trace.reserved, Seconds, Bytes),
        "learning_rate" => one(&curves.learning_rate, Step, Number),
        "gradient_norm" => one(&curves.gradient_norm, Step, Number),
        metric => {
            let series = curves.metric(metric).into_iter();
            series.map(|series| Curve::new(metric.to_owned(), series, Step, Number)).collect()
        }
    })
}

/// Plot of a curve below its title, with labels at the ends of both axes.
fn draw(curve: &Curve, columns: usize) -> String {
    let Curve { title, points, x, y } = curve;
    let Some((first, last)) = points.first().zip(points.last()) else { return format!("{title}: no value\n") };
    let title = format!("{title}: {} -> {}", y.label(first.1), y.label(last.1));
    if first.0 == last.0 {
        return format!("{title}\n");
    }
    let (low, high) =
        points.iter().fold((f64::MAX, f64::MIN), |(low, high), point| (low.min(point.1), high.max(point.1)));
    // A constant is drawn in the middle.
    let margin = if low == high { low.abs().max(1e-3) / 10.0 } else { 0.0 };
    let (low, high) = (low - margin, high + margin);
    // One dot less: a point at the end of an axis lies within the last character.
    let (width, height) = (2 * columns as u32 - 1, 4 * ROWS - 1);
    let dots: Vec<(f32, f32)> = points.iter().map(|(x, y)| ((x - first.0) as f32, (y - low) as f32)).collect();
    let shape = Shape::Lines(&dots);
    let mut chart = Chart::new_with_y_range(width, height, 0.0, (last.0 - first.0) as f32, 0.0, (high - low) as f32);
    // Labels are those of the values before the shift, which keeps the precision of 32 bits.
    let (x_start, x, y) = (first.0, *x, *y);
    let chart = chart.lineplot(&shape);
    let chart = chart.x_label_format(LabelFormat::Custom(Box::new(move |value| x.label(x_start + f64::from(value)))));
    let chart = chart.y_label_format(LabelFormat::Custom(Box::new(move |value| y.label(low + f64::from(value)))));
    chart.figures();
    let drawn = chart.to_string();
    let lines = drawn.lines().map(|line| line.trim_end_matches([' ', '\u{2800}']));
    format!("{title}\n{}\n", lines.collect::<Vec<_>>().join("\n").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        Curve { title: "rss".into(), points: points.to_vec(), x: Quantity::Seconds, y: Quantity::Bytes }
    }

    #[test]
    fn a_curve_rises_from_the_lower_left_to_the_upper_right() {
        let text = draw(&curve(&[(0.0, 1_048_576.0), (60.0, 3_145_728.0)]), 32);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + ROWS as usize + 1, "{text}");
        assert_eq!(lines[0], "rss: 1.0 MiB -> 3.0 MiB");
        assert!(lines[1].ends_with("3.0 MiB") && lines[ROWS as usize].ends_with("1.0 MiB"), "{text}");
        let is_drawn = |line: &str, column: usize| line.chars().nth(column).is_some_and(|one| one > '\u{2800}');
        assert!(is_drawn(lines[1], 31) && is_drawn(lines[ROWS as usize], 0), "{text}");
        assert!(!is_drawn(lines[1], 0) && !is_drawn(lines[ROWS as usize], 31), "{text}");
    }

    #[test]
    fn constants_single_values_and_huge_values_are_drawn_without_a_panic() {
        for points in [vec![], vec![(3.0, 7.0)], vec![(0.0, 7.0), (9.0, 7.0)], vec![(0.0, -1e29), (1.0, 1e29)]] {
            assert!(draw(&curve(&points), 100).starts_with("rss: "));
        }
        assert_eq!(draw(&curve(&[(3.0, 2048.0)]), 32), "rss: 2.0 KiB -> 2.0 KiB\n");
    }
}
