//! Tables with a header: the column of steps or times, the owners of rows, the columns of sizes.
//!
//! Tables of nvidia-smi and psrecord are such tables, with names and units that are known.

use std::collections::BTreeMap;
use std::path::Path;

use super::groups::{GROUPS_MAX, Groups, ROWS_FOR_ROUNDS, Rounds};
use super::names::{no_size, unit, words};
use super::rows::Rows;
use super::text::{Head, quoted};
use super::time::{Times, is_time};
use super::{Asked, Known, PLACE, SERIES_MAX, Sample, Source, Value, Wrong, psrecord};
use crate::axis::Axis;
use crate::names::{OWNER, UNCAPPED};

/// The most columns that are looked at.
const COLUMNS_MAX: usize = 256;
/// Columns of steps, the best first; `train/` and `trainer/` may stand before them.
pub const STEPS: &[&str] = &["step", "global_step", "step_num", "iteration", "iterations", "iter", "iter_num"];
/// A larger number in a column `epoch` is a time in seconds since 1970.
const EPOCHS_MAX: f64 = 1e8;
/// Larger steps are none; up to here they are exact.
const PLACE_MAX: f64 = 9e12;
const MIB: f64 = 1024.0 * 1024.0;

#[derive(Clone, Debug)]
struct Column {
    name: String,
    unit: Option<f64>,
    hint: Option<String>,
    broken: Option<String>,
}

/// The column in which the place of a row stands.
#[derive(Clone, Debug)]
enum PlaceOf {
    Steps(usize),
    Epochs(usize),
    Times(usize, Times),
    /// Nowhere: rows are counted, those of each group by themselves.
    Rows(Vec<i64>),
}

pub struct Delimited {
    rows: Rows,
    row: Vec<String>,
    header: Vec<String>,
    columns: Vec<Column>,
    place: PlaceOf,
    groups: Groups,
    rounds: Option<Rounds>,
    /// The series of a column and a group.
    series: BTreeMap<(usize, usize), usize>,
    by_number: Vec<(usize, usize)>,
    notes: Vec<String>,
}

impl Delimited {
    pub fn open(path: &Path, head: &Head, asked: &Asked) -> Result<Self, Wrong> {
        let mut rows = Rows::open(path, head)?;
        let mut header = Vec::new();
        rows.next_row(&mut header)?;
        if let Some(first) = header.first_mut() {
            *first = first.trim_start_matches(['\u{feff}', '#', ' ']).to_owned();
        }
        // A `#` that stood alone is no column.
        header.retain({
            let mut at = 0;
            move |name| {
                at += 1;
                at > 1 || !name.is_empty()
            }
        });
        if header.iter().all(|name| !name.chars().any(char::is_alphabetic) || Times::of("").read(name).is_ok())
            || header.iter().any(|name| sized(name).is_some())
        {
            return Err(Wrong::at(
                rows.line,
                "holds values, and no names of columns; write a header (nvidia-smi: leave `noheader` out)",
            ));
        }
        let nvidia_smi = header.iter().any(|name| is_nvidia_smi(name));
        let psrecord = psrecord::is_csv(&header);
        let names: Vec<String> = header.iter().take(COLUMNS_MAX).cloned().collect();
        let mut notes = Vec::new();
        if header.len() > COLUMNS_MAX {
            notes.push(format!("columns after the first {COLUMNS_MAX} are left out"));
        }
        let groups = Groups::of(&names, nvidia_smi);
        let mut columns: Vec<Column> = names.iter().map(|name| Column::of(name)).collect();
        for (at, column) in columns.iter_mut().enumerate() {
            if names[..at].contains(&column.name) {
                (column.broken, column.hint) = (Some("a column before it has the same name".into()), None);
            } else if groups.has(at) {
                column.hint = Some("says whose row it is".into());
            } else if nvidia_smi {
                column.of_nvidia_smi();
            } else if psrecord {
                psrecord::column(&column.name, &mut column.unit, &mut column.hint);
            }
        }
        let mut first_rows = Rows::open(path, head)?;
        let place = place(&names, &mut first_rows, asked)?;
        let mut table = Self {
            rows,
            row: Vec::new(),
            header,
            columns,
            place,
            groups,
            rounds: None,
            series: BTreeMap::new(),
            by_number: Vec::new(),
            notes,
        };
        if nvidia_smi && table.groups.is_empty() {
            table.rounds = table.rounds(&mut first_rows)?;
        }
        let what = if nvidia_smi {
            "a table of nvidia-smi"
        } else if psrecord {
            "a table of psrecord"
        } else {
            "a table"
        };
        table.notes.insert(0, format!("{what}; {}", table.place_in_words()));
        Ok(table)
    }

    fn place_in_words(&self) -> String {
        let (at, what) = match &self.place {
            PlaceOf::Steps(at) => (*at, "steps"),
            PlaceOf::Epochs(at) => (*at, "epochs"),
            PlaceOf::Times(at, _) => (*at, "times"),
            PlaceOf::Rows(_) => {
                let why = "no column is named as steps or times are, so rows are counted";
                return format!("{why}; `--step-column NAME` says which it is");
            }
        };
        format!("{what} are in `{}`", self.columns[at].name)
    }

    /// Finds out whether rows come in rounds, from the times of the first of them.
    fn rounds(&self, rows: &mut Rows) -> Result<Option<Rounds>, Wrong> {
        let PlaceOf::Times(at, mut times) = self.place.clone() else { return Ok(None) };
        let (mut found, mut row) = (Vec::new(), Vec::new());
        while found.len() < ROWS_FOR_ROUNDS && rows.next_row(&mut row)? {
            found.extend(row.get(at).and_then(|cell| times.read(cell).ok()));
        }
        Ok(Rounds::find(&found))
    }

    /// The place of the newest row, which is of a group; `None` where its cell is empty.
    fn place(&mut self, group: usize) -> Result<Option<i64>, Wrong> {
        let line = self.rows.line;
        let (at, what) = match &mut self.place {
            PlaceOf::Rows(counts) => {
                if counts.len() <= group {
                    counts.resize(group + 1, 0);
                }
                counts[group] += 1;
                return Ok(Some(counts[group] - 1));
            }
            PlaceOf::Steps(at) | PlaceOf::Epochs(at) | PlaceOf::Times(at, _) => (*at, self.columns[*at].name.as_str()),
        };
        let cell = self.row.get(at).map_or("", String::as_str);
        if cell.is_empty() {
            return Ok(None);
        }
        let wrong = |why: &str| Wrong::at(line, format!("column `{what}`: {} {why}", quoted(cell)));
        let number = self.rows.number(cell).filter(|number| (0.0..PLACE_MAX).contains(number));
        match &mut self.place {
            PlaceOf::Times(_, times) => times.read(&self.rows.pointed(cell)).map(Some).map_err(|why| wrong(&why)),
            PlaceOf::Epochs(_) => {
                let number = number.ok_or_else(|| wrong("is no number of epochs"))?;
                Ok(Some((number * 1e3).round() as i64))
            }
            _ => {
                let whole = number.filter(|step| step.fract() == 0.0).map(|step| step as i64);
                whole.map(Some).ok_or_else(|| wrong("is no whole number"))
            }
        }
    }

    fn series(&mut self, column: usize, group: usize) -> usize {
        let next = self.by_number.len();
        if next == SERIES_MAX {
            return self.series.get(&(column, group)).copied().unwrap_or(SERIES_MAX);
        }
        let number = *self.series.entry((column, group)).or_insert(next);
        if number == next {
            self.by_number.push((column, group));
        }
        number
    }

    /// Joins a date and its time of day, which are two cells where spaces separate.
    fn join_date(&mut self) {
        let PlaceOf::Times(at, times) = &self.place else { return };
        if self.row.len() <= self.header.len() || self.row.len() <= at + 1 {
            return;
        }
        let both = format!("{} {}", self.row[*at], self.row[at + 1]);
        if times.clone().read(&both).is_ok() {
            self.row[*at] = both;
            self.row.remove(at + 1);
        }
    }
}

impl Source for Delimited {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, Wrong> {
        loop {
            if !self.rows.next_row(&mut self.row)? {
                return Ok(false);
            }
            // A tool that is started again writes its header again.
            if self.row == self.header {
                continue;
            }
            self.join_date();
            let group = match self.groups.is_empty() {
                true => 0,
                false => match self.groups.number(&self.row) {
                    Some(group) => group,
                    None => continue,
                },
            };
            let Some(place) = self.place(group)? else { continue };
            let group = self.rounds.as_mut().map_or(group, |rounds| rounds.number(place));
            *sample =
                Sample { line: self.rows.line, place, restart: false, values: std::mem::take(&mut sample.values) };
            sample.values.clear();
            for at in 0..self.columns.len().min(self.row.len()) {
                if self.groups.has(at) || self.columns[at].broken.is_some() {
                    continue;
                }
                match read(&self.rows, &self.row[at]) {
                    Ok(None) => {}
                    Ok(Some((number, unit))) => {
                        let series = self.series(at, group);
                        sample.values.push(Value { series, number, unit });
                    }
                    Err(why) => {
                        let said = format!("line {}: {} {why}", self.rows.line, quoted(&self.row[at]));
                        self.columns[at].broken = Some(said);
                    }
                }
            }
            return Ok(true);
        }
    }

    fn known(&mut self) -> Vec<Known> {
        // A column without a number has no series yet, and should be named.
        for at in 0..self.columns.len() {
            if !self.by_number.iter().any(|(column, _)| *column == at) {
                self.series(at, 0);
            }
        }
        let place = match &self.place {
            PlaceOf::Steps(at) | PlaceOf::Epochs(at) | PlaceOf::Times(at, _) => Some(*at),
            PlaceOf::Rows(_) => None,
        };
        let known = self.by_number.iter().map(|(at, group)| {
            let column = &self.columns[*at];
            let round = self.rounds.map(|rounds| format!("GPU {} of {}", group + 1, rounds.size));
            let label = round.or_else(|| self.groups.label(*group)).filter(|_| !self.groups.has(*at));
            let is_place = place == Some(*at);
            Known {
                name: label.map_or_else(|| column.plain(), |label| format!("{}, {label}", column.plain())),
                column: column.name.clone(),
                unit: column.unit,
                hint: column.hint.clone().filter(|_| !is_place),
                broken: if is_place { Some(PLACE.into()) } else { column.broken.clone() },
            }
        });
        known.collect()
    }

    fn axis(&self) -> Axis {
        match &self.place {
            PlaceOf::Steps(_) => Axis::Steps,
            PlaceOf::Epochs(_) => Axis::Epochs,
            PlaceOf::Times(..) => Axis::Clock,
            PlaceOf::Rows(_) => Axis::Samples,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if let PlaceOf::Times(at, times) = &self.place
            && let Some(unit) = times.taken_for()
        {
            notes.push(format!("`{}` is taken for {unit}", self.columns[*at].name));
        }
        if self.rounds.is_some() {
            notes.push(
                "no column says which GPU a row is of: they are told apart by their order; better query `index`".into(),
            );
        }
        if self.groups.full {
            notes.push(format!("rows of more than {GROUPS_MAX} are left out"));
        }
        notes
    }
}

/// Finds the column of steps or times: the one asked for, or by its name.
fn place(names: &[String], rows: &mut Rows, asked: &Asked) -> Result<PlaceOf, Wrong> {
    let plain: Vec<String> = names.iter().map(|name| words(name).join("_")).collect();
    let position = |wanted: &str| {
        plain.iter().position(|name| name.trim_start_matches("trainer_").trim_start_matches("train_") == wanted)
    };
    let at = match &asked.step_column {
        Some(wanted) => {
            let same = |name: &String| name.trim() == wanted.trim();
            let loose = |name: &String| name.eq_ignore_ascii_case(wanted.trim());
            let at = names.iter().position(same).or_else(|| names.iter().position(loose));
            Some(
                at.ok_or_else(|| Wrong::Asked(format!("no column is named `{wanted}` (found: {})", names.join(", "))))?,
            )
        }
        None => {
            let times = |date: bool| {
                names.iter().zip(&plain).position(|(name, plain)| is_time(name) && (plain == "date") == date)
            };
            STEPS
                .iter()
                .find_map(|wanted| position(wanted))
                .or_else(|| times(false))
                .or_else(|| times(true))
                .or_else(|| position("epoch"))
        }
    };
    let mut row = Vec::new();
    rows.next_row(&mut row)?;
    let Some(at) = at else { return Ok(PlaceOf::Rows(Vec::new())) };
    let name = &names[at];
    if is_time(name) {
        return Ok(PlaceOf::Times(at, Times::of(name)));
    }
    // Of another name, the first cell says what it is.
    let mut first = String::new();
    while first.is_empty() && rows.next_row(&mut row)? {
        first = row.get(at).cloned().unwrap_or_default();
    }
    let number = rows.number(&first);
    let epochs = words(name).iter().any(|word| word == "epoch" || word == "epochs");
    Ok(match number {
        Some(number) if epochs && number < EPOCHS_MAX => PlaceOf::Epochs(at),
        Some(_) if epochs => PlaceOf::Times(at, Times::of(name)),
        None if asked.step_column.is_some() && Times::of(name).read(&first).is_ok() => {
            PlaceOf::Times(at, Times::of(name))
        }
        Some(number) if asked.step_column.is_some() && number.fract() != 0.0 => PlaceOf::Times(at, Times::of(name)),
        _ => PlaceOf::Steps(at),
    })
}

/// A size, and the bytes of a unit beside it; `None` of a cell that was not measured.
fn read(rows: &Rows, cell: &str) -> Result<Option<(f64, Option<f64>)>, &'static str> {
    const NOT_MEASURED: &[&str] = &["", "-", "na", "n/a", "nan", "null", "none"];
    if NOT_MEASURED.contains(&cell.to_lowercase().as_str()) || (cell.starts_with('[') && cell.ends_with(']')) {
        return Ok(None);
    }
    match rows.number(cell) {
        Some(number) if number < 0.0 => Err("is negative"),
        Some(number) if number.is_finite() => Ok(Some((number, None))),
        Some(_) => Err("is not finite"),
        // With its own unit: `512 MiB`.
        None => sized(&rows.pointed(cell)).map(|bytes| Some((bytes, Some(1.0)))).ok_or("is no number"),
    }
}

/// The bytes of a size with a unit.
fn sized(cell: &str) -> Option<f64> {
    let has_unit = cell.ends_with(['b', 'B', 'i', 'k', 'K', 'M', 'G', 'T']);
    let has_digit = cell.trim_start().starts_with(|c: char| c.is_ascii_digit());
    cell.parse::<bytesize::ByteSize>().ok().filter(|_| has_unit && has_digit).map(|bytes| bytes.as_u64() as f64)
}

/// Returns whether a column has a name of nvidia-smi's, as `--query-gpu` and `--query-compute-apps` print it.
fn is_nvidia_smi(name: &str) -> bool {
    let plain = name.split(['[', ' ']).next().unwrap_or_default();
    let starts = ["memory.", "utilization.", "temperature.", "power.", "clocks.", "fb_memory_usage."];
    starts.iter().any(|start| plain.starts_with(start)) || ["used_gpu_memory", "used_memory"].contains(&plain)
}

impl Column {
    fn of(name: &str) -> Self {
        Self { name: name.to_owned(), unit: unit(name), hint: no_size(name), broken: None }
    }

    /// Its name, which is none that a buffer of ours could have.
    fn plain(&self) -> String {
        let ours = [OWNER, UNCAPPED].iter().any(|start| self.name.starts_with(start));
        if ours { self.name.replacen(':', " ", 1) } else { self.name.clone() }
    }

    /// Marks nvidia-smi's columns: memory in use can grow. It is in MiB, also where `nounits` leaves that out.
    fn of_nvidia_smi(&mut self) {
        let plain = self.name.split(['[', ' ']).next().unwrap_or_default();
        // Somebody added it.
        if !plain.contains('.') && !is_nvidia_smi(plain) {
            return;
        }
        match plain {
            "memory.used" | "used_gpu_memory" | "used_memory" | "fb_memory_usage.used" => {
                self.unit = self.unit.or(Some(MIB));
                self.hint = None;
            }
            "memory.total" | "memory.reserved" => self.hint = Some("does not grow".into()),
            _ => self.hint = self.hint.take().or_else(|| Some("is no memory in use".into())),
        }
    }
}
