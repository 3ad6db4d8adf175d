//! Rows of any reader as samples: the column of steps or times, the columns that tell processes apart, and the sizes.

use std::collections::BTreeMap;

use super::column_names::{Role, role, unit, words};
use super::grid::COLUMNS_MAX;
use super::groups::{GROUPS_MAX, ROWS_FOR_ROUNDS, Ranks, Rounds, RowGroups};
use super::numbers::{Amount, Numbers, is_missing};
use super::rows::{FIRST_ROWS_BYTES_MAX, Row, Rows};
use super::text::quoted;
use super::times::{TimeParser, is_time};
use super::tools::{Tool, unit_of_name};
use super::{POSITIONS, SERIES_MAX, STEP_COLUMNS, Sample, SeriesInfo, TableOptions, Trace, TraceError, Value};
use crate::axis::Axis;
use crate::findings::UnitSource;
use crate::names::{OWNER_PREFIX, UNCAPPED};

/// Upper bound of epochs: a larger number in a column `epoch` is a time in seconds since 1970.
const EPOCHS_MAX: f64 = 1e8;
/// Upper bound of positions; `f64` is exact below it.
const POSITION_MAX: f64 = 9e12;
/// Columns of ps and top that are no times of the rows.
const NO_CLOCKS: &[&str] = &["TIME", "TIME+", "START", "STIME"];

/// Column of a table; its fields are those of [`SeriesInfo`].
#[derive(Clone, Debug)]
struct Column {
    name: String,
    unit: Option<(f64, UnitSource)>,
    role: Role,
    invalid: Option<String>,
    /// True if `kB` in its cells are KiB.
    kibi: bool,
}

impl Column {
    fn of(name: &str, tool: Option<Tool>) -> Self {
        let known = tool.and_then(|tool| tool.column(name));
        let named = unit(name).filter(|_| tool != Some(Tool::Psrecord)).map(|unit| (unit, UnitSource::Header));
        let by_tool = known.as_ref().and_then(|(unit, _)| *unit).or_else(|| unit_of_name(name));
        let role = known.map_or_else(|| role(name), |(_, role)| role);
        Self {
            name: name.to_owned(),
            unit: named.or(by_tool.map(|unit| (unit, UnitSource::Tool))),
            role: if by_tool.is_some() && !matches!(role, Role::Excluded(_)) { Role::Memory } else { role },
            invalid: None,
            kibi: tool.is_some_and(Tool::has_kibi),
        }
    }

    /// Name of its series, which must not look like that of an owner.
    fn series_name(&self) -> String {
        let is_reserved = [OWNER_PREFIX, UNCAPPED].iter().any(|prefix| self.name.starts_with(prefix));
        if is_reserved { self.name.replacen(':', " ", 1) } else { self.name.clone() }
    }
}

/// Column that holds the positions of the rows.
#[derive(Clone, Debug)]
enum PositionColumn {
    Steps(usize),
    Epochs(usize),
    Times(usize, TimeParser),
    /// Two columns, of the date and of the time of day.
    Dates(usize, usize, TimeParser),
    /// None: rows are counted, separately for each group.
    Rows(Vec<i64>),
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
    columns: Vec<Column>,
    tool: Option<Tool>,
    numbers: Numbers,
    position: PositionColumn,
    epochs: Option<EpochCounter>,
    groups: RowGroups,
    rounds: Option<Rounds>,
    ranks: Option<Ranks>,
    stride: i64,
    /// Newest position of a log, in which sizes may follow the line of their step.
    newest: Option<i64>,
    /// Index of the series of each column, for each group.
    series: Vec<BTreeMap<usize, usize>>,
    /// Column and group of each series.
    by_index: Vec<(usize, usize)>,
    format: &'static str,
}

impl Columns {
    /// Samples of `rows`; `first` reads the same rows, for what depends on the first of them.
    pub fn of(
        rows: Box<dyn Rows>,
        mut first: Box<dyn Rows>,
        format: &'static str,
        options: &TableOptions,
    ) -> Result<Self, TraceError> {
        let mut head: Vec<Row> = Vec::new();
        let (mut row, mut bytes) = (Row::default(), 0);
        while head.len() < ROWS_FOR_ROUNDS && bytes < FIRST_ROWS_BYTES_MAX && first.next_row(&mut row)? {
            bytes += row.bytes();
            head.push(row.clone());
        }
        let names: Vec<String> = first.names().iter().take(COLUMNS_MAX).cloned().collect();
        let clock = first.clock().filter(|at| *at < COLUMNS_MAX);
        let tool = Tool::of(&names);
        let numbers = Numbers::of(head.iter().flat_map(Row::texts), first.semicolons());
        let reading = Reading { names: &names, head: &head, numbers, tool, clock };
        let position = reading.position_column(options)?;
        let is_nvidia_smi = matches!(tool, Some(Tool::NvidiaSmi | Tool::Dmon));
        let mut table = Self {
            rows,
            row: Row::default(),
            columns: Vec::new(),
            tool,
            numbers,
            epochs: reading.epochs(&position),
            groups: RowGroups::of(&names, is_nvidia_smi, &head),
            position,
            rounds: None,
            ranks: None,
            stride: 0,
            newest: None,
            series: Vec::new(),
            by_index: Vec::new(),
            format,
        };
        table.add_columns(&names);
        table.recognize_groups(&head)?;
        Ok(table)
    }

    /// Adds columns whose names the reader has found.
    fn add_columns(&mut self, names: &[String]) {
        for (at, name) in names.iter().enumerate().take(COLUMNS_MAX).skip(self.columns.len()) {
            let mut column = Column::of(name, self.tool);
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

    /// Recognises GPUs or ranks without a column that names them, and the usual distance of two rows.
    fn recognize_groups(&mut self, head: &[Row]) -> Result<(), TraceError> {
        let mut probe = (self.position.clone(), self.epochs);
        let (mut positions, mut of_column) = (Vec::new(), BTreeMap::<usize, Vec<i64>>::new());
        let own = self.position_columns();
        for row in head {
            self.row.clone_from(row);
            let group = if self.groups.is_empty() { 0 } else { self.groups.index(row).unwrap_or_default() };
            let Some(position) = self.row_position(group).ok().flatten() else { continue };
            positions.push(position);
            let columns = (0..row.len()).filter_map(|at| row.cell(at)).map(|(column, _)| column);
            for column in columns.filter(|column| !own.contains(column)) {
                of_column.entry(column).or_default().push(position);
            }
        }
        std::mem::swap(&mut self.position, &mut probe.0);
        self.epochs = probe.1;
        let mut distances: Vec<i64> =
            positions.windows(2).map(|pair| pair[1] - pair[0]).filter(|distance| *distance > 0).collect();
        distances.sort_unstable();
        self.stride = distances.get(distances.len() / 2).copied().unwrap_or_default();
        if self.groups.is_empty() {
            let is_nvidia_smi = self.tool == Some(Tool::NvidiaSmi);
            match &self.position {
                PositionColumn::Times(..) | PositionColumn::Dates(..) if is_nvidia_smi => {
                    self.rounds = Rounds::find(&positions);
                }
                PositionColumn::Steps(_) | PositionColumn::Epochs(_) => {
                    // Ranks write the same numbers; other lines of a step have others.
                    let commonest = of_column.values().max_by_key(|positions| positions.len());
                    self.ranks = commonest.and_then(|positions| Ranks::find(positions));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn position_note(&self) -> String {
        let (at, what) = match &self.position {
            PositionColumn::Steps(at) => (*at, "steps"),
            PositionColumn::Epochs(at) => (*at, "epochs"),
            PositionColumn::Times(at, _) if Some(*at) == self.rows.clock() => {
                return "times from the lines between".into();
            }
            PositionColumn::Times(at, _) | PositionColumn::Dates(at, ..) => (*at, "times"),
            PositionColumn::Rows(_) => {
                return "rows are counted, because no column is named like steps or times; name one with \
                        `--step-column NAME`"
                    .into();
            }
        };
        format!("{what} from `{}`", self.columns[at].name)
    }

    /// Position of the newest row, which belongs to `group`; `None` where its cell is empty.
    fn row_position(&mut self, group: usize) -> Result<Option<i64>, TraceError> {
        let line = self.row.line;
        let (at, column) = match &mut self.position {
            PositionColumn::Rows(counts) => {
                if counts.len() <= group {
                    counts.resize(group + 1, 0);
                }
                counts[group] += 1;
                return Ok(Some(counts[group] - 1));
            }
            PositionColumn::Steps(at)
            | PositionColumn::Epochs(at)
            | PositionColumn::Times(at, _)
            | PositionColumn::Dates(at, ..) => (*at, self.columns.get(*at).map_or("", |column| column.name.as_str())),
        };
        let cell = self.row.get(at);
        if is_missing(cell) {
            return Ok(None);
        }
        let error = |problem: &str| TraceError::at(line, format!("column `{column}`: {} {problem}", quoted(cell)));
        let number = match self.numbers.amount(cell, false) {
            Ok(Amount::Number(number)) => Some(number),
            _ => None,
        };
        let number = number.filter(|number| (0.0..POSITION_MAX).contains(number));
        match &mut self.position {
            PositionColumn::Times(_, times) => {
                times.read(&self.numbers.with_decimal_point(cell)).map(Some).map_err(|problem| error(&problem))
            }
            PositionColumn::Dates(date, time, times) => {
                let both = format!("{} {}", iso_date(self.row.get(*date)), self.row.get(*time));
                times.read(&both).map(Some).map_err(|problem| error(&problem))
            }
            PositionColumn::Epochs(_) => {
                let number = number.ok_or_else(|| error("is no number of epochs"))?;
                Ok(Some((number * 1e3).round() as i64))
            }
            _ => {
                let whole = number.filter(|step| step.fract() == 0.0).map(|step| step as i64);
                let step = whole.ok_or_else(|| error("is no whole number"))?;
                let Some(counter) = &mut self.epochs else { return Ok(Some(step)) };
                let epoch = match self.numbers.amount(self.row.get(counter.column), false) {
                    Ok(Amount::Number(epoch)) => epoch,
                    _ => counter.epoch,
                };
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

    /// Index of the series of a column and a group; [`SERIES_MAX`] beyond the cap.
    fn series_index(&mut self, column: usize, group: usize) -> usize {
        if self.series.len() <= group {
            self.series.resize(group + 1, BTreeMap::new());
        }
        let next = self.by_index.len();
        if next == SERIES_MAX {
            return self.series[group].get(&column).copied().unwrap_or(SERIES_MAX);
        }
        let index = *self.series[group].entry(column).or_insert(next);
        if index == next {
            self.by_index.push((column, group));
        }
        index
    }

    fn position_columns(&self) -> Vec<usize> {
        match &self.position {
            PositionColumn::Steps(at) | PositionColumn::Epochs(at) | PositionColumn::Times(at, _) => vec![*at],
            PositionColumn::Dates(date, time, _) => vec![*date, *time],
            PositionColumn::Rows(_) => Vec::new(),
        }
    }
}

/// Date of eight digits, `20250224`, with its parts separated.
fn iso_date(cell: &str) -> String {
    match cell.len() == 8 && cell.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("{}-{}-{}", &cell[..4], &cell[4..6], &cell[6..]),
        false => cell.to_owned(),
    }
}

/// Names and first rows of a table, from which the meaning of its columns follows.
struct Reading<'a> {
    names: &'a [String],
    head: &'a [Row],
    numbers: Numbers,
    tool: Option<Tool>,
    clock: Option<usize>,
}

impl Reading<'_> {
    /// Finds the column of steps or times: the requested one, or by its name.
    fn position_column(&self, options: &TableOptions) -> Result<PositionColumn, TraceError> {
        let normalized: Vec<String> = self.names.iter().map(|name| words(name).join("_")).collect();
        let position = |wanted: &str| {
            let is = |name: &String| name.trim_start_matches("trainer_").trim_start_matches("train_") == wanted;
            (0..self.names.len()).find(|at| is(&normalized[*at]) && self.rises(*at))
        };
        let is_clock =
            |name: &String| is_time(name) && !(self.tool == Some(Tool::Ps) && NO_CLOCKS.contains(&name.as_str()));
        let times = |date: bool| {
            let named = |at: &usize| is_clock(&self.names[*at]) && (normalized[*at] == "date") == date;
            (0..self.names.len()).find(|at| named(at) && self.rises(*at))
        };
        let requested = options.step_column.is_some();
        let at = match &options.step_column {
            Some(wanted) => {
                let same = |name: &String| name.trim() == wanted.trim();
                let loose = |name: &String| name.eq_ignore_ascii_case(wanted.trim());
                let at = self.names.iter().position(same).or_else(|| self.names.iter().position(loose));
                let found = self.names.join(", ");
                Some(at.ok_or_else(|| TraceError::Options(format!("there is no column `{wanted}` (found: {found})")))?)
            }
            None => {
                let date = normalized.iter().position(|name| name == "date");
                let of_day = normalized.iter().position(|name| name == "time");
                let both = date.zip(of_day).filter(|(date, time)| self.are_dates(*date, *time));
                if let Some((date, time)) = both.filter(|_| !STEP_COLUMNS.iter().any(|name| position(name).is_some())) {
                    return Ok(PositionColumn::Dates(date, time, TimeParser::of("")));
                }
                STEP_COLUMNS
                    .iter()
                    .find_map(|wanted| position(wanted))
                    .or(self.clock)
                    .or_else(|| times(false))
                    .or_else(|| times(true))
                    .or_else(|| position("epoch"))
                    .or_else(|| (0..self.names.len()).find(|at| self.are_clocks(*at)))
            }
        };
        let Some(at) = at else { return Ok(PositionColumn::Rows(Vec::new())) };
        let name = &self.names[at];
        if is_time(name) || (!requested && self.are_clocks(at)) {
            return Ok(PositionColumn::Times(at, TimeParser::of(name)));
        }
        // For other names the first cell decides.
        let first = self.head.iter().map(|row| row.get(at)).find(|cell| !cell.is_empty()).unwrap_or_default();
        let number = match self.numbers.amount(first, false) {
            Ok(Amount::Number(number)) => Some(number),
            _ => None,
        };
        let epochs = words(name).iter().any(|word| word == "epoch" || word == "epochs");
        Ok(match number {
            Some(number) if epochs && number < EPOCHS_MAX => PositionColumn::Epochs(at),
            Some(_) if epochs => PositionColumn::Times(at, TimeParser::of(name)),
            None if requested && TimeParser::of(name).read(first).is_ok() => {
                PositionColumn::Times(at, TimeParser::of(name))
            }
            Some(number) if requested && number.fract() != 0.0 => PositionColumn::Times(at, TimeParser::of(name)),
            _ => PositionColumn::Steps(at),
        })
    }

    /// Returns whether two columns are a date and a time of day.
    fn are_dates(&self, date: usize, time: usize) -> bool {
        let both = |row: &Row| format!("{} {}", iso_date(row.get(date)), row.get(time));
        !self.head.is_empty() && self.head.iter().all(|row| TimeParser::of("").is_date(&both(row)))
    }

    /// Returns whether a column of any name holds dates or times of day.
    fn are_clocks(&self, column: usize) -> bool {
        let is_clock = |row: &Row| TimeParser::of("").is_clock(row.get(column));
        self.head.len() > 1 && self.head.iter().all(is_clock) && self.rises(column)
    }

    /// Returns whether the numbers of a column rise, as positions do: durations of steps, for example, go up and down.
    /// Rows that cannot be read do not decide.
    fn rises(&self, column: usize) -> bool {
        let mut times = TimeParser::of(&self.names[column]);
        let mut read = |row: &Row| -> Option<f64> {
            let cell = row.get(column);
            match self.numbers.amount(cell, false) {
                Ok(Amount::Number(number)) => Some(number),
                _ => times.read(cell).ok().map(|time| time as f64),
            }
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
    fn epochs(&self, position: &PositionColumn) -> Option<EpochCounter> {
        let PositionColumn::Steps(_) = position else { return None };
        let is_epoch = |name: &String| words(name).first().is_some_and(|word| word == "epoch");
        let column = self.names.iter().position(is_epoch)?;
        Some(EpochCounter { column, epoch: f64::MIN, base: 0, last: 0 })
    }
}

impl Trace for Columns {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TraceError> {
        loop {
            if !self.rows.next_row(&mut self.row)? {
                return Ok(false);
            }
            if self.rows.names().len().min(COLUMNS_MAX) > self.columns.len() {
                let names = self.rows.names().to_vec();
                self.add_columns(&names);
            }
            let group = match self.groups.is_empty() {
                true => 0,
                false => match self.groups.index(&self.row) {
                    Some(group) => group,
                    None => continue,
                },
            };
            let own_position = self.row_position(group)?;
            let is_log = self.rows.is_log();
            let Some(position) = own_position.or_else(|| self.newest.filter(|_| is_log)) else { continue };
            self.newest = Some(position);
            let group = match (&mut self.rounds, &mut self.ranks) {
                (Some(rounds), _) => rounds.index(position),
                (_, Some(ranks)) if own_position.is_some() => ranks.index(position),
                _ => group,
            };
            sample.values.clear();
            (sample.line, sample.position, sample.restart, sample.group) = (self.row.line, position, false, group);
            for index in 0..self.row.len() {
                let Some((at, cell)) = self.row.cell(index) else { break };
                let Some(column) = self.columns.get(at) else { continue };
                if column.invalid.is_some() || self.groups.has(at) {
                    continue;
                }
                let (number, unit, percent) = match self.numbers.amount(cell, column.kibi) {
                    Ok(Amount::Missing) => continue,
                    Ok(Amount::Number(number)) => (number, None, false),
                    Ok(Amount::Bytes(_)) if cell.ends_with('m') && column.role != Role::Memory => {
                        let message = format!("line {}: {} has a unit that is no size", self.row.line, quoted(cell));
                        self.columns[at].invalid = Some(message);
                        continue;
                    }
                    Ok(Amount::Bytes(bytes)) => (bytes, Some(1.0), false),
                    Ok(Amount::Percent(percent)) => (percent, None, true),
                    Err(problem) => {
                        let message = format!("line {}: {} {problem}", self.row.line, quoted(cell));
                        self.columns[at].invalid = Some(message);
                        continue;
                    }
                };
                let series = self.series_index(at, group);
                sample.values.push(Value { series, number, unit, percent });
            }
            return Ok(true);
        }
    }

    fn series(&mut self) -> Vec<SeriesInfo> {
        // A column without a number has no series yet, but belongs to those that are not judged.
        for at in 0..self.columns.len() {
            if !self.by_index.iter().any(|(column, _)| *column == at) {
                self.series_index(at, 0);
            }
        }
        let positions = self.position_columns();
        let series = self.by_index.iter().map(|(at, group)| {
            let column = &self.columns[*at];
            let round = self.rounds.map(|rounds| format!("GPU {} of {}", group + 1, rounds.size));
            let rank = self.ranks.as_ref().map(|_| format!("rank {group}"));
            let label = round.or(rank).or_else(|| self.groups.label(*group)).filter(|_| !self.groups.has(*at));
            SeriesInfo {
                name: label.map_or_else(|| column.series_name(), |label| format!("{}, {label}", column.series_name())),
                column: column.name.clone(),
                unit: column.unit,
                role: column.role.clone(),
                invalid: if positions.contains(at) { Some(POSITIONS.into()) } else { column.invalid.clone() },
                optional: false,
            }
        });
        series.collect()
    }

    fn axis(&self) -> Axis {
        match &self.position {
            PositionColumn::Steps(_) => Axis::Steps,
            PositionColumn::Epochs(_) => Axis::Epochs,
            PositionColumn::Times(..) | PositionColumn::Dates(..) => Axis::Clock,
            PositionColumn::Rows(_) => Axis::Samples,
        }
    }

    fn stride(&self) -> i64 {
        self.stride
    }

    fn is_log(&self) -> bool {
        self.rows.is_log()
    }

    fn notes(&self) -> Vec<String> {
        let tool =
            self.tool.map_or_else(|| self.format.to_owned(), |tool| format!("{} of {}", self.format, tool.name()));
        let mut notes = vec![format!("{tool}; {}", self.position_note())];
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
        if let Some(ranks) = &self.ranks {
            let count = ranks.count;
            notes
                .push(format!("each step has {count} rows; they are taken for those of {count} ranks, in their order"));
        }
        if self.rows.names().len() > COLUMNS_MAX {
            notes.push(format!("only the first {COLUMNS_MAX} columns are judged"));
        }
        if self.groups.full {
            notes.push(format!("only rows of the first {GROUPS_MAX} GPUs, processes or hosts are judged"));
        }
        notes.extend(self.rows.notes());
        notes
    }
}
