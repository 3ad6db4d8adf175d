//! Tables with a header: separated by commas, semicolons, tabs, bars or spaces, with text before, between and after.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Take};
use std::path::Path;
use std::rc::Rc;

use csv::ByteRecord;

use super::TraceError;
use super::column_names::{Role, role, unit};
use super::numbers::{Amount, Numbers, cell_unit, is_missing};
use super::rows::{FIRST_ROWS_BYTES_MAX, Row, Rows};
use super::text::{FileHead, LINE_BYTES_MAX, Lines, open, quoted, without_title};
use super::times::{TimeParser, is_time};
use super::tools::Tool;

/// Cap on the columns of a table; further ones are ignored.
pub const COLUMNS_MAX: usize = 256;
/// Number of lines in which a header is searched.
const HEADER_LINES_MAX: usize = 60;
/// Number of rows from which the form of the rows is determined.
const FORM_ROWS: usize = 200;
/// One of this many rows may fail to fit the header.
const MISFITS: u64 = 20;

/// Separation of the cells of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// Character between cells, which may be quoted.
    Character(u8),
    /// Bars, as in Markdown.
    Bars,
    /// Spaces.
    Words,
    /// At least two spaces, where names have spaces in them.
    Gaps,
}

impl Split {
    /// Cells of a line.
    fn cells(self, line: &str) -> Vec<String> {
        let mut row = Row::default();
        self.split(line, &mut row);
        row.texts().map(str::to_owned).collect()
    }

    fn split(self, line: &str, row: &mut Row) {
        match self {
            Self::Character(byte) => {
                let mut reader = csv_builder(byte).from_reader(line.as_bytes());
                let mut record = ByteRecord::new();
                if reader.read_byte_record(&mut record).unwrap_or(false) {
                    push_record(&record, row);
                }
            }
            Self::Bars => {
                let inner = line.strip_prefix('|').unwrap_or(line);
                let inner = inner.strip_suffix('|').unwrap_or(inner);
                for (at, cell) in inner.split('|').enumerate() {
                    row.push(at, cell.trim());
                }
            }
            Self::Words => {
                let mut words = line.split_whitespace().peekable();
                let mut at = 0;
                while let Some(word) = words.next() {
                    match words.peek() {
                        // `10:11:12 AM` is one cell.
                        Some(half) if matches!(*half, "AM" | "PM") && word.contains(':') => {
                            row.push(at, &format!("{word} {half}"));
                            words.next();
                        }
                        _ => row.push(at, word),
                    }
                    at += 1;
                }
            }
            Self::Gaps => {
                let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
                for (at, cell) in cells.enumerate() {
                    row.push(at, cell);
                }
            }
        }
    }
}

fn csv_builder(delimiter: u8) -> csv::ReaderBuilder {
    let mut builder = csv::ReaderBuilder::new();
    builder.has_headers(false).flexible(true).delimiter(delimiter);
    builder
}

fn push_record(record: &ByteRecord, row: &mut Row) {
    for (at, cell) in record.iter().enumerate() {
        match std::str::from_utf8(cell) {
            Ok(cell) => row.push(at, cell.trim()),
            Err(_) => row.push(at, String::from_utf8_lossy(cell).trim()),
        }
    }
}

/// Header of a table.
#[derive(Clone, Debug, PartialEq)]
struct Header {
    split: Split,
    /// Lines before it.
    skipped: u64,
    names: Vec<String>,
}

/// Returns whether a cell is a value: an amount, a missing value or a time.
fn is_value(cell: &str) -> bool {
    is_number(cell) || TimeParser::of("").read(cell).is_ok()
}

/// Returns whether a cell is an amount.
fn is_number(cell: &str) -> bool {
    matches!(Numbers::default().amount(cell, false), Ok(Amount::Number(_) | Amount::Bytes(_) | Amount::Percent(_)))
        || matches!(Numbers::of([cell].into_iter(), true).amount(cell, false), Ok(Amount::Number(_)))
        || cell.parse::<f64>().is_ok()
}

/// Returns whether a line consists of rules: `-----  ----`, `|---|:--:|`, `+====+`.
fn is_rule(line: &str) -> bool {
    line.contains(['-', '=', '─', '━']) && line.chars().all(|letter| "-=+|: ─━┼│├┤┌┐└┘┬┴".contains(letter))
}

/// Time of a line that is nothing else: as printed by `date`, or the first line of `top`.
fn clock(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("top - ") {
        return rest.split(' ').next();
    }
    let line = without_title(line);
    let is_seconds = line.len() == 10 && line.bytes().all(|byte| byte.is_ascii_digit());
    (is_seconds || (line.contains(':') && TimeParser::of("").read(line).is_ok())).then_some(line)
}

/// Line without escape sequences of a terminal, trimmed; `#` at its beginning is no part of a header.
fn header_text(line: &str) -> &str {
    line.trim().trim_start_matches('#').trim_start()
}

/// Finds the header of a table: a line of names, followed by values. A line after which as many cells are mostly values is
/// preferred to one with other text below it.
fn find_header(head: &FileHead) -> Option<Header> {
    find_header_with(head, true).or_else(|| find_header_with(head, false))
}

fn find_header_with(head: &FileHead, is_strict: bool) -> Option<Header> {
    let lines: Vec<&str> = head.text.lines().map(str::trim).collect();
    // Excel reads `sep=;`.
    let is_text = |line: &&str| !line.is_empty() && !is_rule(line) && !line.starts_with("sep=");
    for (skipped, line) in lines.iter().enumerate().take(HEADER_LINES_MAX).filter(|(_, line)| is_text(line)) {
        let text = header_text(line);
        let following = || lines[skipped + 1..].iter().copied().filter(|next| is_text(next) && next != line);
        for (split, between_values) in splits(text) {
            let mut names = split.cells(text);
            if matches!(split, Split::Words) && names.len() > 1 && TimeParser::of("").read(&names[0]).is_ok() {
                names[0] = "time".into();
            }
            let named = |name: &String| name.chars().any(char::is_alphabetic);
            // `2048.0 total, 0.0 used` are no names.
            let has_number = |name: &String| {
                let mut words = name.split_whitespace();
                let mut values = name.split([':', '=']).skip(1).map(str::trim_start);
                words.next().is_some_and(is_value)
                    || words.any(|word| word.contains('.') && is_number(word))
                    || values.any(|value| value.starts_with(|letter: char| letter.is_ascii_digit()))
            };
            // A row of units below the header.
            let is_unit = |name: &String| ["%", "KB", "MB", "GB", "KiB", "MiB", "GiB"].contains(&name.as_str());
            if !names.iter().any(named)
                || names.iter().any(is_unit)
                || names.iter().any(|name| is_value(name) || has_number(name))
            {
                continue;
            }
            let rows = following().take(12).map(|next| between_values.cells(next));
            let fits = match split {
                Split::Character(_) | Split::Bars => {
                    let values =
                        |cells: &Vec<String>| cells.iter().filter(|cell| is_value(cell) || is_missing(cell)).count();
                    let fits = |cells: &Vec<String>| {
                        cells.len() == names.len()
                            && 2 * values(cells) >= cells.len()
                            && cells.iter().any(|cell| is_value(cell))
                    };
                    let mut rows = rows.take(3).peekable();
                    if is_strict && !rows.peek().is_some_and(fits) {
                        continue;
                    }
                    (rows.peek().is_none() && skipped == 0)
                        || rows.any(|cells| {
                            cells.len() + 1 >= names.len().min(3) && cells.iter().any(|cell| is_value(cell))
                        })
                }
                Split::Words | Split::Gaps => {
                    let is_row = |cells: &Vec<String>| {
                        let values = cells.iter().filter(|cell| is_value(cell) || is_missing(cell)).count();
                        values > 0 && 3 * values >= cells.len()
                    };
                    let of_size = |cells: &Vec<String>| cells.len() == names.len() && is_row(cells);
                    // A command at the end, a date of two words, or an index before the first column.
                    let of_more = |cells: &Vec<String>| {
                        split == Split::Words
                            && (1..=12).contains(&cells.len().saturating_sub(names.len()))
                            && is_row(cells)
                    };
                    let is_known = Tool::of(&names).is_some()
                        || names.iter().any(|name| is_time(name) || unit(name).is_some() || is_position(name))
                        || names.iter().any(|name| matches!(role(name), Role::Memory | Role::Percent));
                    let rows: Vec<Vec<String>> = rows.filter(is_row).collect();
                    is_known && (rows.iter().any(of_size) || (rows.first().is_some_and(of_more)))
                }
            };
            if fits {
                return Some(Header { split: between_values, skipped: skipped as u64, names });
            }
        }
    }
    None
}

fn is_position(name: &str) -> bool {
    let name = super::column_names::words(name).join("_");
    super::STEP_COLUMNS.contains(&name.as_str()) || name == "epoch"
}

/// Possible separations of the names of a header and of the values below it, the likeliest first.
fn splits(line: &str) -> Vec<(Split, Split)> {
    let count = |delimiter: char| line.matches(delimiter).count();
    if line.starts_with('|') || line.contains(" | ") {
        return vec![(Split::Bars, Split::Bars)];
    }
    let delimiter = ['\t', ';', ','].into_iter().max_by_key(|delimiter| count(*delimiter)).unwrap_or(',');
    if count(delimiter) == 0 && count('|') > 0 {
        return vec![(Split::Bars, Split::Bars)];
    }
    if count(delimiter) > 0 {
        return vec![(Split::Character(delimiter as u8), Split::Character(delimiter as u8))];
    }
    let has_brackets = line.split_whitespace().any(|word| word.starts_with(['[', '(']));
    let gaps = [(Split::Gaps, Split::Gaps), (Split::Gaps, Split::Words)];
    match (line.contains("  "), has_brackets) {
        (true, true) => gaps.to_vec(),
        // `memory.used [MiB]` is one name.
        (false, true) => vec![(Split::Character(b','), Split::Character(b','))],
        (true, false) => [&[(Split::Words, Split::Words)], &gaps[..]].concat(),
        (false, false) => vec![(Split::Words, Split::Words)],
    }
}

/// Returns whether a file has a table with a header.
pub fn recognizes(head: &FileHead) -> bool {
    find_header(head).is_some()
}

/// Reader of a table with a header, or of separated values without one.
pub struct Grid {
    source: Source,
    names: Vec<String>,
    /// Names as the header has them.
    header: Vec<String>,
    split: Split,
    form: Form,
    /// Column of the times between the rows, and the newest of them.
    clock: Option<usize>,
    clock_text: String,
    raw: Row,
    rows: u64,
    /// Number of rows that do not fit, with the line and the problem of the first.
    misfits: u64,
    first_misfit: Option<(u64, String)>,
    /// True if the first column of the header is the time of the block.
    time_in_header: bool,
    /// True if there is no header.
    headless: bool,
    /// Line of the units of the columns.
    units: Option<u64>,
}

/// Form of the rows of a table, from the first of them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Form {
    /// Columns that hold numbers.
    numeric: Vec<bool>,
    /// True if the last column is text and may have separators in it.
    text_at_end: bool,
    /// True if a comma separates a time from its milliseconds.
    milliseconds: bool,
    /// True if an index without a name comes before the first column.
    index_first: bool,
}

/// Lines or delimited rows of a file.
enum Source {
    Separated { reader: Box<csv::Reader<CappedFile>>, left: Rc<Cell<u64>>, record: ByteRecord, skipped: u64, line: u64 },
    Lines(Lines),
}

/// Reader of a file that fails where a row has more bytes than its cap.
struct CappedFile {
    file: BufReader<Take<File>>,
    left: Rc<Cell<u64>>,
}

impl Read for CappedFile {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let Some(left) = self.left.get().checked_sub(into.len() as u64) else {
            let message = "the row is longer than 256 KiB; check for an unclosed quotation mark";
            return Err(std::io::Error::new(ErrorKind::InvalidData, message));
        };
        self.left.set(left);
        self.file.read(into)
    }
}

impl Source {
    /// Opens a file after its first lines.
    fn open(path: &Path, head: &FileHead, split: Split, skipped: u64) -> Result<Self, TraceError> {
        let Split::Character(delimiter) = split else {
            let mut lines = Lines::open(path, head)?;
            lines.skip(skipped)?;
            return Ok(Self::Lines(lines));
        };
        let mut file = BufReader::new(open(path)?.take(head.length));
        let mut line = Vec::new();
        for _ in 0..skipped {
            line.clear();
            Read::by_ref(&mut file).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        }
        let left = Rc::new(Cell::new(LINE_BYTES_MAX));
        let capped = CappedFile { file, left: left.clone() };
        let reader = Box::new(csv_builder(delimiter).from_reader(capped));
        Ok(Self::Separated { reader, left, record: ByteRecord::new(), skipped, line: skipped })
    }

    /// Reads the cells of the next row or line; a line is returned as it is, for its text decides what it is.
    fn next(&mut self, split: Split, row: &mut Row, mut line_is: impl FnMut(&str) -> bool) -> Result<bool, TraceError> {
        row.clear();
        match self {
            Self::Separated { reader, left, record, skipped, line } => {
                left.set(LINE_BYTES_MAX);
                match reader.read_byte_record(record) {
                    Ok(false) => return Ok(false),
                    Ok(true) => push_record(record, row),
                    Err(error) => return Err(TraceError::at(*line + 1, message(error))),
                }
                row.line = *skipped + record.position().map_or(0, csv::Position::line);
                *line = row.line;
            }
            Self::Lines(lines) => loop {
                let Some(line) = lines.next_line()? else { return Ok(false) };
                if is_rule(line) || line_is(line) {
                    continue;
                }
                split.split(header_or_row(line), row);
                row.line = lines.number;
                break;
            },
        }
        Ok(true)
    }
}

/// Line without the `#` of a header.
fn header_or_row(line: &str) -> &str {
    if line.starts_with('#') { header_text(line) } else { line }
}

fn message(error: csv::Error) -> String {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.to_string(),
        other => format!("{other:?}"),
    }
}

impl Grid {
    /// Opens a table with a header.
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        let header = find_header(head).ok_or_else(|| TraceError::content("expected a header with names of columns"))?;
        let Header { split, skipped, names } = header;
        let time_in_header = split == Split::Words
            && head.text.lines().nth(skipped as usize).is_some_and(|line| {
                let first = split.cells(header_text(line)).into_iter().next();
                first.is_some_and(|first| TimeParser::of("").read(&first).is_ok())
            });
        let mut grid = Self {
            header: names.clone(),
            time_in_header,
            headless: false,
            ..Self::new(Source::open(path, head, split, skipped)?, split, names)
        };
        grid.form = grid.form(Source::open(path, head, split, skipped)?)?;
        if Tool::of(&grid.names).is_none() {
            grid.read_units(Source::open(path, head, split, skipped)?)?;
        }
        if grid.form.index_first {
            grid.names.insert(0, String::new());
        }
        let has_clocks = || head.text.lines().any(|line| clock(line.trim()).is_some());
        if matches!(split, Split::Words | Split::Gaps) && !grid.names.iter().any(|name| name == "time") && has_clocks()
        {
            grid.clock = Some(grid.names.len());
            grid.names.push("time".into());
            // Those before the header belong to its first rows.
            let before = head.text.lines().take(skipped as usize).filter_map(|line| clock(line.trim())).last();
            grid.clock_text = before.unwrap_or_default().to_owned();
        }
        Ok(grid)
    }

    /// Opens a table without a header whose columns are known by their cells: sizes with units, values after a time, or
    /// lines of `ps aux`; `None` for other text.
    pub fn open_headless(path: &Path, head: &FileHead) -> Option<Result<Self, TraceError>> {
        let first = head.lines().next()?;
        let (split, _) = *splits(first).first()?;
        let cells = split.cells(first);
        let words = Split::Words.cells(first);
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let (split, names) = match () {
            () if is_ps_aux(&words) => (Split::Words, owned(PS_AUX)),
            () if is_top(&words) => (Split::Words, owned(TOP)),
            () => (split, names_by_number(split, &cells)?),
        };
        let cells = split.cells(first);
        let numeric = cells.iter().take(names.len()).map(|cell| split == Split::Words && is_number(cell));
        let form = Form { numeric: numeric.collect(), text_at_end: true, ..Form::default() };
        let source = Source::open(path, head, split, 0);
        Some(source.map(|source| Self { form, ..Self::new(source, split, names) }))
    }

    /// Table without a header of which nothing is read.
    fn new(source: Source, split: Split, names: Vec<String>) -> Self {
        Self {
            source,
            names,
            header: Vec::new(),
            split,
            form: Form::default(),
            clock: None,
            clock_text: String::new(),
            raw: Row::default(),
            rows: 0,
            misfits: 0,
            first_misfit: None,
            time_in_header: false,
            headless: true,
            units: None,
        }
    }

    /// Form of the rows, from the first of them.
    fn form(&self, mut source: Source) -> Result<Form, TraceError> {
        let names = self.names.len();
        let (mut row, mut rows, mut bytes) = (Row::default(), Vec::new(), 0);
        while rows.len() < FORM_ROWS
            && bytes < FIRST_ROWS_BYTES_MAX
            && source.next(self.split, &mut row, |line| clock(line).is_some())?
        {
            bytes += row.bytes();
            if !self.is_header(&row) && row.len() >= names.min(2) && row.texts().any(is_value) {
                rows.push(row.texts().map(str::to_owned).collect::<Vec<String>>());
            }
        }
        let whole: Vec<&Vec<String>> = rows.iter().filter(|row| row.len() == names).collect();
        let longer: Vec<&Vec<String>> = rows.iter().filter(|row| row.len() > names).collect();
        let first = rows.iter().find(|row| row.len() >= names);
        let last_is_text =
            |row: &Vec<String>| row.get(names - 1).is_some_and(|cell| !is_value(cell) && !is_missing(cell));
        let counts_rows = |(at, row): (usize, &&Vec<String>)| {
            let start = longer[0][0].parse::<u64>();
            start.is_ok_and(|start| start < 2 && row[0].parse() == Ok(start + at as u64))
        };
        let index_first = self.split == Split::Words
            && whole.is_empty()
            && longer.len() > 1
            && longer.iter().all(|row| row.len() == names + 1)
            && (longer.iter().enumerate().all(counts_rows) || longer.iter().all(|row| row[0].starts_with('"')));
        let after_time = |row: &Vec<String>| {
            let at = row.iter().position(|cell| cell.contains(':') && TimeParser::of("").read(cell).is_ok())?;
            row.get(at + 1).cloned()
        };
        let after: Vec<String> = longer.iter().filter_map(|row| after_time(row)).collect();
        let is_fraction = |cell: &String| cell.len() == 3 && cell.bytes().all(|byte| byte.is_ascii_digit());
        Ok(Form {
            numeric: first.map(|row| row.iter().take(names).map(|cell| is_number(cell)).collect()).unwrap_or_default(),
            text_at_end: names > 1 && rows.iter().filter(|row| row.len() >= names).all(last_is_text) && first.is_some(),
            milliseconds: !after.is_empty()
                && after.iter().all(is_fraction)
                && after.iter().any(|cell| cell.starts_with('0')),
            index_first,
        })
    }

    /// Reads the units of the columns where a row of them follows the header.
    fn read_units(&mut self, mut source: Source) -> Result<(), TraceError> {
        let mut row = Row::default();
        if !source.next(self.split, &mut row, |_| false)? || !source.next(self.split, &mut row, |_| false)? {
            return Ok(());
        }
        let is_unit = |cell: &str| cell == "%" || cell_unit(cell.trim_matches(['[', ']', '(', ')']), false).is_some();
        if row.len() == self.names.len() && row.texts().any(is_unit) && !row.texts().any(is_value) {
            for (name, unit) in self.names.iter_mut().zip(row.texts()).filter(|(_, unit)| is_unit(unit)) {
                *name = format!("{name} [{}]", unit.trim_matches(['[', ']', '(', ')']));
            }
            self.units = Some(row.line);
        }
        Ok(())
    }

    /// Returns whether a row repeats the header, as a restarted tool writes it.
    fn is_header(&self, row: &Row) -> bool {
        let first = usize::from(self.time_in_header);
        let names = self.header.len().min(row.len());
        row.len() > first
            && names > first
            && (first..names).all(|at| row.cell(at).is_some_and(|(_, cell)| header_text(cell) == self.header[at]))
    }

    /// Cells of a row that has more of them than the header has names; `None` where it is not clear which belong
    /// together.
    fn repaired(&self, row: &Row) -> Option<Vec<String>> {
        let names = self.names.len() - usize::from(self.clock.is_some());
        let mut cells: Vec<String> = row.texts().map(str::to_owned).collect();
        while cells.len() > names && cells.last().is_some_and(String::is_empty) {
            cells.pop();
        }
        if cells.len() > names {
            let comma = self.split == Split::Character(b',');
            let is_digits = |cell: &String| !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
            let joined = |at: usize, between: char| format!("{}{between}{}", cells[at], cells[at + 1]);
            // A date and its time of day, or a time and its milliseconds.
            let of_date = |at: usize| self.split == Split::Words && TimeParser::of("").is_date(&joined(at, ' '));
            let of_time = |at: usize| {
                comma && self.form.milliseconds && is_digits(&cells[at + 1]) && TimeParser::of("").is_clock(&cells[at])
            };
            let pairs = 0..cells.len() - 1;
            let date = pairs.clone().find(|at| of_date(*at)).map(|at| (at, ' '));
            if let Some((at, between)) = date.or_else(|| pairs.clone().find(|at| of_time(*at)).map(|at| (at, '.'))) {
                cells[at] = joined(at, between);
                cells.remove(at + 1);
            }
        }
        if cells.len() > names && self.split == Split::Character(b',') {
            cells = with_decimal_commas(&cells, names).unwrap_or(cells);
        }
        if cells.len() > names && self.form.text_at_end {
            let tail = cells.split_off(names - 1).join(" ");
            cells.push(tail);
        }
        (cells.len() <= names).then_some(cells)
    }

    /// Returns whether the cells of a line are in columns of their kind: other text has as many words by chance.
    fn fits(&self, row: &Row) -> bool {
        let numeric = |at: usize| self.form.numeric.get(at).copied().unwrap_or(false);
        let is_other = |at: &usize| {
            let cell = row.cell(*at).map_or("", |(_, cell)| cell);
            let digits = cell.starts_with(|letter: char| letter.is_ascii_digit() || "-+.".contains(letter));
            numeric(*at) && !digits && !is_missing(cell)
        };
        // top has `rt` among its priorities.
        (0..row.len()).filter(is_other).count() <= row.len() / 5
    }

    fn add_misfit(&mut self) {
        self.misfits += 1;
        let (found, names) = (self.raw.len(), self.names.len() - usize::from(self.clock.is_some()));
        let text: Vec<&str> = self.raw.texts().collect();
        let hint = match self.split {
            Split::Character(b',') if found > names => {
                "; quote numbers and times that have commas, or separate cells by semicolons"
            }
            _ => "",
        };
        let expected = format!("{names} {}", if names == 1 { "name" } else { "names" });
        let problem = match found == names {
            true => "text where other rows have numbers".to_owned(),
            false => format!("{found} cells where the header has {expected}"),
        };
        let message = format!("{problem}: {}{hint}", quoted(&text.join(" ")));
        self.first_misfit.get_or_insert((self.raw.line, message));
    }
}

/// Columns of `ps aux`.
const PS_AUX: &[&str] = &["USER", "PID", "%CPU", "%MEM", "VSZ", "RSS", "TTY", "STAT", "START", "TIME", "COMMAND"];

/// Returns whether cells are a line of `ps aux`, as `grep` leaves it.
fn is_ps_aux(cells: &[String]) -> bool {
    let is_whole = |at: usize| cells[at].parse::<u64>().is_ok();
    let is_decimal = |at: usize| cells[at].contains('.') && cells[at].parse::<f64>().is_ok();
    cells.len() >= PS_AUX.len()
        && [1, 4, 5].into_iter().all(is_whole)
        && [2, 3].into_iter().all(is_decimal)
        && cells[9].contains(':')
}

/// Columns of `top`.
const TOP: &[&str] = &["PID", "USER", "PR", "NI", "VIRT", "RES", "SHR", "S", "%CPU", "%MEM", "TIME+", "COMMAND"];

/// Returns whether cells are a line of a process of `top`, as `grep` leaves it.
fn is_top(cells: &[String]) -> bool {
    let is_size = |at: usize| is_number(&cells[at]);
    cells.len() >= TOP.len()
        && cells[0].parse::<u64>().is_ok()
        && [4, 5, 6, 8, 9].into_iter().all(is_size)
        && cells[7].len() == 1
        && cells[10].contains(':')
}

/// Names of columns without a header: `time`, and the number of each; `None` where cells are no times or sizes.
fn names_by_number(split: Split, cells: &[String]) -> Option<Vec<String>> {
    // A date and its time of day are one cell.
    let date = match cells {
        [date, time, ..] if split == Split::Words => Some(format!("{date} {time}")),
        _ => None,
    };
    let joined = date.filter(|date| TimeParser::of("").is_date(date)).map(|date| [&[date], &cells[2..]].concat());
    let cells = joined.as_deref().unwrap_or(cells);
    // `900m` is a part of a processor.
    let is_size =
        |cell: &String| !cell.ends_with('m') && matches!(Numbers::default().amount(cell, false), Ok(Amount::Bytes(_)));
    let is_seconds = |cell: &String| cell.split('.').next().is_some_and(|whole| whole.len() == 10) && is_number(cell);
    let times = |cell: &String| TimeParser::of("").is_clock(cell) || is_seconds(cell);
    let time = cells.iter().position(times);
    let is_table = cells.len() > 1
        && cells.iter().any(|cell| is_size(cell) || (time.is_some() && is_number(cell)))
        && cells.iter().all(|cell| is_value(cell) || is_missing(cell) || !cell.contains(['=', ':']));
    let has_values = cells.iter().skip(1).all(|cell| is_value(cell) || is_missing(cell));
    let name = |at: usize| if Some(at) == time { "time".to_owned() } else { format!("column {}", at + 1) };
    // Words of a log alternate with its numbers.
    let is_text = split == Split::Words && !has_values;
    (is_table && !is_text && (time == Some(0) || cells.iter().any(is_size)))
        .then(|| (0..cells.len().min(COLUMNS_MAX)).map(name).collect())
}

/// Joins pairs of cells that are the parts of numbers with decimal commas; `None` where it is not clear which cells do.
fn with_decimal_commas(cells: &[String], names: usize) -> Option<Vec<String>> {
    let is_digits = |cell: &String| {
        let digits = cell.strip_prefix('-').unwrap_or(cell);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let numbers = cells.iter().filter(|cell| is_digits(cell)).count();
    let others = cells.len() - numbers;
    if numbers != 2 * names.checked_sub(others)? {
        return None;
    }
    let (mut joined, mut at, mut ambiguous) = (Vec::new(), 0, true);
    while at < cells.len() {
        if !is_digits(&cells[at]) {
            joined.push(cells[at].clone());
            at += 1;
            continue;
        }
        let decimals = cells.get(at + 1).filter(|next| is_digits(next))?;
        // `1,500` may be a thousand.
        ambiguous &= decimals.len() == 3;
        joined.push(format!("{}.{decimals}", cells[at]));
        at += 2;
    }
    (!ambiguous).then_some(joined)
}

impl Rows for Grid {
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TraceError> {
        let names = self.names.len() - usize::from(self.clock.is_some());
        loop {
            let (has_clock, mut newest) = (self.clock.is_some(), None);
            let more = self.source.next(self.split, &mut self.raw, |line| {
                let time = clock(line).filter(|_| has_clock);
                newest = time.map(str::to_owned).or_else(|| newest.take());
                time.is_some()
            })?;
            if let Some(time) = newest {
                self.clock_text = time;
            }
            if !more {
                return match self.first_misfit.take() {
                    Some((line, message)) if self.misfits * MISFITS > self.rows => Err(TraceError::at(line, message)),
                    misfit => {
                        self.first_misfit = misfit;
                        Ok(false)
                    }
                };
            }
            let is_head = !self.headless && (Some(self.raw.line) == self.units || self.is_header(&self.raw));
            if self.raw.is_empty() || is_head {
                continue;
            }
            row.clear();
            row.line = self.raw.line;
            let by_spaces = matches!(self.split, Split::Words | Split::Gaps);
            if self.raw.len() > names {
                match self.repaired(&self.raw) {
                    Some(cells) => cells.iter().enumerate().for_each(|(at, cell)| row.push(at, cell)),
                    None => {
                        if !by_spaces || 2 * self.raw.texts().filter(|cell| is_value(cell)).count() > self.raw.len() {
                            self.add_misfit();
                        }
                        continue;
                    }
                }
            } else {
                // A row of spaces has no empty cells, and one that is short has lost any.
                let is_short = self.raw.len() < names && (by_spaces || self.split == Split::Bars);
                if is_short
                    && self.raw.texts().filter(|cell| is_value(cell)).count() * 2 > self.raw.len()
                    && self.fits(&self.raw)
                {
                    self.add_misfit();
                }
                if is_short {
                    continue;
                }
                for at in 0..self.raw.len() {
                    if let Some((_, cell)) = self.raw.cell(at) {
                        row.push(at, cell);
                    }
                }
            }
            if by_spaces && !self.fits(row) {
                if 2 * self.raw.texts().filter(|cell| is_value(cell)).count() > self.raw.len() {
                    self.add_misfit();
                }
                continue;
            }
            if let Some(column) = self.clock {
                if self.clock_text.is_empty() {
                    continue;
                }
                for at in row.len()..column {
                    row.push(at, "");
                }
                row.push(column, &self.clock_text);
            }
            self.rows += 1;
            return Ok(true);
        }
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn clock(&self) -> Option<usize> {
        self.clock
    }

    fn semicolons(&self) -> bool {
        self.split == Split::Character(b';')
    }

    fn notes(&self) -> Vec<String> {
        let headless = self.headless.then(|| "there is no header; columns are named by their number".to_owned());
        let misfits = self.first_misfit.as_ref().map(|(line, message)| {
            let rows = if self.misfits == 1 { "row is" } else { "rows are" };
            format!("{} {rows} left out; the first is line {line}: {message}", self.misfits)
        });
        headless.into_iter().chain(misfits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_decimal_commas_are_joined_where_it_is_clear_which() {
        let cells = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<String>>();
        let joined = |text: &str, names| with_decimal_commas(&cells(text), names).map(|cells| cells.join(" "));
        assert_eq!(joined("10:00:00,1500,5,40,2", 3).as_deref(), Some("10:00:00 1500.5 40.2"));
        assert_eq!(joined("0,5,1500,5", 2).as_deref(), Some("0.5 1500.5"));
        assert_eq!(joined("0,1500,5,40,2", 3), None, "one of three numbers has no decimals");
        assert_eq!(joined("10:00:00,1,500", 2), None, "a thousand or one and a half");
    }

    #[test]
    fn a_header_is_a_line_of_names_followed_by_values() {
        let header = |text: &str| {
            find_header(&FileHead { text: text.into(), length: text.len() as u64 })
                .map(|header| (header.split, header.skipped, header.names.join("|")))
        };
        assert_eq!(header("a,rss\n1,2"), Some((Split::Character(b','), 0, "a|rss".into())));
        assert_eq!(header("hello\nstep rss\n1 2"), Some((Split::Words, 1, "step|rss".into())));
        assert_eq!(header("# Elapsed time   Real (MB)\n 1.0   5.0").unwrap().2, "Elapsed time|Real (MB)");
        assert_eq!(header("| Step | RSS |\n|---|---|\n| 1 | 2 |").unwrap().2, "Step|RSS");
        for text in
            ["1,2\n3,4", "usage: 5 KB\nusage: 6 KB", "a b\nc d", "iteration 1: rss 5 MB\niteration 2: rss 6 MB", ""]
        {
            assert_eq!(header(text), None, "{text}");
        }
    }
}
