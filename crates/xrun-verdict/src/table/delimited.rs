//! Tables with a header: the column of steps or times, the columns that group rows, and the columns of sizes.
//!
//! Tables of nvidia-smi and psrecord are among them; names and units of their columns are known.

use std::collections::BTreeMap;
use std::path::Path;

use super::column_names::{exclusion, unit, words};
use super::groups::{GROUPS_MAX, ROWS_FOR_ROUNDS, Rounds, RowGroups};
use super::rows::Rows;
use super::text::{FileHead, quoted};
use super::times::{TimeParser, is_time};
use super::{POSITIONS, SERIES_MAX, Sample, SeriesInfo, TableOptions, Trace, TraceError, Value, psrecord};
use crate::axis::Axis;
use crate::names::{OWNER_PREFIX, UNCAPPED};

/// Cap on the columns of a table; further ones are ignored.
const COLUMNS_MAX: usize = 256;
/// Names of columns of steps, in order of preference; they may have the prefix `train/` or `trainer/`.
pub const STEPS: &[&str] = &["step", "global_step", "step_num", "iteration", "iterations", "iter", "iter_num"];
/// Upper bound of epochs: a larger number in a column `epoch` is a time in seconds since 1970.
const EPOCHS_MAX: f64 = 1e8;
/// Upper bound of positions; `f64` is exact below it.
const POSITION_MAX: f64 = 9e12;
const MIB: f64 = 1024.0 * 1024.0;

#[derive(Clone, Debug)]
/// Column of a table; its fields are those of [`SeriesInfo`].
struct Column {
    name: String,
    unit: Option<f64>,
    excluded: Option<String>,
    invalid: Option<String>,
}

/// Column that holds the positions of the rows.
#[derive(Clone, Debug)]
enum PositionColumn {
    Steps(usize),
    Epochs(usize),
    Times(usize, TimeParser),
    /// None: rows are counted, separately for each group.
    Rows(Vec<i64>),
}

/// Reader of a table with a header.
pub struct Delimited {
    rows: Rows,
    row: Vec<String>,
    header: Vec<String>,
    columns: Vec<Column>,
    position: PositionColumn,
    groups: RowGroups,
    rounds: Option<Rounds>,
    /// Index of the series of a column and a group.
    series: BTreeMap<(usize, usize), usize>,
    /// Column and group of each series.
    by_index: Vec<(usize, usize)>,
    notes: Vec<String>,
}

impl Delimited {
    pub fn open(path: &Path, head: &FileHead, options: &TableOptions) -> Result<Self, TraceError> {
        let mut rows = Rows::open(path, head)?;
        let mut header = Vec::new();
        rows.next_row(&mut header)?;
        if let Some(first) = header.first_mut() {
            *first = first.trim_start_matches(['\u{feff}', '#', ' ']).to_owned();
        }
        // A separate `#` is no column.
        header.retain({
            let mut at = 0;
            move |name| {
                at += 1;
                at > 1 || !name.is_empty()
            }
        });
        if header.iter().all(|name| !name.chars().any(char::is_alphabetic) || TimeParser::of("").read(name).is_ok())
            || header.iter().any(|name| size_with_unit(name).is_some())
        {
            return Err(TraceError::at(
                rows.line,
                "expected a header with names of columns, found values (with nvidia-smi, omit `noheader`)",
            ));
        }
        let nvidia_smi = header.iter().any(|name| is_nvidia_smi(name));
        let psrecord = psrecord::is_csv(&header);
        let names: Vec<String> = header.iter().take(COLUMNS_MAX).cloned().collect();
        let mut notes = Vec::new();
        if header.len() > COLUMNS_MAX {
            notes.push(format!("only the first {COLUMNS_MAX} columns are judged"));
        }
        let groups = RowGroups::of(&names, nvidia_smi);
        let mut columns: Vec<Column> = names.iter().map(|name| Column::of(name)).collect();
        for (at, column) in columns.iter_mut().enumerate() {
            if names[..at].contains(&column.name) {
                (column.invalid, column.excluded) = (Some("duplicate of a column before it".into()), None);
            } else if groups.has(at) {
                column.excluded = Some("identifies the row's GPU, process or host".into());
            } else if nvidia_smi {
                column.set_nvidia_smi();
            } else if psrecord {
                (column.unit, column.excluded) = psrecord::unit_and_exclusion(&column.name);
            }
        }
        let mut first_rows = Rows::open(path, head)?;
        let position = position_column(&names, &mut first_rows, options)?;
        let mut table = Self {
            rows,
            row: Vec::new(),
            header,
            columns,
            position,
            groups,
            rounds: None,
            series: BTreeMap::new(),
            by_index: Vec::new(),
            notes,
        };
        if nvidia_smi && table.groups.is_empty() {
            table.rounds = table.rounds(&mut first_rows)?;
        }
        let format = match (nvidia_smi, psrecord) {
            (true, _) => "table of nvidia-smi",
            (_, true) => "table of psrecord",
            _ => "table",
        };
        table.notes.insert(0, format!("{format}; {}", table.position_note()));
        Ok(table)
    }

    fn position_note(&self) -> String {
        let (at, what) = match &self.position {
            PositionColumn::Steps(at) => (*at, "steps"),
            PositionColumn::Epochs(at) => (*at, "epochs"),
            PositionColumn::Times(at, _) => (*at, "times"),
            PositionColumn::Rows(_) => {
                return "rows are counted, because no column is named like steps or times; name one with \
                        `--step-column NAME`"
                    .into();
            }
        };
        format!("{what} from `{}`", self.columns[at].name)
    }

    /// Recognises rounds of rows from the times of the first rows.
    fn rounds(&self, rows: &mut Rows) -> Result<Option<Rounds>, TraceError> {
        let PositionColumn::Times(at, mut times) = self.position.clone() else { return Ok(None) };
        let (mut found, mut row) = (Vec::new(), Vec::new());
        while found.len() < ROWS_FOR_ROUNDS && rows.next_row(&mut row)? {
            found.extend(row.get(at).and_then(|cell| times.read(cell).ok()));
        }
        Ok(Rounds::find(&found))
    }

    /// Position of the newest row, which belongs to `group`; `None` where its cell is empty.
    fn row_position(&mut self, group: usize) -> Result<Option<i64>, TraceError> {
        let line = self.rows.line;
        let (at, column) = match &mut self.position {
            PositionColumn::Rows(counts) => {
                if counts.len() <= group {
                    counts.resize(group + 1, 0);
                }
                counts[group] += 1;
                return Ok(Some(counts[group] - 1));
            }
            PositionColumn::Steps(at) | PositionColumn::Epochs(at) | PositionColumn::Times(at, _) => {
                (*at, self.columns[*at].name.as_str())
            }
        };
        let cell = self.row.get(at).map_or("", String::as_str);
        if cell.is_empty() {
            return Ok(None);
        }
        let error = |problem: &str| TraceError::at(line, format!("column `{column}`: {} {problem}", quoted(cell)));
        let number = self.rows.number(cell).filter(|number| (0.0..POSITION_MAX).contains(number));
        match &mut self.position {
            PositionColumn::Times(_, times) => {
                times.read(&self.rows.with_decimal_point(cell)).map(Some).map_err(|problem| error(&problem))
            }
            PositionColumn::Epochs(_) => {
                let number = number.ok_or_else(|| error("is no number of epochs"))?;
                Ok(Some((number * 1e3).round() as i64))
            }
            _ => {
                let whole = number.filter(|step| step.fract() == 0.0).map(|step| step as i64);
                whole.map(Some).ok_or_else(|| error("is no whole number"))
            }
        }
    }

    /// Index of the series of a column and a group; [`SERIES_MAX`] beyond the cap.
    fn series_index(&mut self, column: usize, group: usize) -> usize {
        let next = self.by_index.len();
        if next == SERIES_MAX {
            return self.series.get(&(column, group)).copied().unwrap_or(SERIES_MAX);
        }
        let index = *self.series.entry((column, group)).or_insert(next);
        if index == next {
            self.by_index.push((column, group));
        }
        index
    }

    /// Joins a date and its time of day, which are two cells where cells are separated by spaces.
    fn join_date(&mut self) {
        let PositionColumn::Times(at, times) = &self.position else { return };
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

impl Trace for Delimited {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TraceError> {
        loop {
            if !self.rows.next_row(&mut self.row)? {
                return Ok(false);
            }
            // A restarted tool writes its header again.
            if self.row == self.header {
                continue;
            }
            self.join_date();
            let group = match self.groups.is_empty() {
                true => 0,
                false => match self.groups.index(&self.row) {
                    Some(group) => group,
                    None => continue,
                },
            };
            let Some(position) = self.row_position(group)? else { continue };
            let group = self.rounds.as_mut().map_or(group, |rounds| rounds.index(position));
            *sample =
                Sample { line: self.rows.line, position, restart: false, values: std::mem::take(&mut sample.values) };
            sample.values.clear();
            for at in 0..self.columns.len().min(self.row.len()) {
                if self.groups.has(at) || self.columns[at].invalid.is_some() {
                    continue;
                }
                match parse_size(&self.rows, &self.row[at]) {
                    Ok(None) => {}
                    Ok(Some((number, unit))) => {
                        let series = self.series_index(at, group);
                        sample.values.push(Value { series, number, unit });
                    }
                    Err(problem) => {
                        let message = format!("line {}: {} {problem}", self.rows.line, quoted(&self.row[at]));
                        self.columns[at].invalid = Some(message);
                    }
                }
            }
            return Ok(true);
        }
    }

    fn series(&mut self) -> Vec<SeriesInfo> {
        // A column without a number has no series yet, but belongs into the notes.
        for at in 0..self.columns.len() {
            if !self.by_index.iter().any(|(column, _)| *column == at) {
                self.series_index(at, 0);
            }
        }
        let position = match &self.position {
            PositionColumn::Steps(at) | PositionColumn::Epochs(at) | PositionColumn::Times(at, _) => Some(*at),
            PositionColumn::Rows(_) => None,
        };
        let series = self.by_index.iter().map(|(at, group)| {
            let column = &self.columns[*at];
            let round = self.rounds.map(|rounds| format!("GPU {} of {}", group + 1, rounds.size));
            let label = round.or_else(|| self.groups.label(*group)).filter(|_| !self.groups.has(*at));
            let holds_positions = position == Some(*at);
            SeriesInfo {
                name: label.map_or_else(|| column.series_name(), |label| format!("{}, {label}", column.series_name())),
                column: column.name.clone(),
                unit: column.unit,
                excluded: column.excluded.clone().filter(|_| !holds_positions),
                invalid: if holds_positions { Some(POSITIONS.into()) } else { column.invalid.clone() },
            }
        });
        series.collect()
    }

    fn axis(&self) -> Axis {
        match &self.position {
            PositionColumn::Steps(_) => Axis::Steps,
            PositionColumn::Epochs(_) => Axis::Epochs,
            PositionColumn::Times(..) => Axis::Clock,
            PositionColumn::Rows(_) => Axis::Samples,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if let PositionColumn::Times(at, times) = &self.position
            && let Some(unit) = times.inferred_unit()
        {
            notes.push(format!("`{}` is assumed to be in {unit}", self.columns[*at].name));
        }
        if self.rounds.is_some() {
            notes.push(
                "GPUs are identified by the order of the rows, because no column names them; query `index`, too".into(),
            );
        }
        if self.groups.full {
            notes.push(format!("only rows of the first {GROUPS_MAX} GPUs, processes or hosts are judged"));
        }
        notes
    }
}

/// Finds the column of steps or times: the requested one, or by its name.
fn position_column(names: &[String], rows: &mut Rows, options: &TableOptions) -> Result<PositionColumn, TraceError> {
    let normalized: Vec<String> = names.iter().map(|name| words(name).join("_")).collect();
    let position = |wanted: &str| {
        normalized.iter().position(|name| name.trim_start_matches("trainer_").trim_start_matches("train_") == wanted)
    };
    let at = match &options.step_column {
        Some(wanted) => {
            let same = |name: &String| name.trim() == wanted.trim();
            let loose = |name: &String| name.eq_ignore_ascii_case(wanted.trim());
            let at = names.iter().position(same).or_else(|| names.iter().position(loose));
            Some(at.ok_or_else(|| {
                TraceError::Options(format!("there is no column `{wanted}` (found: {})", names.join(", ")))
            })?)
        }
        None => {
            let times = |date: bool| {
                names
                    .iter()
                    .zip(&normalized)
                    .position(|(name, normalized)| is_time(name) && (normalized == "date") == date)
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
    let Some(at) = at else { return Ok(PositionColumn::Rows(Vec::new())) };
    let name = &names[at];
    if is_time(name) {
        return Ok(PositionColumn::Times(at, TimeParser::of(name)));
    }
    // For other names the first cell decides.
    let mut first = String::new();
    while first.is_empty() && rows.next_row(&mut row)? {
        first = row.get(at).cloned().unwrap_or_default();
    }
    let number = rows.number(&first);
    let epochs = words(name).iter().any(|word| word == "epoch" || word == "epochs");
    Ok(match number {
        Some(number) if epochs && number < EPOCHS_MAX => PositionColumn::Epochs(at),
        Some(_) if epochs => PositionColumn::Times(at, TimeParser::of(name)),
        None if options.step_column.is_some() && TimeParser::of(name).read(&first).is_ok() => {
            PositionColumn::Times(at, TimeParser::of(name))
        }
        Some(number) if options.step_column.is_some() && number.fract() != 0.0 => {
            PositionColumn::Times(at, TimeParser::of(name))
        }
        _ => PositionColumn::Steps(at),
    })
}

/// Parses a size, and the bytes of its unit if the cell has one; `None` for a missing value.
fn parse_size(rows: &Rows, cell: &str) -> Result<Option<(f64, Option<f64>)>, &'static str> {
    const NOT_MEASURED: &[&str] = &["", "-", "na", "n/a", "nan", "null", "none"];
    if NOT_MEASURED.contains(&cell.to_lowercase().as_str()) || (cell.starts_with('[') && cell.ends_with(']')) {
        return Ok(None);
    }
    match rows.number(cell) {
        Some(number) if number < 0.0 => Err("is negative"),
        Some(number) if number.is_finite() => Ok(Some((number, None))),
        Some(_) => Err("is not finite"),
        // A size with its own unit, `512 MiB`.
        None => {
            size_with_unit(&rows.with_decimal_point(cell)).map(|bytes| Some((bytes, Some(1.0)))).ok_or("is no number")
        }
    }
}

/// Bytes of a size with a unit.
fn size_with_unit(cell: &str) -> Option<f64> {
    let has_unit = cell.ends_with(['b', 'B', 'i', 'k', 'K', 'M', 'G', 'T']);
    let has_digit = cell.trim_start().starts_with(|c: char| c.is_ascii_digit());
    cell.parse::<bytesize::ByteSize>().ok().filter(|_| has_unit && has_digit).map(|bytes| bytes.as_u64() as f64)
}

/// Returns whether a column has a name of nvidia-smi's `--query-gpu` or `--query-compute-apps`.
fn is_nvidia_smi(name: &str) -> bool {
    let plain = name.split(['[', ' ']).next().unwrap_or_default();
    let starts = ["memory.", "utilization.", "temperature.", "power.", "clocks.", "fb_memory_usage."];
    starts.iter().any(|start| plain.starts_with(start)) || ["used_gpu_memory", "used_memory"].contains(&plain)
}

impl Column {
    fn of(name: &str) -> Self {
        Self { name: name.to_owned(), unit: unit(name), excluded: exclusion(name), invalid: None }
    }

    /// Name of its series, which must not look like that of an owner.
    fn series_name(&self) -> String {
        let is_reserved = [OWNER_PREFIX, UNCAPPED].iter().any(|prefix| self.name.starts_with(prefix));
        if is_reserved { self.name.replacen(':', " ", 1) } else { self.name.clone() }
    }

    /// Sets unit and exclusion of a column of nvidia-smi: only memory in use can leak. It is in MiB, also with `nounits`.
    fn set_nvidia_smi(&mut self) {
        let plain = self.name.split(['[', ' ']).next().unwrap_or_default();
        // A column that the user added.
        if !plain.contains('.') && !is_nvidia_smi(plain) {
            return;
        }
        match plain {
            "memory.used" | "used_gpu_memory" | "used_memory" | "fb_memory_usage.used" => {
                self.unit = self.unit.or(Some(MIB));
                self.excluded = None;
            }
            "memory.total" | "memory.reserved" => self.excluded = Some("constant".into()),
            _ => self.excluded = self.excluded.take().or_else(|| Some("no memory in use".into())),
        }
    }
}
