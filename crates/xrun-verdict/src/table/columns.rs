//! Rows of any reader as samples: the column of steps or times, the columns that tell processes apart, and the sizes.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::{FIRST_ROWS, GROUPS_MAX, Ranks, Rounds, RowGroups};
use super::names::{Role, has_kibi, is_nvidia_smi, is_ps, known, plain, role, unit, words};
use super::numbers::{Amount, Numbers, is_missing};
use super::options::{STEP_COLUMNS, TableError, TableOptions};
use super::processes::Sample;
use super::rows::{COLUMNS_MAX, Facts, Row, Rows};
use super::selection::{POSITIONS, ValueRange};
use super::text::quoted;
use super::times::{TimeParser, is_clock, is_time};
use crate::axis::Axis;
use crate::findings::UnitSource;
use crate::names::{OWNER_PREFIX, UNCAPPED};

/// Upper bound of epochs: a larger number in a column `epoch` is a time in seconds since 1970.
const EPOCHS_MAX: f64 = 1e8;
/// Cap on the series of a trace.
pub const SERIES_MAX: usize = 256;
/// Upper bound of positions; `f64` is exact below it.
const POSITION_MAX: f64 = 9e12;
/// Largest step back of a clock that is no restart, in milliseconds.
const CLOCK_BACK: i64 = 1000;
/// Rows by which a rank may lag behind another one of the same log.
const LAG_ROWS: i64 = 8;
/// Number of such steps back from which on the rows are those of ranks, and one of how many rows they are at least.
const LAGS_MIN: usize = 5;
const ROWS_OF_LAG: usize = 50;
/// Columns of steps within an epoch, where there is a column of epochs.
const STEPS_OF_EPOCH: &[&str] = &["batch", "batch_idx", "batch_index"];

/// Returns whether a column of this name holds steps or epochs.
pub fn is_position(name: &str) -> bool {
    let name = plain(name);
    STEP_COLUMNS.contains(&name.as_str()) || name == "epoch"
}

/// Column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// Bytes of its unit.
    pub unit: Option<(f64, UnitSource)>,
    /// Meaning of its name.
    pub role: Role,
    /// Reason why it cannot be judged.
    pub invalid: Option<String>,
    /// Range of all its series, of several GPUs or processes.
    pub range: ValueRange,
}

/// Series of a trace: numbers of a column, and of one GPU or process where it has those of several.
#[derive(Clone, Debug)]
pub struct Series {
    /// Index of its column.
    pub column: usize,
    group: usize,
    pub range: ValueRange,
    /// Number of the newest sample with a value.
    newest: u64,
}

impl Column {
    fn of(name: &str, names: &[String], facts: &Facts) -> Self {
        let by_name = unit(name).map(|unit| (unit, UnitSource::Header));
        let (unit, role) = match (known(name, names), role(name)) {
            (Some(Err(reason)), _) => (None, Role::Excluded(reason.into())),
            (Some(Ok(unit)), Role::Unused) => (Some((unit, UnitSource::Tool)), Role::Unused),
            // MB of psrecord are MiB.
            (Some(Ok(unit)), _) => (Some((unit, UnitSource::Tool)), Role::Memory),
            (None, role) => (by_name.or(facts.unit), role),
        };
        Self { name: name.to_owned(), unit, role, invalid: None, range: ValueRange::default() }
    }
}

/// Positions of the rows.
#[derive(Clone, Debug)]
pub struct Positions {
    /// Unit of the positions.
    pub axis: Axis,
    /// Column that holds them; `None` where rows are counted.
    column: Option<usize>,
    times: TimeParser,
    /// Number of rows so far, for each group.
    counts: Vec<i64>,
    epochs: Option<EpochCounter>,
}

/// Steps that begin again with each epoch, counted on.
#[derive(Clone, Copy, Debug)]
struct EpochCounter {
    column: usize,
    epoch: f64,
    base: i64,
    last: i64,
}

/// Samples from the rows of a table or a log.
pub struct Columns {
    rows: Box<dyn Rows>,
    row: Row,
    pub columns: Vec<Column>,
    /// Series so far; those of columns without a number are added at the end.
    pub series: Vec<Series>,
    pub facts: Facts,
    kibi: bool,
    numbers: Numbers,
    pub positions: Positions,
    /// Their state before the first row.
    begin: Positions,
    groups: RowGroups,
    ranks: Option<Ranks>,
    /// Largest step back that is no restart: of a clock that is set, or of a rank that lags behind another one.
    pub tolerance: i64,
    /// Rounds of the processes.
    rounds: Rounds,
    /// Newest position of a log, in which sizes may follow the line of their step.
    newest: Option<i64>,
}

impl Columns {
    /// Samples of `rows`; `first` reads the same rows, for what depends on the first of them.
    pub fn of(rows: Box<dyn Rows>, mut first: Box<dyn Rows>, options: &TableOptions) -> Result<Self, TableError> {
        let mut head: Vec<Row> = Vec::new();
        let (mut row, mut bytes) = (Row::default(), 0);
        while head.len() < FIRST_ROWS && bytes < 1 << 20 && first.next_row(&mut row)? {
            bytes += row.cells.iter().map(|(_, text)| text.len()).sum::<usize>();
            head.push(row.clone());
        }
        let names: Vec<String> = first.facts().names.iter().take(COLUMNS_MAX).cloned().collect();
        let facts = first.facts().clone();
        let cells = || head.iter().flat_map(|row| row.cells.iter().map(|(_, text)| text.as_str()));
        let numbers = Numbers::of(cells(), facts.semicolons);
        let reading = Reading { names: &names, head: &head, numbers, clock: facts.clock };
        let (axis, column) = reading.position_column(options)?;
        let positions = Positions {
            axis,
            column,
            times: column.map_or_else(|| TimeParser::of(""), |at| reading.times(at)),
            counts: Vec::new(),
            epochs: reading.epochs(axis),
        };
        let mut table = Self {
            rows,
            row: Row::default(),
            columns: Vec::new(),
            series: Vec::new(),
            facts,
            kibi: has_kibi(&names),
            numbers,
            begin: positions.clone(),
            positions,
            groups: RowGroups::of(&names, &head),
            ranks: None,
            tolerance: 0,
            rounds: Rounds::default(),
            newest: None,
        };
        table.add_columns(&names);
        if let Some(at) = column {
            table.columns[at].invalid = Some(POSITIONS.into());
        }
        table.recognize_ranks(&names, &head);
        Ok(table)
    }

    /// Begins anew with the same rows, and keeps what is known of columns, series and groups.
    pub fn begin_anew(&mut self, rows: Box<dyn Rows>) {
        self.rows = rows;
        self.positions.clone_from(&self.begin);
        self.newest = None;
        self.ranks.iter_mut().for_each(Ranks::begin_anew);
    }

    /// Adds columns whose names the reader has found.
    fn add_columns(&mut self, names: &[String]) {
        for (at, name) in names.iter().enumerate().take(COLUMNS_MAX).skip(self.columns.len()) {
            let mut column = Column::of(name, names, &self.facts);
            if name.is_empty() {
                column.role = Role::Excluded("the index of the rows".into());
            } else if names[..at].contains(name) {
                column.invalid = Some("duplicate of a column before it".into());
            } else if self.groups.has(at) {
                column.role = Role::Excluded("identifies the row's GPU, process or host".into());
            }
            self.columns.push(column);
        }
    }

    /// Recognises GPUs or ranks without a column that names them, also by steps that go back by a few rows.
    fn recognize_ranks(&mut self, names: &[String], head: &[Row]) {
        let (mut positions, mut of_column) = (Vec::new(), BTreeMap::<usize, Vec<i64>>::new());
        let own = self.positions.column;
        for row in head {
            self.row.clone_from(row);
            let group = self.groups.index(row).unwrap_or_default();
            let Some(position) = self.row_position(group).ok().flatten() else { continue };
            positions.push(position);
            let is_size =
                |at: usize| !matches!(self.columns.get(at), None | Some(Column { role: Role::Excluded(_), .. }));
            let is_own = |column: &usize| own == Some(*column) || !is_size(*column);
            for (column, _) in row.cells.iter().filter(|(column, text)| !is_own(column) && !is_missing(text)) {
                of_column.entry(*column).or_default().push(position);
            }
        }
        self.positions.clone_from(&self.begin);
        let mut distances: Vec<i64> = positions.windows(2).map(|pair| pair[1] - pair[0]).collect();
        distances.retain(|distance| *distance != 0);
        distances.sort_unstable();
        let rising = distances.partition_point(|distance| *distance < 0);
        let stride = distances.get((distances.len() + rising) / 2).copied().unwrap_or_default();
        let lags = distances[..rising].iter().filter(|distance| **distance >= -LAG_ROWS * stride).count();
        self.tolerance = match self.positions.axis {
            Axis::Clock => CLOCK_BACK,
            Axis::Steps | Axis::Epochs if lags >= LAGS_MIN.max(positions.len() / ROWS_OF_LAG) => LAG_ROWS * stride,
            _ => 0,
        };
        self.ranks = match self.positions.axis {
            _ if !self.groups.is_empty() => None,
            Axis::Clock if is_nvidia_smi(names) => Ranks::find(&positions, true),
            Axis::Steps | Axis::Epochs => {
                // Ranks write the same numbers; other lines of a step have others.
                let commonest = of_column.values().max_by_key(|positions| positions.len());
                commonest.and_then(|positions| Ranks::find(positions, false))
            }
            Axis::Samples if names.len() == 1 => {
                let numbers = head.iter().filter_map(|row| match self.numbers.amount(row.get(0), self.kibi) {
                    Ok(Amount::Number(number) | Amount::Bytes(number)) => Some(number),
                    _ => None,
                });
                Ranks::in_turn(&numbers.collect::<Vec<f64>>())
            }
            _ => None,
        };
    }

    fn position_note(&self) -> String {
        let Some(at) = self.positions.column else {
            return "rows are counted, because no column is named like steps or times; name one with `--step-column NAME`"
                .into();
        };
        let what = match self.positions.axis {
            Axis::Clock if Some(at) == self.facts.clock => return "times from the lines between".into(),
            Axis::Steps => "steps",
            Axis::Epochs => "epochs",
            Axis::Clock | Axis::Samples => "times",
        };
        format!("{what} from `{}`", self.columns[at].name)
    }

    /// Position of the newest row, which belongs to `group`; `None` where its cell is empty.
    fn row_position(&mut self, group: usize) -> Result<Option<i64>, TableError> {
        let (line, positions) = (self.row.line, &mut self.positions);
        let Some(at) = positions.column else {
            positions.counts.resize(positions.counts.len().max(group + 1), 0);
            positions.counts[group] += 1;
            return Ok(Some(positions.counts[group] - 1));
        };
        let column = self.columns.get(at).map_or("", |column| column.name.as_str());
        let cell = self.row.get(at);
        if is_missing(cell) {
            return Ok(None);
        }
        let error = |problem: &str| TableError::at(line, format!("column `{column}`: {} {problem}", quoted(cell)));
        let number = self.numbers.plain_amount(cell).filter(|number| (0.0..POSITION_MAX).contains(number));
        match positions.axis {
            Axis::Clock => {
                let time = positions.times.read(&self.numbers.with_decimal_point(cell));
                time.map(Some).map_err(|problem| error(&problem))
            }
            Axis::Epochs => {
                let number = number.ok_or_else(|| error("is no number of epochs"))?;
                Ok(Some((number * 1e3).round() as i64))
            }
            _ => {
                let whole = number.filter(|step| step.fract() == 0.0).map(|step| step as i64);
                let step = whole.ok_or_else(|| error("is no whole number"))?;
                let Some(counter) = &mut positions.epochs else { return Ok(Some(step)) };
                let epoch = self.numbers.plain_amount(self.row.get(counter.column)).unwrap_or(counter.epoch);
                if epoch > counter.epoch && counter.base + step < counter.last {
                    counter.base = counter.last;
                } else if epoch < counter.epoch {
                    counter.base = 0;
                }
                (counter.epoch, counter.last) = (epoch, counter.base + step);
                Ok(Some(counter.last))
            }
        }
    }

    /// Index of the series of a column and a group; `None` beyond the cap.
    fn series_index(&mut self, column: usize, group: usize) -> Option<usize> {
        let next = self.series.len();
        self.series.iter().position(|one| (one.column, one.group) == (column, group)).or_else(|| {
            let series = Series { column, group, range: ValueRange::default(), newest: 0 };
            (next < SERIES_MAX).then(|| self.series.push(series))?;
            Some(next)
        })
    }

    /// Reads the next sample into `sample`; `false` at the end.
    pub fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TableError> {
        loop {
            if !self.rows.next_row(&mut self.row)? {
                return Ok(false);
            }
            if self.rows.facts().names.len().min(COLUMNS_MAX) > self.columns.len() {
                let names = self.rows.facts().names.clone();
                self.add_columns(&names);
            }
            let Some(group) = self.groups.index(&self.row) else { continue };
            let own_position = self.row_position(group)?;
            let Some(position) = own_position.or(self.newest.filter(|_| self.facts.is_log)) else { continue };
            self.newest = Some(position);
            let (group, position) = match (&mut self.ranks, self.positions.axis) {
                (Some(ranks), Axis::Samples) => (position as usize % ranks.count, position / ranks.count as i64),
                (Some(ranks), _) if own_position.is_some() => (ranks.index(position), position),
                _ => (group, position),
            };
            sample.values.clear();
            (sample.line, sample.position, sample.restart, sample.group) =
                (self.row.line, position, self.row.restart, group);
            let cells = std::mem::take(&mut self.row.cells);
            for (at, cell) in &cells {
                let Some(column) = self.columns.get_mut(*at) else { continue };
                if column.invalid.is_some() || self.groups.has(*at) {
                    continue;
                }
                let problem = match self.numbers.amount(cell, self.kibi) {
                    Ok(Amount::Missing) => continue,
                    Ok(Amount::Bytes(_)) if cell.ends_with('m') && column.role != Role::Memory => {
                        "has a unit that is no size"
                    }
                    Ok(amount) => {
                        sample.values.extend(self.series_index(*at, group).map(|series| (series, amount)));
                        continue;
                    }
                    Err(problem) => problem,
                };
                column.invalid = Some(format!("line {}: {} {problem}", self.row.line, quoted(cell)));
            }
            return Ok(true);
        }
    }

    /// Adds the values of a sample to the ranges of their series and columns.
    pub fn add_to_ranges(&mut self, sample: &Sample) {
        self.rounds.begins(sample.group);
        for (at, amount) in &sample.values {
            let series = &mut self.series[*at];
            series.range.add(*amount);
            series.newest = self.rounds.rows;
            self.columns[series.column].range.add(*amount);
        }
    }

    /// Returns whether the rows are those of processes in turn.
    pub fn are_processes(&self) -> bool {
        self.groups.are_processes() && 2 * self.rounds.count <= self.rounds.rows
    }

    /// Returns whether a series is of a process that had ended in the last twentieth of the rows.
    pub fn has_ended(&self, series: &Series) -> bool {
        let last = self.rounds.rows / (self.rounds.count / 2).clamp(1, 20);
        self.are_processes() && series.newest + last < self.rounds.rows
    }

    /// Series of the swap of the process that a series of RSS is of.
    pub fn swap_beside(&self, at: usize) -> Option<usize> {
        let series = &self.series[at];
        let words = |one: &Series| words(&self.columns[one.column].name);
        let has = |word: &str| words(series).iter().any(|one| one == word);
        let is_all = has("rss") && !["file", "shmem", "max", "peak"].into_iter().any(has);
        let is_swap = |one: &Series| one.group == series.group && words(one).iter().any(|word| word == "swap");
        self.series.iter().position(is_swap).filter(|_| is_all)
    }

    /// Adds series without a number for columns that have none: they belong to those that are not judged.
    pub fn add_empty_series(&mut self) {
        for at in 0..self.columns.len() {
            if !self.series.iter().any(|series| series.column == at) {
                self.series_index(at, 0);
            }
        }
    }

    /// Name of a series: that of its column, and of its GPU or process. It must not look like that of an owner.
    pub fn name(&self, series: &Series) -> String {
        let name = &self.columns[series.column].name;
        let is_reserved = [OWNER_PREFIX, UNCAPPED].iter().any(|prefix| name.starts_with(prefix));
        let name = if is_reserved { name.replacen(':', " ", 1) } else { name.clone() };
        let rank = self.ranks.as_ref().map(|ranks| match self.positions.axis {
            Axis::Clock => format!("GPU {} of {}", series.group + 1, ranks.count),
            Axis::Samples => format!("{} of {} in turn", series.group + 1, ranks.count),
            _ => format!("rank {}", series.group),
        });
        let label = rank.or_else(|| self.groups.label(series.group)).filter(|_| !self.groups.has(series.column));
        label.map_or(name.clone(), |label| format!("{name}, {label}"))
    }

    /// Notes on how the file was interpreted, complete at the end.
    pub fn notes(&self) -> Vec<String> {
        let facts = self.rows.facts();
        let mut notes = vec![format!("{}; {}", facts.form, self.position_note())];
        if let Some((at, what)) = self.positions.column.zip(self.positions.times.assumption()) {
            notes.push(format!("`{}` is assumed to {what}", self.columns[at].name));
        }
        notes.extend(self.ranks.as_ref().map(|ranks| match self.positions.axis {
            Axis::Clock => {
                "GPUs are identified by the order of the rows, because no column names them; query `index`, too".into()
            }
            Axis::Samples => {
                format!("values repeat after {0} rows; they are taken for those of {0} processes", ranks.count)
            }
            _ => format!("each step has {0} rows; they are taken for those of {0} ranks, in their order", ranks.count),
        }));
        let lags = self.positions.axis != Axis::Clock && self.tolerance > 0;
        notes.extend(
            lags.then(|| "steps that go back by a few rows are those of another rank, and no new process".into()),
        );
        let more = self.rows.facts().names.len() > COLUMNS_MAX;
        notes.extend(more.then(|| format!("only the first {COLUMNS_MAX} columns are judged")));
        let ended = self.series.iter().filter(|series| self.has_ended(series)).map(|one| one.group);
        let ended = ended.collect::<BTreeSet<usize>>().len();
        notes.extend(
            (ended > 0).then(|| format!("processes that had ended are judged in the sum of all alone ({ended})")),
        );
        let full = self.groups.full;
        notes.extend(full.then(|| format!("only rows of the first {GROUPS_MAX} GPUs, processes or hosts are judged")));
        let headless = "there is no header; columns are named by their cells or number";
        notes.extend(facts.is_headless.then(|| headless.to_owned()));
        notes.extend(facts.misfits.note());
        let all = self.series.len() == SERIES_MAX;
        notes.extend(all.then(|| format!("only the first {SERIES_MAX} series are judged")));
        notes
    }
}

/// Names and first rows of a table, from which the meaning of its columns follows.
struct Reading<'a> {
    names: &'a [String],
    head: &'a [Row],
    numbers: Numbers,
    clock: Option<usize>,
}

impl Reading<'_> {
    /// Finds the column of steps or times: the requested one, or by its name.
    fn position_column(&self, options: &TableOptions) -> Result<(Axis, Option<usize>), TableError> {
        let normalized: Vec<String> = self.names.iter().map(|name| plain(name)).collect();
        let columns = || 0..self.names.len();
        let position = |wanted: &str| {
            let is = |name: &String| name.trim_start_matches("trainer_").trim_start_matches("train_") == wanted;
            columns().find(|at| is(&normalized[*at]) && self.rises(*at))
        };
        let step = || STEP_COLUMNS.iter().find_map(|wanted| position(wanted));
        let of_epoch = || {
            let epoch = normalized.iter().any(|name| name == "epoch");
            STEPS_OF_EPOCH.iter().filter(|_| epoch).find_map(|wanted| normalized.iter().position(|name| name == wanted))
        };
        let is_ps = is_ps(self.names);
        let times = |date: bool| {
            let is_time = |at: usize| is_time(&self.names[at]) && !(is_ps && self.names[at].starts_with("TIME"));
            // `1h 6m 56s` is no time.
            let is_read = |at: usize| {
                let read = |row: &Row| TimeParser::of("").read(&self.numbers.with_decimal_point(row.get(at))).is_ok();
                self.head.iter().all(|row| is_missing(row.get(at))) || self.head.iter().any(read)
            };
            columns().find(|at| is_time(*at) && is_read(*at) && (normalized[*at] == "date") == date && self.rises(*at))
        };
        let requested = options.step_column.is_some();
        let at = match &options.step_column {
            Some(wanted) => {
                let same = |name: &String| name.eq_ignore_ascii_case(wanted.trim());
                let exact = self.names.iter().position(|name| name.trim() == wanted.trim());
                let at = exact.or_else(|| self.names.iter().position(same));
                let found = self.names.join(", ");
                Some(at.ok_or_else(|| TableError::Options(format!("there is no column `{wanted}` (found: {found})")))?)
            }
            None => {
                let clocks = || columns().find(|at| self.are_clocks(*at));
                let by_time = || self.clock.or_else(|| times(false)).or_else(|| times(true));
                step().or_else(of_epoch).or_else(by_time).or_else(|| position("epoch")).or_else(clocks)
            }
        };
        let Some(at) = at else { return Ok((Axis::Samples, None)) };
        let name = &self.names[at];
        if is_time(name) || (!requested && self.are_clocks(at)) {
            return Ok((Axis::Clock, Some(at)));
        }
        // For other names the first cell decides.
        let first = self.head.iter().map(|row| row.get(at)).find(|cell| !cell.is_empty()).unwrap_or_default();
        let epochs = words(name).iter().any(|word| word == "epoch" || word == "epochs");
        let axis = match self.numbers.plain_amount(first) {
            Some(number) if epochs && number < EPOCHS_MAX => Axis::Epochs,
            Some(_) if epochs => Axis::Clock,
            None if requested && TimeParser::of(name).read(first).is_ok() => Axis::Clock,
            Some(number) if requested && number.fract() != 0.0 => Axis::Clock,
            _ => Axis::Steps,
        };
        Ok((axis, Some(at)))
    }

    /// Returns whether a column of any name holds dates or times of day.
    fn are_clocks(&self, column: usize) -> bool {
        self.head.len() > 1 && self.head.iter().all(|row| is_clock(row.get(column))) && self.rises(column)
    }

    /// Parser of the times of a column.
    fn times(&self, column: usize) -> TimeParser {
        TimeParser::of(&self.names[column]).in_order(self.head.iter().map(|row| row.get(column)))
    }

    /// Returns whether the numbers of a column rise, as positions do: durations of steps, for example, go up and down.
    /// Rows that cannot be read do not decide.
    fn rises(&self, column: usize) -> bool {
        let mut times = self.times(column);
        let mut read = |row: &Row| -> Option<f64> {
            let cell = row.get(column);
            self.numbers.plain_amount(cell).or_else(|| times.read(cell).ok().map(|time| time as f64))
        };
        let found: Vec<f64> = self.head.iter().filter_map(&mut read).collect();
        // Rows far apart: interleaved ranks go back by a few, and the time of each step is as often shorter as it is longer.
        let apart = (found.len() / 8).max(1);
        let pairs = || found.iter().zip(found.iter().skip(apart));
        let up = pairs().filter(|(early, late)| late > early).count();
        let down = pairs().filter(|(early, late)| late < early).count();
        let is_constant = up == 0 && down == 0 && found.len() > 1;
        !(is_constant && self.head.len() > 4) && (3 * down <= 2 * up || found.len() < 8)
    }

    /// Counter of steps that begin again with each epoch, where there is a column of whole epochs.
    fn epochs(&self, axis: Axis) -> Option<EpochCounter> {
        let is_epoch = |name: &String| words(name).first().is_some_and(|word| word == "epoch");
        let column = self.names.iter().position(is_epoch).filter(|_| axis == Axis::Steps)?;
        Some(EpochCounter { column, epoch: f64::MIN, base: 0, last: 0 })
    }
}
