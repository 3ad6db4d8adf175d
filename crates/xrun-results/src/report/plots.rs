//! Figures: curves as inline SVG, axes and labels as HTML around it.
//!
//! Only the curves stretch with the page (`preserveAspectRatio="none"`, strokes keep their width), so labels stay
//! legible on a phone and on paper. Each curve has a class, which the style sheet colours for light and dark pages.
//! The table under a plot is its legend and text alternative.

use maud::{Markup, html};

use super::axes::{self, AxisUnit};
use super::series::ThinnedSeries;
use xrun_core::printable;

/// Inner size of a drawing. It is stretched; its resolution is that of the values under the pointer.
const WIDTH: u32 = 40_000;
const HEIGHT: u32 = 20_000;
/// Height of a mark at the bottom, and minimum width of a shaded range, so that a short validation is visible.
const RUG_HEIGHT: u32 = HEIGHT / 28;
const BAND_WIDTH_MIN: i64 = 60;
/// Ratio of a level to the top of the curves up to which the axis is extended to show it.
const LEVEL_FACTOR: f64 = 2.0;

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

/// Horizontal line, such as a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Height.
    pub y: f64,
    /// Label.
    pub name: String,
    /// A limit, which is drawn as a warning; otherwise an expectation.
    pub is_limit: bool,
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

    /// Returns `true` if the curve is listed in the table.
    fn is_listed(&self) -> bool {
        !matches!(self.shape, CurveStyle::Faint | CurveStyle::Dots | CurveStyle::Band { .. })
    }
}

/// Ratio of highest to lowest value from which a logarithmic axis is used.
const LOG_FROM: f64 = 20.0;

/// Figure before it is drawn.
#[derive(Clone, Debug, Default)]
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
    /// Horizontal lines.
    pub levels: Vec<Level>,
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
        let x_range = range(points().map(|point| point.0));
        let (low, high) = range(points().map(|point| point.1));
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
            x_label: x.0,
            x_unit: x.1,
            x: if x_range.1 > x_range.0 { x_range } else { (x_range.0 - 0.5, x_range.0 + 0.5) },
            y_unit,
            y,
            curves,
            ..Self::default()
        })
    }

    /// Adds horizontal lines. One far above the curves, against which they would be flat, is named in the caption instead.
    pub fn with_levels(mut self, levels: Vec<Level>) -> Self {
        let top = self.y.1;
        let (near, far): (Vec<Level>, Vec<Level>) =
            levels.into_iter().partition(|level| level.y <= LEVEL_FACTOR * top && level.y >= self.y.0);
        self.y.1 = near.iter().fold(top, |top, level| top.max(1.04 * level.y));
        if !far.is_empty() {
            let named = far.iter().map(|level| format!("{} {}", level.name, axes::value(self.y_unit, level.y)));
            let named = named.collect::<Vec<_>>().join(", ");
            self.caption = format!("{} Outside of the figure: {named}.", self.caption).trim_start().to_owned();
        }
        Self { levels: near, ..self }
    }

    /// Minimum and maximum y over all curves.
    fn y_range(&self) -> (f64, f64) {
        range(self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1))
    }

    /// Makes the y axis logarithmic if all values are positive and those of the listed curves span more than a factor
    /// of [`LOG_FROM`]; adds a sentence to the caption.
    pub fn logarithmic_if_far_apart(self) -> Self {
        let listed = self.curves.iter().filter(|curve| curve.is_listed()).flat_map(|curve| &curve.points);
        let (low, high) = range(listed.map(|point| point.1));
        match self.y_range().0 > 0.0 && high > LOG_FROM * low {
            true => {
                let caption = format!("{} The axis is logarithmic.", self.caption);
                Self { caption, ..self.on_logarithmic_y() }
            }
            false => self,
        }
    }

    /// Makes the y axis logarithmic; all values must be positive.
    fn on_logarithmic_y(self) -> Self {
        let (low, high) = self.y_range();
        Self { y: (low / 1.15, high * 1.15), log_y: true, ..self }
    }

    /// Makes the x axis logarithmic; all values must be positive.
    pub fn on_logarithmic_x(self) -> Self {
        let (low, high) = range(self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0));
        Self { x: (low / 1.1, high * 1.1), log_x: true, ..self }
    }

    fn x_ticks(&self) -> Vec<(f64, String)> {
        ticks(self.x_unit, self.x, self.log_x, if self.half { 3 } else { 5 })
    }

    fn y_ticks(&self) -> Vec<(f64, String)> {
        ticks(self.y_unit, self.y, self.log_y, 4)
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
        let by = if self.x_label.is_empty() { String::new() } else { format!(" by {}", self.x_label) };
        format!("{}{by}: {}", self.title, words.join("; "))
    }

    /// HTML of the figure.
    pub fn figure(&self) -> Markup {
        let left = |x: f64| format!("{:.2}%", 100.0 * place(x, self.x, self.log_x));
        let bottom = |y: f64| format!("{:.2}%", 100.0 * place(y, self.y, self.log_y));
        let logarithmic = if self.log_x { "x " } else { "" }.to_owned() + if self.log_y { "y" } else { "" };
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
                        aria-label=(self.text_alternative()) data-x=(format!("{} {}", self.x.0, self.x.1))
                        data-y=(format!("{} {}", self.y.0, self.y.1)) data-log=(logarithmic.trim_end())
                        data-units=(format!("{:?} {:?}", self.x_unit, self.y_unit).to_lowercase())
                        data-label=(self.x_label) {
                        (self.drawing())
                    }
                    @if !self.levels.is_empty() {
                        div.levels aria-hidden="true" {
                            @for level in &self.levels {
                                span.limit[level.is_limit] style=(format!("bottom:{}", bottom(level.y))) {
                                    (level.name) " " (axes::value(self.y_unit, level.y))
                                }
                            }
                        }
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

    /// Distance from the left edge of the drawing.
    fn place_x(&self, x: f64) -> i64 {
        (f64::from(WIDTH) * place(x, self.x, self.log_x)).round() as i64
    }

    /// Distance from the top edge of the drawing.
    fn place_y(&self, y: f64) -> i64 {
        (f64::from(HEIGHT) * (1.0 - place(y.clamp(self.y.0, self.y.1), self.y, self.log_y))).round() as i64
    }

    fn place(&self, point: &(f64, f64)) -> String {
        format!("{},{}", self.place_x(point.0), self.place_y(point.1))
    }

    fn line(&self, points: &[(f64, f64)]) -> String {
        points.iter().map(|point| self.place(point)).collect::<Vec<_>>().join(" ")
    }

    /// Content of the `<svg>` element.
    fn drawing(&self) -> Markup {
        let (x, y) = (|x: f64| self.place_x(x), |y: f64| self.place_y(y));
        let point = |at: &(f64, f64)| self.place(at);
        let levels = |is_limit: bool| {
            let levels = self.levels.iter().filter(|level| level.is_limit == is_limit);
            levels.map(|level| format!("M0,{}H{WIDTH}", y(level.y))).collect()
        };
        let grid = self.y_ticks().iter().map(|(at, _)| format!("M0,{}H{WIDTH}", y(*at))).collect();
        let verticals =
            |all: &[f64], height: u32| all.iter().map(|at| format!("M{},{HEIGHT}v-{height}", x(*at))).collect();
        html! {
            @for &(begin, end) in &self.bands {
                rect.band x=(x(begin)) width=((x(end) - x(begin)).max(BAND_WIDTH_MIN)) height=(HEIGHT) { }
            }
            (path("grid", grid))
            (path("boundary", verticals(&self.boundaries, HEIGHT)))
            (path("level", levels(false)))
            (path("level limit", levels(true)))
            @for Curve { points, colour, shape, name, .. } in &self.curves {
                @let class = |name: &str| format!("{name} c{colour}");
                @let line = || self.line(points);
                // A zero-length line with round caps is a dot that does not stretch.
                @let dots = || points.iter().map(|at| format!("M{}h0", point(at))).collect();
                @let outline = |base: &[f64]| {
                    let back = points.iter().zip(base).rev().map(|(at, base)| point(&(at.0, *base)));
                    points.iter().map(point).chain(back).collect::<Vec<_>>().join(" ")
                };
                @match shape {
                    CurveStyle::Faint => polyline.(class("faint")) points=(line()) { },
                    CurveStyle::Line => polyline.(class("line")) data-name=(name) points=(line()) { },
                    CurveStyle::Dots => (path(&class("dots"), dots())),
                    CurveStyle::Points => {
                        (path(&class("points"), dots()))
                        polyline.(class("line")) data-name=(name) points=(line()) { }
                    },
                    CurveStyle::Area { base } => polygon.(class("area")) data-name=(name) points=(outline(base)) { },
                    CurveStyle::Band { base } => polygon.(class("off")) points=(outline(base)) { },
                }
            }
            (path("rug", verticals(&self.rug, RUG_HEIGHT)))
        }
    }
}

/// Position of a value on an axis, from 0 to 1.
fn place(value: f64, (low, high): (f64, f64), log: bool) -> f64 {
    let scaled = |value: f64| if log { value.max(f64::MIN_POSITIVE).log10() } else { value };
    (scaled(value) - scaled(low)) / (scaled(high) - scaled(low))
}

fn ticks(unit: AxisUnit, (low, high): (f64, f64), log: bool, ticks_min: usize) -> Vec<(f64, String)> {
    if log { axes::logarithmic_ticks(unit, low, high) } else { axes::ticks(unit, low, high, ticks_min) }
}

/// Lowest and highest of some values.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
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
    fn a_level_near_the_curves_is_drawn_and_one_far_above_is_named() {
        let level = |y: f64| Level { y, name: "limit".into(), is_limit: true };
        let plot = |y: f64| plot(&[(0.0, 50.0), (1.0, 100.0)]).unwrap().with_levels(vec![level(y)]);
        let near = plot(180.0);
        assert!(near.levels.len() == 1 && near.y.1 > 180.0 && near.caption.is_empty(), "{:?}", near.y);
        let far = plot(1000.0);
        assert!(far.levels.is_empty() && far.y.1 < 110.0 && far.caption.contains("1000"), "{}", far.caption);
    }

    #[test]
    fn values_under_the_pointer_are_those_of_the_curve_to_four_digits() {
        let plot = plot(&[(0.0, 0.012_34), (37.0, 0.4321), (100.0, 0.25)]).unwrap();
        let page = plot.figure().into_string();
        let between = |from: &str| page.split_once(from).unwrap().1.split('"').next().unwrap().to_owned();
        let numbers = |text: String| -> Vec<f64> { text.split([' ', ',']).map(|one| one.parse().unwrap()).collect() };
        let (y, points) = (numbers(between("data-y=\"")), numbers(between("data-name=\"curve\" points=\"")));
        for (at, value) in [0.012_34, 0.4321, 0.25].into_iter().enumerate() {
            let read = y[0] + (1.0 - points[2 * at + 1] / f64::from(HEIGHT)) * (y[1] - y[0]);
            assert!((read - value).abs() < 5e-5, "{read} and not {value}");
        }
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
        assert!((at("100") - at("10") - (at("300") - at("30"))).abs() < 0.03, "{page}");
        assert!(at("10") > 0.0 && at("300") < 100.0);
    }
}
