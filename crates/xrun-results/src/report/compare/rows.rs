//! Rows of a comparison: values by setting, changes against the first one, and the best.
//!
//! A column is a run. If some runs are repeats with other seeds, a column is a setting instead: cells are means over its
//! runs, and changes are compared with the noise between repeats.

use super::{ComparedRun, KeyDifference, RunComparison, names};
use crate::axis::Axis;
use crate::format::MemorySummary;
use crate::loss::KindLoss;
use crate::noise::{Change, Noise};
use crate::report::formatting::{bytes, number, signed_bytes};
use crate::report::table::{distinct, grouped};
use crate::resolved;
use crate::verdict::SeriesVerdict;
use xrun_core::printable;
use xrun_core::task::metric::Direction;
use xrun_core::units::{pluralize, seconds};

/// Maximum width of a cell; the record has the whole value.
const CELL_CHARACTERS_MAX: usize = 26;
const LABEL_CHARACTERS_MAX: usize = 44;
/// Cell of an unknown value.
const UNKNOWN: &str = "-";

/// Selection of what is shown; the default is everything.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Metrics to show, or `loss`; empty for all.
    pub metrics: Vec<String>,
    /// Leave out what is the same in all runs.
    pub only_changed: bool,
    /// Show only the memory of each component, also of those that need the same.
    pub components: bool,
}

impl View {
    /// Returns `true` if a metric is shown.
    pub fn shows(&self, metric: &str) -> bool {
        self.metrics.is_empty() || self.metrics.iter().any(|name| name == metric)
    }
}

/// Column of the tables: a run, or the repeats of a setting.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name by what differs.
    pub label: String,
    /// Indices of its runs.
    pub runs: Vec<usize>,
}

/// Cell of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Value, or mean over repeats.
    pub text: String,
    /// Standard deviation over repeats; empty without repeats.
    pub deviation: String,
    /// Change against the first column: a percentage or `within noise`; empty if it is unknown or there is none.
    pub change: String,
    /// 95 % interval of the change; empty if noise is unknown.
    pub interval: String,
    /// The best value of the row.
    pub best: bool,
}

/// Row with a cell for each column.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the value.
    pub label: String,
    /// Cells, in the order of the columns.
    pub cells: Vec<Cell>,
}

/// Rows with a title.
#[derive(Clone, Debug)]
pub struct Section {
    /// Title.
    pub title: &'static str,
    /// Rows whose values differ.
    pub rows: Vec<Row>,
}

/// Everything that is shown of a comparison, except curves.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Columns of the sections.
    pub columns: Vec<Column>,
    /// Sections with values that differ, without empty ones.
    pub sections: Vec<Section>,
    /// Names and values that are the same in all runs.
    pub same: Vec<(String, String)>,
    /// Sentences on identical runs, repeats and noise.
    pub notes: Vec<String>,
}

/// Values of a row before they are formatted, one per run.
enum Values {
    Texts(Vec<Option<String>>),
    Numbers { values: Vec<Option<f64>>, format: fn(f64) -> String, better: Option<Direction> },
}

/// Tables of a comparison.
pub fn tables(compared: &RunComparison, view: &View) -> Tables {
    let runs = &compared.runs;
    let columns = columns(compared);
    let repeated = columns.len() < runs.len();
    // The seeds of repeats are in their names.
    let differences: Vec<&KeyDifference> =
        compared.differences.iter().filter(|one| !(repeated && one.key == names::SEED)).collect();
    let measured = if view.components {
        vec![("memory by component", components(runs))]
    } else {
        vec![
            ("differences in the experiments", keys(&differences)),
            ("differences in code, data and machine", keys(&compared.environment.iter().collect::<Vec<_>>())),
            ("outcome", outcome(runs)),
            (RESULT, results(compared, view)),
            ("memory", memory(runs)),
            ("speed", speed(runs)),
        ]
    };
    // Between runs that differ in the seed only, differences are noise and none is the best.
    let comparable = repeated || !is_one_setting(runs);
    let (mut sections, mut same) = (Vec::new(), Vec::new());
    // A result that is the same in every bit is no second measurement of it.
    let distinct = columns.iter().map(|column| distinct_results(runs, column)).collect::<Vec<_>>();
    for (title, values) in measured {
        let columns = if title == RESULT { &distinct } else { &columns };
        let mut rows = Vec::new();
        for (label, values) in values {
            let label = printable::line(&label, LABEL_CHARACTERS_MAX);
            let texts = values.texts();
            if texts.iter().all(|text| text == UNKNOWN) {
                continue;
            }
            match !view.components && texts.windows(2).all(|pair| pair[0] == pair[1]) {
                true => same.push((label, texts[0].clone())),
                false => rows.push(Row { label, cells: values.cells(columns, comparable) }),
            }
        }
        if !rows.is_empty() {
            sections.push(Section { title, rows });
        }
    }
    if view.only_changed {
        same.clear();
    }
    let notes = notes(runs, &columns, compared);
    Tables { columns, sections, same, notes }
}

const RESULT: &str = "result";

/// The column without runs whose results are identical to those of an earlier one.
fn distinct_results(runs: &[ComparedRun], column: &Column) -> Column {
    let mut kept: Vec<usize> = Vec::new();
    for &at in &column.runs {
        let digest = runs[at].metrics_digest.as_ref();
        if digest.is_none() || kept.iter().all(|&other| runs[other].metrics_digest.as_ref() != digest) {
            kept.push(at);
        }
    }
    Column { label: column.label.clone(), runs: kept }
}

fn is_one_setting(runs: &[ComparedRun]) -> bool {
    runs.windows(2).all(|pair| pair[0].setting == pair[1].setting)
}

/// A column for each setting if there are several and one of them has repeats, otherwise for each run.
fn columns(compared: &RunComparison) -> Vec<Column> {
    let runs = &compared.runs;
    let settings = grouped(runs.iter().enumerate().map(|(at, run)| (run.setting, at)));
    if settings.len() == 1 || settings.len() == runs.len() {
        return (0..runs.len()).map(|at| Column { label: runs[at].label.clone(), runs: vec![at] }).collect();
    }
    // By what differs between settings: repeats differ in the seed only.
    let first: Vec<usize> = settings.iter().map(|(_, members)| members[0]).collect();
    let named: Vec<&str> = first.iter().map(|&at| runs[at].view.experiment_name()).collect();
    let of_first = |one: &KeyDifference| KeyDifference {
        key: one.key.clone(),
        values: first.iter().map(|&at| one.values[at].clone()).collect(),
    };
    let differences = compared.differences.iter().filter(|one| one.key != names::SEED).map(of_first);
    let labels = names::labels(&named, &differences.collect::<Vec<_>>());
    labels.into_iter().zip(settings).map(|(label, (_, runs))| Column { label, runs }).collect()
}

fn notes(runs: &[ComparedRun], columns: &[Column], compared: &RunComparison) -> Vec<String> {
    let mut notes = Vec::new();
    let identical = grouped(runs.iter().enumerate().filter_map(|(at, run)| Some((run.metrics_digest.as_ref()?, at))));
    let place = |runs: &[usize]| runs.iter().map(|at| (at + 1).to_string()).collect::<Vec<_>>().join(", ");
    for (_, group) in identical.iter().filter(|(_, group)| group.len() > 1) {
        let which =
            if group.len() == runs.len() { "the runs".to_owned() } else { format!("the runs {}", place(group)) };
        notes.push(format!("{which} have identical results: the same bits in all losses and metrics"));
    }
    if columns.len() < runs.len() {
        let members = columns.iter().filter(|column| column.runs.len() > 1);
        let members: Vec<String> =
            members.map(|column| format!("{} (runs {})", column.label, place(&column.runs))).collect();
        notes.push(format!(
            "means over repeats, ± their standard deviation: {}; a change is within noise if its 95 % interval contains 0",
            members.join("; ")
        ));
    } else if is_one_setting(runs)
        && runs.windows(2).all(|pair| pair[0].view.steps() == pair[1].view.steps())
        && compared.differences.iter().any(|one| one.key == names::SEED)
    {
        notes.push("the runs differ in the seed only: differences of their results are noise".into());
    }
    notes
}

impl Values {
    /// Text of each run.
    fn texts(&self) -> Vec<String> {
        let cell =
            |text: Option<String>| text.map_or(UNKNOWN.into(), |text| printable::line(&text, CELL_CHARACTERS_MAX));
        match self {
            Self::Texts(texts) => texts.iter().cloned().map(cell).collect(),
            Self::Numbers { values, format, .. } => values.iter().map(|value| cell(value.map(format))).collect(),
        }
    }

    fn cells(&self, columns: &[Column], comparable: bool) -> Vec<Cell> {
        match self {
            Self::Texts(_) => {
                let texts = self.texts();
                columns.iter().map(|column| Cell { text: combined(&texts, column), ..Cell::default() }).collect()
            }
            Self::Numbers { values, format, better } => {
                number_cells(values, *format, columns, better.filter(|_| comparable))
            }
        }
    }
}

/// Text of the runs of a column: `finished`, or `2 finished, 1 killed`.
fn combined(texts: &[String], column: &Column) -> String {
    let counts = grouped(column.runs.iter().map(|&run| (&texts[run], ())));
    let counted = |(text, count): &(&String, Vec<()>)| match count.len() {
        count if counts.len() > 1 && counts.len() < column.runs.len() => format!("{count} {text}"),
        _ => (*text).clone(),
    };
    counts.iter().map(counted).collect::<Vec<_>>().join(", ")
}

/// Mean and sample standard deviation, which a single value has not; `None` without values.
fn mean_and_deviation(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
    (!values.is_empty()).then_some((mean, deviation))
}

fn number_cells(
    values: &[Option<f64>],
    format: fn(f64) -> String,
    columns: &[Column],
    better: Option<Direction>,
) -> Vec<Cell> {
    let known =
        |column: &Column| column.runs.iter().filter_map(|&run| values[run]).filter(|value| value.is_finite()).collect();
    let all: Vec<Vec<f64>> = columns.iter().map(known).collect();
    let noise = Noise::of(&all);
    let best = better.and_then(|better| best(&all, noise, better));
    let cell = |(at, own): (usize, &Vec<f64>)| {
        let Some((mean, deviation)) = mean_and_deviation(own) else {
            return Cell { text: UNKNOWN.into(), ..Cell::default() };
        };
        let change = Change::of(own, &all[0], noise).filter(|change| at > 0 && change.change != 0.0);
        let (change, interval) = change.map_or_else(Default::default, |change| {
            let (change, interval) = change.short_words();
            (change, interval.unwrap_or_default())
        });
        Cell {
            text: format(mean),
            deviation: deviation.map(format).unwrap_or_default(),
            change,
            interval,
            best: best == Some(at),
        }
    };
    all.iter().enumerate().map(cell).collect()
}

/// Index of the column with the best mean; `None` if all are equal, or if another is within noise of it.
fn best(all: &[Vec<f64>], noise: Option<Noise>, better: Direction) -> Option<usize> {
    let means: Vec<(usize, f64)> =
        all.iter().enumerate().filter_map(|(at, own)| Some((at, mean_and_deviation(own)?.0))).collect();
    let (at, value) = means.iter().copied().reduce(|a, b| if better.prefers(b.1, a.1) { b } else { a })?;
    let repeated = all.iter().any(|own| own.len() > 1);
    let beaten = |other: usize, mean: f64| {
        // Noise relative to 0 is unknown.
        let change = Change::of(&all[other], &all[at], noise);
        let near = change.map_or(repeated, |change| change.within_noise == Some(true));
        mean != value && !near
    };
    let others = || means.iter().filter(|(other, _)| *other != at);
    (others().count() > 0 && others().all(|(other, mean)| beaten(*other, *mean))).then_some(at)
}

type LabelledValues = Vec<(String, Values)>;

fn texts(label: &str, runs: &[ComparedRun], text: impl Fn(&ComparedRun) -> Option<String>) -> (String, Values) {
    (label.to_owned(), Values::Texts(runs.iter().map(text).collect()))
}

fn numbers(
    label: &str,
    runs: &[ComparedRun],
    better: Option<Direction>,
    format: fn(f64) -> String,
    value: impl Fn(&ComparedRun) -> Option<f64>,
) -> (String, Values) {
    (label.to_owned(), Values::Numbers { values: runs.iter().map(value).collect(), format, better })
}

/// Keys by their shortest distinct names.
fn keys(differences: &[&KeyDifference]) -> LabelledValues {
    let short = resolved::short_keys(&differences.iter().map(|one| one.key.as_str()).collect::<Vec<_>>());
    let text = |value: &Option<serde_json::Value>| value.as_ref().map(abbreviated);
    let row = |(one, short): (&&KeyDifference, &str)| {
        (short.to_owned(), Values::Texts(one.values.iter().map(text).collect()))
    };
    differences.iter().zip(short).map(row).collect()
}

/// Formats a value; of a command line its end.
fn abbreviated(value: &serde_json::Value) -> String {
    let Some(words) = value.as_array().filter(|words| words.iter().all(serde_json::Value::is_string)) else {
        return resolved::format_rounded(value);
    };
    let line = words.iter().filter_map(serde_json::Value::as_str).collect::<Vec<_>>().join(" ");
    let cut = line.chars().count().saturating_sub(CELL_CHARACTERS_MAX - 1);
    if cut > 1 { format!("…{}", line.chars().skip(cut).collect::<String>()) } else { line }
}

fn outcome(runs: &[ComparedRun]) -> LabelledValues {
    vec![
        texts("state", runs, |run| Some(run.view.state().label().to_owned())),
        texts("training", runs, |run| Some(run.view.training()?.verdict.words().to_owned())),
        texts("steps", runs, |run| run.view.steps().map(|_| run.view.steps_text())),
    ]
}

fn results(compared: &RunComparison, view: &View) -> LabelledValues {
    let runs = &compared.runs;
    let mut rows = Vec::new();
    for name in compared.metrics().into_iter().filter(|name| view.shows(name)) {
        let better = runs.iter().find_map(|run| run.metric(name)?.planned.direction);
        let shown = format!("{name}{}", better.map_or_else(String::new, |better| format!(" {}", better.arrow())));
        rows.push(numbers(&format!("{shown}, last"), runs, better, number, |run| run.metric(name)?.after));
        rows.push(numbers(&format!("{shown}, best"), runs, better, number, |run| Some(run.metric(name)?.best?.0)));
    }
    // After the metric that selects the best checkpoint, which is first: there may be many others.
    let others = rows.split_off(rows.len().min(2));
    let of_best = |run: &ComparedRun| run.view.final_summary()?.best.clone().filter(|best| view.shows(&best.metric));
    rows.push(texts("best checkpoint", runs, |run| Some(format!("step {}", of_best(run)?.step))));
    // Losses are compared only between steps of one kind.
    let losses: Vec<KindLoss> = runs.iter().flat_map(|run| run.view.losses()).filter(|_| view.shows(LOSS)).collect();
    for kind in distinct(losses.iter().map(|loss| &loss.kind)) {
        let loss = |run: &ComparedRun| run.view.losses().into_iter().find(|loss| loss.kind == *kind);
        let name = |end: &str| format!("loss ↓, {kind}, {end}");
        let better = Some(Direction::Lower);
        rows.push(numbers(&name("average"), runs, better, number, |run| Some(loss(run)?.last)));
        rows.push(numbers(&name("first"), runs, None, number, |run| Some(loss(run)?.first)));
    }
    rows.extend(others);
    rows
}

/// Name of the loss in [`View::metrics`].
pub const LOSS: &str = "loss";

/// Series of the verdict on a run.
fn found<'a>(run: &'a ComparedRun, series: &str) -> Option<&'a SeriesVerdict> {
    run.view.verdict()?.series.iter().find(|one| one.name == series)
}

fn memory(runs: &[ComparedRun]) -> LabelledValues {
    let lower = Some(Direction::Lower);
    let heap = distinct(runs.iter().map(|run| run.view.heap_label())).join(" or ");
    let peak = |label: &str, select: fn(&MemorySummary) -> Option<u64>| {
        numbers(label, runs, lower, bytes, |run| {
            let memory = run.view.memory();
            select(memory).filter(|_| memory.samples > 0).map(|size| size as f64)
        })
    };
    let mut rows = vec![
        texts("verdict", runs, |run| Some(run.view.verdict()?.verdict.words().to_owned())),
        texts("growing buffer", runs, |run| run.view.verdict()?.owner.clone()),
        peak(&format!("{heap} (peak)"), |memory| Some(memory.heap_peak)),
        peak(&format!("{heap} (end)"), |memory| Some(memory.heap_at_end)),
        peak("RSS (peak)", |memory| memory.rss_peak),
        peak("device in use (peak)", |memory| memory.device_in_use_peak),
        peak("device reserved (peak)", |memory| memory.device_reserved_peak),
    ];
    for (series, name) in SERIES {
        let name = if *series == "heap" { heap.as_str() } else { *name };
        rows.push(numbers(&format!("{name}, growth"), runs, None, signed_bytes, |run| {
            Some(found(run, series)?.findings.growth)
        }));
        for axis in [Axis::Steps, Axis::Clock] {
            let per = axis.rate_unit(0);
            rows.push(numbers(&format!("{name}, {}", per.text), runs, None, signed_bytes, |run| {
                let one = found(run, series).filter(|_| run.view.verdict().is_some_and(|verdict| verdict.axis == axis));
                Some(one?.findings.slope? * per.length)
            }));
        }
    }
    rows
}

/// Components of the plan that belong to the model.
const MODEL: [&str; 3] = ["weights", "gradients", "optimizer"];

/// Peak of each component that a run has more than 0 bytes of: what it holds before the first step, the parts of a step,
/// validation, each buffer.
fn components(runs: &[ComparedRun]) -> LabelledValues {
    let of_run = |run: &ComparedRun| {
        let Some(summary) = run.view.final_summary() else { return Vec::new() };
        let (demand, memory) = (&summary.demand, &summary.memory);
        let model = summary.plan_and_actual.iter().filter(|part| MODEL.contains(&part.name.as_str()));
        let mut rows = vec![("before the first step".to_owned(), demand.heap_at_start as f64)];
        rows.extend(model.map(|part| (part.name.clone(), part.actual as f64)));
        rows.extend(demand.step_kinds.iter().map(|(kind, bytes)| (format!("{kind} step"), *bytes as f64)));
        rows.push(("validation".into(), demand.validation as f64));
        rows.extend(demand.validation_left.map(|left| ("left by a validation".into(), left as f64)));
        rows.push(("checkpoint".into(), demand.checkpoint as f64));
        rows.extend(summary.owners.iter().map(|owner| (owner.name.clone(), owner.peak_bytes as f64)));
        rows.push(("heap, peak".into(), memory.heap_peak as f64));
        rows.extend(memory.rss_peak.map(|peak| ("RSS, peak".into(), peak as f64)));
        rows.extend(memory.device_reserved_peak.map(|peak| ("device, peak".into(), peak as f64)));
        rows
    };
    let all: Vec<Vec<(String, f64)>> = runs.iter().map(of_run).collect();
    let names = distinct(all.iter().flatten().filter(|(_, bytes)| *bytes != 0.0).map(|(name, _)| name));
    let row = |name: &String| {
        let value = |rows: &Vec<(String, f64)>| rows.iter().find(|(known, _)| known == name).map(|(_, bytes)| *bytes);
        let values = all.iter().map(value).collect();
        (name.clone(), Values::Numbers { values, format: signed_bytes, better: None })
    };
    names.into_iter().map(row).collect()
}

/// Series of a verdict that measure all memory of one kind.
const SERIES: &[(&str, &str)] =
    &[("heap", "heap"), ("rss", "RSS"), ("device_in_use", "device in use"), ("device_reserved", "device reserved")];

fn speed(runs: &[ComparedRun]) -> LabelledValues {
    let percent = |fraction: f64| format!("{} %", number(100.0 * fraction));
    let higher = Some(Direction::Higher);
    vec![
        numbers("training steps/s", runs, higher, number, |run| run.view.final_summary()?.steps_per_second),
        numbers("training items/s", runs, higher, number, |run| run.view.final_summary()?.items_per_second),
        numbers("training time", runs, None, seconds, |run| Some(run.view.seconds())),
        // Steps that took less time than their samples are no measure of it.
        numbers("sampling cost", runs, None, percent, |run| {
            run.view.memory().trace_share.filter(|share| *share <= 1.0)
        }),
    ]
}

/// `3 runs compared`, or `4 runs of 2 settings compared`.
pub fn title(compared: &RunComparison, columns: &[Column]) -> String {
    let runs = pluralize(compared.runs.len() as u64, "run");
    match columns.len() == compared.runs.len() {
        true => format!("{runs} compared"),
        false => format!("{runs} of {} compared", pluralize(columns.len() as u64, "setting")),
    }
}
