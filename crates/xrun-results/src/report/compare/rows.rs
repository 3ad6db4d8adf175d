//! Rows of a comparison: values by setting, changes against the first one, and the best.
//!
//! A column is a run. If some runs are repeats with other seeds, a column is a setting instead: cells are means over its
//! runs, and changes are compared with the noise between repeats.

use std::path::Path;

use super::{RunComparison, names};
use crate::axis::Axis;
use crate::comparison::{ComparedRun, KeyDifference};
use crate::noise::{Change, Noise};
use crate::report::formatting::{bytes, number, signed_bytes};
use crate::report::groups::Spread;
use crate::{resolved, run_name};
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
    /// The cells are words and not numbers.
    pub is_text: bool,
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

/// Name by which commands find the run.
pub fn name(run: &ComparedRun) -> String {
    run_name::run(Path::new(&run.path), &run.experiment)
}

/// Tables of a comparison.
pub fn tables(compared: &RunComparison, view: &View) -> Tables {
    let runs = &compared.record.runs;
    let columns = columns(compared);
    let repeated = columns.len() < runs.len();
    // The seeds of repeats are in their names.
    let differences: Vec<&KeyDifference> =
        compared.record.differences.iter().filter(|one| !(repeated && one.key == names::SEED)).collect();
    let measured = [
        ("experiment", keys(&differences)),
        ("code, data, machine", keys(&compared.record.environment.iter().collect::<Vec<_>>())),
        ("outcome", outcome(runs)),
        (RESULT, results(compared, view)),
        ("memory", memory(runs)),
        ("speed", speed(runs)),
    ];
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
            match texts.windows(2).all(|pair| pair[0] == pair[1]) {
                true => same.push((label, texts[0].clone())),
                false => rows.push(Row {
                    label,
                    is_text: matches!(values, Values::Texts(_)),
                    cells: values.cells(columns, comparable),
                }),
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
    let runs = &compared.record.runs;
    let mut settings: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        match settings.iter_mut().find(|(setting, _)| *setting == run.setting) {
            Some((_, members)) => members.push(at),
            None => settings.push((run.setting, vec![at])),
        }
    }
    if settings.len() == 1 || settings.len() == runs.len() {
        return (0..runs.len()).map(|at| Column { label: runs[at].label.clone(), runs: vec![at] }).collect();
    }
    // By what differs between settings: repeats differ in the seed only.
    let first: Vec<usize> = settings.iter().map(|(_, members)| members[0]).collect();
    let named: Vec<&str> = first.iter().map(|&at| runs[at].experiment.as_str()).collect();
    let of_first = |one: &KeyDifference| KeyDifference {
        key: one.key.clone(),
        values: first.iter().map(|&at| one.values[at].clone()).collect(),
    };
    let differences = compared.record.differences.iter().filter(|one| one.key != names::SEED).map(of_first);
    let labels = names::labels(&named, &differences.collect::<Vec<_>>());
    labels.into_iter().zip(settings).map(|(label, (_, runs))| Column { label, runs }).collect()
}

fn notes(runs: &[ComparedRun], columns: &[Column], compared: &RunComparison) -> Vec<String> {
    let mut notes = Vec::new();
    let mut identical: Vec<Vec<usize>> = Vec::new();
    for (at, run) in runs.iter().enumerate().filter(|(_, run)| run.metrics_digest.is_some()) {
        match identical.iter_mut().find(|group| runs[group[0]].metrics_digest == run.metrics_digest) {
            Some(group) => group.push(at),
            None => identical.push(vec![at]),
        }
    }
    let place = |runs: &[usize]| runs.iter().map(|at| (at + 1).to_string()).collect::<Vec<_>>().join(", ");
    for group in identical.iter().filter(|group| group.len() > 1) {
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
        && runs.windows(2).all(|pair| pair[0].steps == pair[1].steps)
        && compared.record.differences.iter().any(|one| one.key == names::SEED)
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
                let mut cells = number_cells(values, *format, columns);
                if comparable && let Some(at) = better.and_then(|better| best(values, columns, better)) {
                    cells[at].best = true;
                }
                cells
            }
        }
    }
}

/// Text of the runs of a column: `finished`, or `2 finished, 1 killed`.
fn combined(texts: &[String], column: &Column) -> String {
    let mut counts: Vec<(&String, usize)> = Vec::new();
    for text in column.runs.iter().map(|&run| &texts[run]) {
        match counts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => counts.push((text, 1)),
        }
    }
    match counts.as_slice() {
        [(text, _)] => (*text).clone(),
        counts if counts.iter().all(|(_, count)| *count == 1) => {
            counts.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(", ")
        }
        counts => counts.iter().map(|(text, count)| format!("{count} {text}")).collect::<Vec<_>>().join(", "),
    }
}

/// Known values of the runs of a column.
fn of_column(values: &[Option<f64>], column: &Column) -> Vec<f64> {
    column.runs.iter().filter_map(|&run| values[run]).filter(|value| value.is_finite()).collect()
}

fn number_cells(values: &[Option<f64>], format: fn(f64) -> String, columns: &[Column]) -> Vec<Cell> {
    let all: Vec<Vec<f64>> = columns.iter().map(|column| of_column(values, column)).collect();
    let noise = Noise::of(&all);
    let cell = |(at, own): (usize, &Vec<f64>)| {
        let Some(Spread { mean, deviation, .. }) = Spread::of(own) else {
            return Cell { text: UNKNOWN.into(), ..Cell::default() };
        };
        let change = Change::of(own, &all[0], noise).filter(|change| at > 0 && change.change != 0.0);
        let (change, interval) = change.map_or_else(Default::default, |change| {
            let (change, interval) = change.short_words();
            (change, interval.unwrap_or_default())
        });
        Cell { text: format(mean), deviation: deviation.map(format).unwrap_or_default(), change, interval, best: false }
    };
    all.iter().enumerate().map(cell).collect()
}

/// Index of the column with the best mean; `None` if all are equal, or if another is within noise of it.
fn best(values: &[Option<f64>], columns: &[Column], better: Direction) -> Option<usize> {
    let all: Vec<Vec<f64>> = columns.iter().map(|column| of_column(values, column)).collect();
    let means: Vec<(usize, f64)> =
        all.iter().enumerate().filter_map(|(at, own)| Some((at, Spread::of(own)?.mean))).collect();
    let (at, value) = means.iter().copied().reduce(|a, b| if better.prefers(b.1, a.1) { b } else { a })?;
    let noise = Noise::of(&all);
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

/// Formats a value; of a digest the first ten characters, of a command line its end.
fn abbreviated(value: &serde_json::Value) -> String {
    if let Some(words) = value.as_array().filter(|words| words.iter().all(serde_json::Value::is_string)) {
        let line = words.iter().filter_map(serde_json::Value::as_str).collect::<Vec<_>>().join(" ");
        let cut = line.chars().count().saturating_sub(CELL_CHARACTERS_MAX - 1);
        return if cut > 1 { format!("…{}", line.chars().skip(cut).collect::<String>()) } else { line };
    }
    let text = resolved::format_rounded(value);
    let is_digest = text.len() >= 40 && text.bytes().take(40).all(|byte| byte.is_ascii_hexdigit());
    match is_digest {
        true => {
            format!("{}…{}", &text[..10], text.split_once(' ').map_or(String::new(), |(_, rest)| format!(" {rest}")))
        }
        false => text,
    }
}

fn outcome(runs: &[ComparedRun]) -> LabelledValues {
    vec![
        texts("state", runs, |run| Some(run.state.clone())),
        texts("training", runs, |run| run.training.map(|verdict| verdict.words().to_owned())),
        texts("steps", runs, |run| {
            let planned = run.steps_planned.filter(|planned| Some(*planned) != run.steps);
            Some(match planned {
                Some(planned) => format!("{}/{planned}", run.steps?),
                None => run.steps?.to_string(),
            })
        }),
    ]
}

fn results(compared: &RunComparison, view: &View) -> LabelledValues {
    let runs = &compared.record.runs;
    let mut rows = Vec::new();
    for name in compared.metrics.iter().filter(|name| view.shows(name)) {
        let better = runs.iter().find_map(|run| run.metrics.get(name)?.direction);
        let shown = format!("{name}{}", better.map_or_else(String::new, |better| format!(" {}", better.arrow())));
        rows.push(numbers(&format!("{shown}, last"), runs, better, number, |run| run.metrics.get(name)?.last));
        rows.push(match better {
            Some(_) => numbers(&format!("{shown}, best"), runs, better, number, |run| run.metrics.get(name)?.best),
            None => texts(&format!("{shown}, min and max"), runs, |run| {
                let metric = run.metrics.get(name)?;
                Some(format!("{} to {}", number(metric.lowest?), number(metric.highest?)))
            }),
        });
    }
    // After the metric that selects the best checkpoint, which is first: there may be many others.
    let others = rows.split_off(rows.len().min(2));
    let of_best = |run: &ComparedRun| run.best.clone().filter(|best| view.shows(&best.metric));
    rows.push(texts("best checkpoint", runs, |run| Some(format!("step {}", of_best(run)?.step))));
    // Losses are compared only between steps of one kind.
    let mut kinds: Vec<&str> = Vec::new();
    for loss in runs.iter().flat_map(|run| &run.losses).filter(|_| view.shows(LOSS)) {
        if !kinds.contains(&loss.kind.as_str()) {
            kinds.push(&loss.kind);
        }
    }
    for kind in kinds {
        let loss = |run: &ComparedRun| run.losses.iter().find(|loss| loss.kind == kind).cloned();
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

fn memory(runs: &[ComparedRun]) -> LabelledValues {
    let size = |size: Option<u64>| size.map(|size| size as f64);
    let measured = |run: &ComparedRun| run.memory.samples > 0;
    let lower = Some(Direction::Lower);
    let heap = match (runs.iter().any(|run| run.watched), runs.iter().all(|run| run.watched)) {
        (_, true) => "footprint",
        (true, false) => "heap or footprint",
        (false, false) => "heap",
    };
    let mut rows = vec![
        texts("verdict", runs, |run| run.verdict.map(|verdict| verdict.words().to_owned())),
        texts("growing buffer", runs, |run| run.growing_owner.clone()),
        numbers(&format!("{heap} (peak)"), runs, lower, bytes, |run| {
            size(Some(run.memory.heap_peak)).filter(|_| measured(run))
        }),
        numbers(&format!("{heap} (end)"), runs, lower, bytes, |run| {
            size(Some(run.memory.heap_at_end)).filter(|_| measured(run))
        }),
        numbers("RSS (peak)", runs, lower, bytes, |run| size(run.memory.rss_peak)),
        numbers("device in use (peak)", runs, lower, bytes, |run| size(run.memory.device_in_use_peak)),
        numbers("device reserved (peak)", runs, lower, bytes, |run| size(run.memory.device_reserved_peak)),
    ];
    for series in super::SERIES {
        let growth = |run: &ComparedRun| run.growth.iter().find(|one| one.series == *series).cloned();
        let name = match *series {
            "rss" => "RSS".into(),
            "heap" => heap.to_owned(),
            other => other.replace('_', " "),
        };
        rows.push(numbers(&format!("{name}, growth"), runs, None, signed_bytes, |run| Some(growth(run)?.growth)));
        for axis in [Axis::Steps, Axis::Clock] {
            let per = axis.rate_unit(0);
            let slope = |run: &ComparedRun| growth(run).filter(|one| one.axis == axis)?.slope;
            rows.push(numbers(&format!("{name}, {}", per.text), runs, None, signed_bytes, |run| {
                Some(slope(run)? * per.length)
            }));
        }
    }
    rows
}

fn speed(runs: &[ComparedRun]) -> LabelledValues {
    let percent = |fraction: f64| format!("{} %", number(100.0 * fraction));
    let higher = Some(Direction::Higher);
    vec![
        numbers("training steps/s", runs, higher, number, |run| run.steps_per_second),
        numbers("training items/s", runs, higher, number, |run| run.items_per_second),
        numbers("training time", runs, None, seconds, |run| Some(run.seconds)),
        // Steps that took less time than their samples are no measure of it.
        numbers("sampling cost", runs, None, percent, |run| run.memory.trace_share.filter(|share| *share <= 1.0)),
    ]
}

/// `3 runs compared`, or `4 runs of 2 settings compared`.
pub fn title(compared: &RunComparison, columns: &[Column]) -> String {
    let runs = pluralize(compared.record.runs.len() as u64, "run");
    match columns.len() == compared.record.runs.len() {
        true => format!("{runs} compared"),
        false => format!("{runs} of {} compared", pluralize(columns.len() as u64, "setting")),
    }
}
