//! Figures: curves as inline SVG, axes and labels as HTML around it.
//!
//! Only the curves stretch with the page (`preserveAspectRatio="none"`, strokes keep their width), so labels stay
//! legible on a phone and on paper. Each curve has a class, which the style sheet colours for light and dark pages.
//! The table under a plot is its legend and text alternative.

use maud::{Markup, html};

use super::axes::{self, AxisUnit};
use super::series::ThinnedSeries;
use xrun_core::printable;

/// Inner size of a drawing; only its resolution matters, because it is stretched.
const WIDTH: u32 = 2_000;
const HEIGHT: u32 = 600;
/// Height of a mark at the bottom, and minimum width of a shaded range, so that a short validation is visible.
const RUG_HEIGHT: u32 = 21;
const BAND_WIDTH_MIN: i64 = 3;

/// Number of colours: the classes `c1` to `c7` of the style sheet.
pub const COLOURS: usize = 7;

/// Style of a curve.
#[derive(Clone, Debug, PartialEq)]
pub enum CurveStyle {
    /// Faint line behind the others, not listed in the table.
    Faint,
    /// Strong line.
    Line,
    /// Line with marked points.
    Points,
    /// Points without a line, not listed in the table.
    Dots,
    /// Area down to the curve below it, whose heights are `base`.
    Area {
        /// Heights of the lower edge, one per point.
        base: Vec<f64>,
    },
    /// Faint area of uncertainty down to `base`, not listed in the table.
    Band {
        /// Heights of the lower edge, one per point.
        base: Vec<f64>,
    },
}

/// Curve of a figure.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Name in the table.
    pub name: String,
    /// x and y of each point.
    pub points: Vec<(f64, f64)>,
    /// Colour from 1 to [`COLOURS`].
    pub colour: u8,
    /// Style.
    pub shape: CurveStyle,
    /// First, lowest, highest and last value.
    pub numbers: [f64; 4],
}

impl Curve {
    /// Curve of a series; `None` if it has no points.
    pub fn from_series<T: Copy>(name: &str, series: &ThinnedSeries<T>, colour: u8, shape: CurveStyle) -> Option<Self> {
        let y = |point: Option<super::series::SeriesPoint<T>>| point.map(|point| point.y);
        let numbers = [y(series.first)?, y(series.lowest)?, y(series.highest)?, y(series.last)?];
        let points = series.points().iter().map(|point| (point.x, point.y)).collect();
        Some(Self { name: printable::line(name, 60), points, colour, shape, numbers })
    }
}

impl Curve {
    /// Returns `true` if the curve is listed in the table.
    fn is_listed(&self) -> bool {
        !matches!(self.shape, CurveStyle::Faint | CurveStyle::Dots | CurveStyle::Band { .. })
    }
}

/// Ratio of highest to lowest value from which a logarithmic axis is used.
const LOG_FROM: f64 = 20.0;

/// Figure before it is drawn.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Heading.
    pub title: String,
    /// Description in a sentence or two.
    pub caption: String,
    /// Label of the x axis.
    pub x_label: &'static str,
    /// Unit of the x axis.
    pub x_unit: AxisUnit,
    /// Range of the x axis.
    pub x: (f64, f64),
    /// Unit of the y axis.
    pub y_unit: AxisUnit,
    /// Range of the y axis.
    pub y: (f64, f64),
    /// Curves, drawn in this order.
    pub curves: Vec<Curve>,
    /// Shaded ranges of x.
    pub bands: Vec<(f64, f64)>,
    /// x of short marks at the bottom.
    pub rug: Vec<f64>,
    /// x of vertical lines.
    pub boundaries: Vec<f64>,
    /// Labels at points, shown in place of the table.
    pub labels: Vec<(f64, f64, String)>,
    /// Half width, next to another figure if there is room.
    pub half: bool,
    /// Logarithmic x axis; all values must be positive.
    pub log_x: bool,
    /// Logarithmic y axis; all values must be positive.
    pub log_y: bool,
}

impl Plot {
    /// Plot with axes that fit the curves. `None` without points, and if all curves have one point at the same x: a
    /// number says more.
    pub fn fitted(title: &str, x: (&'static str, AxisUnit), y_unit: AxisUnit, curves: Vec<Curve>) -> Option<Self> {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
        };
        let x_range = range(&mut points().map(|point| point.0));
        let (low, high) = range(&mut points().map(|point| point.1));
        if !(x_range.0.is_finite() && low.is_finite()) {
            return None;
        }
        if x_range.0 == x_range.1 && curves.iter().all(|curve| curve.points.len() == 1) {
            return None;
        }
        // Starts at 0, so that heights are comparable, unless the values are far from 0 or negative.
        let low = if low >= 0.0 && (y_unit == AxisUnit::Bytes || low < 0.5 * high) { 0.0 } else { low };
        let room = 0.06 * (high - low);
        let y = match (low, high) {
            // A constant is drawn against 0.
            (low, high) if low == high && low == 0.0 => (0.0, 1.0),
            (low, high) if low == high => (1.25 * low.min(0.0), 1.25 * high.max(0.0)),
            (0.0, high) => (0.0, high + room),
            (low, high) => (low - room, high + room),
        };
        Some(Self {
            title: title.into(),
            caption: String::new(),
            x_label: x.0,
            x_unit: x.1,
            x: if x_range.1 > x_range.0 { x_range } else { (x_range.0 - 0.5, x_range.0 + 0.5) },
            y_unit,
            y,
            curves,
            bands: Vec::new(),
            rug: Vec::new(),
            boundaries: Vec::new(),
            labels: Vec::new(),
            half: false,
            log_x: false,
            log_y: false,
        })
    }

    /// Minimum and maximum y over all curves.
    pub fn y_range(&self) -> (f64, f64) {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        points.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| (low.min(point.1), high.max(point.1)))
    }

    /// Makes the y axis logarithmic if all values are positive and those of the listed curves span more than a factor
    /// of [`LOG_FROM`]; adds a sentence to the caption.
    pub fn logarithmic_if_far_apart(self) -> Self {
        let listed = self.curves.iter().filter(|curve| curve.is_listed()).flat_map(|curve| &curve.points);
        let range = |(low, high): (f64, f64), point: &(f64, f64)| (low.min(point.1), high.max(point.1));
        let (low, high) = listed.fold((f64::INFINITY, 0.0), range);
        match self.y_range().0 > 0.0 && high > LOG_FROM * low {
            true => {
                let caption = format!("{} The axis is logarithmic.", self.caption);
                Self { caption, ..self.on_logarithmic_y() }
            }
            false => self,
        }
    }

    /// Makes the y axis logarithmic; all values must be positive.
    pub fn on_logarithmic_y(self) -> Self {
        let (low, high) = self.y_range();
        Self { y: (low / 1.15, high * 1.15), log_y: true, ..self }
    }

    /// Makes the x axis logarithmic; all values must be positive.
    pub fn on_logarithmic_x(self) -> Self {
        let xs = || self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
        let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
        Self { x: (low / 1.1, high * 1.1), log_x: true, ..self }
    }

    fn scale_x(&self, x: f64) -> f64 {
        if self.log_x { x.max(f64::MIN_POSITIVE).log10() } else { x }
    }

    fn scale_y(&self, y: f64) -> f64 {
        if self.log_y { y.max(f64::MIN_POSITIVE).log10() } else { y }
    }

    fn x_ticks(&self) -> Vec<(f64, String)> {
        match self.log_x {
            true => axes::logarithmic_ticks(self.x_unit, self.x.0, self.x.1),
            false => axes::ticks(self.x_unit, self.x.0, self.x.1, if self.half { 4 } else { 6 }),
        }
    }

    fn y_ticks(&self) -> Vec<(f64, String)> {
        match self.log_y {
            true => axes::logarithmic_ticks(self.y_unit, self.y.0, self.y.1),
            false => axes::ticks(self.y_unit, self.y.0, self.y.1, 4),
        }
    }

    /// Text alternative for screen readers.
    fn text_alternative(&self) -> String {
        let curves = self.curves.iter().filter(|curve| curve.is_listed()).map(|curve| {
            let [first, _, highest, last] = curve.numbers.map(|number| axes::value(self.y_unit, number));
            format!("{} from {first} to {last}, highest {highest}", curve.name)
        });
        let labels = self.labels.iter().map(|(x, y, label)| {
            format!("{label} at {}, {}", axes::value(self.x_unit, *x), axes::value(self.y_unit, *y))
        });
        let words: Vec<String> = if self.labels.is_empty() { curves.collect() } else { labels.collect() };
        format!("{} by {}: {}", self.title, self.x_label, words.join("; "))
    }

    /// HTML of the figure.
    pub fn figure(&self) -> Markup {
        let percent = |low: f64, high: f64, value: f64| format!("{:.2}%", 100.0 * (value - low) / (high - low));
        let left = |x: f64| percent(self.scale_x(self.x.0), self.scale_x(self.x.1), self.scale_x(x));
        let bottom = |y: f64| percent(self.scale_y(self.y.0), self.scale_y(self.y.1), self.scale_y(y));
        html! {
            figure.plot.half[self.half] {
                h3 { (self.title) }
                @if !self.caption.is_empty() { p.note { (self.caption) } }
                div.chart {
                    div.y aria-hidden="true" {
                        @for (value, label) in self.y_ticks() {
                            span style=(format!("bottom:{}", bottom(value))) { (label) }
                        }
                    }
                    svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                        aria-label=(self.text_alternative()) {
                        (self.drawing())
                    }
                    @if !self.labels.is_empty() {
                        div.labels aria-hidden="true" {
                            @for (x, y, label) in &self.labels {
                                span style=(format!("left:{};bottom:{}", left(*x), bottom(*y))) { (label) }
                            }
                        }
                    }
                    div.x aria-hidden="true" {
                        @for (value, label) in self.x_ticks() {
                            span style=(format!("left:{}", left(value))) { (label) }
                        }
                        em { (self.x_label) }
                    }
                }
                @if self.labels.is_empty() && self.curves.iter().any(Curve::is_listed) { (self.table()) }
            }
        }
    }

    fn table(&self) -> Markup {
        let area = self.curves.iter().any(|curve| matches!(curve.shape, CurveStyle::Area { .. }));
        html! {
            div.wide {
                table.legend {
                    thead { tr { th { } th.r { "first" } th.r { "lowest" } th.r { "highest" } th.r { "last" } } }
                    tbody {
                        // Areas are listed as they are stacked: the uppermost first.
                        @for at in 0..self.curves.len() {
                            @let curve = &self.curves[if area { self.curves.len() - 1 - at } else { at }];
                            @if curve.is_listed() {
                                tr {
                                    th scope="row" { i.swatch.line[!area].(format!("c{}", curve.colour)) { } (curve.name) }
                                    @for number in curve.numbers { td.r { (axes::value(self.y_unit, number)) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Content of the `<svg>` element.
    fn drawing(&self) -> Markup {
        // `fraction` is from 0 to 1, from the left and from the top.
        let pixel = |size: u32, fraction: f64| (f64::from(size) * fraction).round() as i64;
        let (left, right) = (self.scale_x(self.x.0), self.scale_x(self.x.1));
        let (bottom, top) = (self.scale_y(self.y.0), self.scale_y(self.y.1));
        let x = |x: f64| pixel(WIDTH, (self.scale_x(x) - left) / (right - left));
        let y = |y: f64| pixel(HEIGHT, (top - self.scale_y(y).clamp(bottom, top)) / (top - bottom));
        let point = |at: &(f64, f64)| format!("{},{}", x(at.0), y(at.1));
        let grid = self.y_ticks().iter().map(|(at, _)| format!("M0,{}H{WIDTH}", y(*at))).collect();
        let verticals =
            |all: &[f64], height: u32| all.iter().map(|at| format!("M{},{HEIGHT}v-{height}", x(*at))).collect();
        html! {
            @for &(begin, end) in &self.bands {
                rect.band x=(x(begin)) width=((x(end) - x(begin)).max(BAND_WIDTH_MIN)) height=(HEIGHT) { }
            }
            (path("grid", grid))
            (path("boundary", verticals(&self.boundaries, HEIGHT)))
            @for Curve { points, colour, shape, .. } in &self.curves {
                @let class = |name: &str| format!("{name} c{colour}");
                @let line = || points.iter().map(point).collect::<Vec<_>>().join(" ");
                // A zero-length line with round caps is a dot that does not stretch.
                @let dots = || points.iter().map(|at| format!("M{}h0", point(at))).collect();
                @let outline = |base: &[f64]| {
                    let back = points.iter().zip(base).rev().map(|(at, base)| point(&(at.0, *base)));
                    points.iter().map(point).chain(back).collect::<Vec<_>>().join(" ")
                };
                @match shape {
                    CurveStyle::Faint => polyline.(class("faint")) points=(line()) { },
                    CurveStyle::Line => polyline.(class("line")) points=(line()) { },
                    CurveStyle::Dots => (path(&class("dots"), dots())),
                    CurveStyle::Points => {
                        (path(&class("points"), dots()))
                        polyline.(class("line")) points=(line()) { }
                    },
                    CurveStyle::Area { base } => polygon.(class("area")) points=(outline(base)) { },
                    CurveStyle::Band { base } => polygon.(class("off")) points=(outline(base)) { },
                }
            }
            (path("rug", verticals(&self.rug, RUG_HEIGHT)))
        }
    }
}

/// SVG path; empty without steps.
fn path(class: &str, steps: String) -> Markup {
    html! { @if !steps.is_empty() { path.(class) d=(steps) { } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(f64, f64)]) -> Option<Plot> {
        let mut series = ThinnedSeries::default();
        points.iter().for_each(|(x, y)| series.add(*x, *y, ()));
        let curve = Curve::from_series("curve", &series, 1, CurveStyle::Line)?;
        Plot::fitted("title", ("step", AxisUnit::Number), AxisUnit::Number, vec![curve])
    }

    #[test]
    fn one_point_is_no_figure_and_a_constant_is_drawn_against_zero() {
        assert!(plot(&[(0.0, 0.0)]).is_none() && plot(&[]).is_none());
        let level = |y: f64| plot(&[(1.0, y), (2.0, y)]).unwrap().y;
        assert_eq!(level(1e-3), (0.0, 1.25e-3));
        assert_eq!(level(0.0), (0.0, 1.0));
        assert_eq!(level(-2.0), (-2.5, 0.0));
    }

    #[test]
    fn equal_factors_have_equal_distances_on_a_logarithmic_axis() {
        let plot = plot(&[(0.0, 500.0), (1.0, 5.0)]).unwrap().on_logarithmic_y();
        let page = plot.figure().into_string();
        let at = |label: &str| -> f64 {
            let (before, _) =
                page.split_once(&format!("%\">{label}<")).unwrap_or_else(|| panic!("no {label} in {page}"));
            before.rsplit(':').next().unwrap().parse().unwrap()
        };
        assert!((at("10") - at("5") - (at("20") - at("10"))).abs() < 0.03, "{page}");
        assert!(at("5") > 0.0 && at("500") < 100.0);
    }
}
