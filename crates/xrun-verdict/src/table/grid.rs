//! Tables: separated by commas, semicolons, tabs, bars or spaces, with text before, between and after.

use std::path::Path;

use super::names::{Role, known, role, unit};
use super::numbers::{Amount, Numbers, cell_unit, is_missing};
use super::options::TableError;
use super::rows::{COLUMNS_MAX, Facts, Row, Rows};
use super::text::{FileHead, Lines, quoted, strip_watch_title};
use super::times::{TimeParser, is_clock, is_date, is_time};

/// Number of lines in which a header is searched.
const HEADER_LINES_MAX: usize = 60;
/// Columns whose sum is the memory that vmstat calls unused.
const UNUSED: &[&str] = &["free", "buff", "cache"];
/// Headers of tools whose lines `grep` leaves without them, with their columns of numbers and of a time, by which they are known.
const HEADERS: &[(&str, &[usize], usize)] = &[
    ("USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND", &[1, 2, 3, 4, 5], 9),
    ("PID USER PR NI VIRT RES SHR S %CPU %MEM TIME+ COMMAND", &[0, 4, 5, 6, 8, 9], 10),
];

/// Separation of the cells of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// Character between cells, which may be quoted.
    Character(char),
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
        let owned = |cell: &str| cell.trim().to_owned();
        match self {
            Self::Character(separator) => separated(line, separator),
            Self::Bars => line.trim_start_matches('|').trim_end_matches('|').split('|').map(owned).collect(),
            Self::Words => {
                let mut cells: Vec<String> = Vec::new();
                for word in line.split_whitespace() {
                    match cells.last_mut() {
                        // `10:11:12 AM` is one cell.
                        Some(time) if matches!(word, "AM" | "PM") && time.contains(':') => *time += &format!(" {word}"),
                        _ => cells.push(word.into()),
                    }
                }
                cells
            }
            Self::Gaps => line.split("  ").map(owned).filter(|cell| !cell.is_empty()).collect(),
        }
    }

    fn is_by_spaces(self) -> bool {
        matches!(self, Self::Words | Self::Gaps)
    }
}

/// Cells between separators; one in quotation marks may have separators in it, and two marks for one.
fn separated(line: &str, separator: char) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' if is_quoted || cell.is_empty() => is_quoted = !is_quoted,
            _ if letter == separator && !is_quoted => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            _ => cell.push(letter),
        }
    }
    cells.push(cell.trim().to_owned());
    cells
}

/// Possible separations of the names of a header and of the values below it, the likeliest first.
fn splits(line: &str) -> Vec<(Split, Split)> {
    let count = |delimiter: &char| line.matches(*delimiter).count();
    let delimiter = ['\t', ';', ','].into_iter().max_by_key(count).filter(|one| count(one) > 0);
    let has_brackets = line.split_whitespace().any(|word| word.starts_with(['[', '(']));
    let same = |split| vec![(split, split)];
    let gaps = [(Split::Gaps, Split::Gaps), (Split::Gaps, Split::Words)];
    match delimiter {
        _ if line.starts_with('|') || line.contains(" | ") => same(Split::Bars),
        Some(one) => same(Split::Character(one)),
        None if line.contains('|') => same(Split::Bars),
        None if line.contains("  ") && has_brackets => gaps.to_vec(),
        // `memory.used [MiB]` is one name.
        None if has_brackets => same(Split::Character(',')),
        None if line.contains("  ") => [&same(Split::Words)[..], &gaps].concat(),
        None => same(Split::Words),
    }
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

fn is_unit(cell: &str) -> bool {
    let unit = cell.trim_matches(['[', ']', '(', ')']);
    unit == "%" || cell_unit(unit, false).is_some()
}

/// Number of cells that are values, missing ones too.
fn values(cells: &[String]) -> usize {
    cells.iter().filter(|cell| is_value(cell) || is_missing(cell)).count()
}

fn has_value(cells: &[String]) -> bool {
    cells.iter().any(|cell| is_value(cell))
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
    let line = strip_watch_title(line);
    let is_seconds = line.len() == 10 && line.bytes().all(|byte| byte.is_ascii_digit());
    (is_seconds || is_clock(line)).then_some(line)
}

/// Header of a table.
#[derive(Clone, Debug, PartialEq)]
struct Header {
    split: Split,
    /// Lines before the first row.
    skipped: u64,
    /// Names, and cells of the line that repeats where a restarted tool writes it.
    names: Vec<String>,
    repeated: Vec<String>,
}

/// Line without the `#` of a header.
fn header_text(line: &str) -> &str {
    line.trim().trim_start_matches('#').trim_start()
}

/// Finds the header of a table: a line of names, followed by values. A line after which as many cells are mostly values is
/// preferred to one with other text below it.
fn find_header(head: &FileHead) -> Option<Header> {
    let lines: Vec<&str> = head.text.lines().map(str::trim).collect();
    [true, false]
        .into_iter()
        .find_map(|strict| (0..lines.len().min(HEADER_LINES_MAX)).find_map(|at| header_at(&lines, at, strict)))
}

fn header_at(lines: &[&str], at: usize, strict: bool) -> Option<Header> {
    // Excel reads `sep=;`.
    let is_text = |line: &&str| !line.is_empty() && !is_rule(line) && !line.starts_with("sep=");
    let line = Some(lines[at]).filter(is_text)?;
    let following = || lines[at + 1..].iter().copied().filter(|next| is_text(next) && *next != line);
    splits(header_text(line)).into_iter().find_map(|(of_names, split)| {
        let repeated = of_names.cells(header_text(line));
        let mut names = repeated.clone();
        if of_names == Split::Words && names.len() > 1 && TimeParser::of("").read(&names[0]).is_ok() {
            names[0] = "time".into();
        }
        // `2048.0 total, 0.0 used`, `'bytes_in_use': 5` and a row of units are no names.
        let is_no_name = |name: &String| {
            let mut parts = name.split([':', '=']);
            is_value(name)
                || ["%", "KB", "MB", "GB", "KiB", "MiB", "GiB"].contains(&name.as_str())
                || name.ends_with(':')
                || name.contains("--")
                || parts.any(|part| part.trim_start().starts_with(|letter: char| letter.is_ascii_digit()))
        };
        if !names.iter().any(|name| name.contains(char::is_alphabetic)) || names.iter().any(is_no_name) {
            return None;
        }
        let rows: Vec<Vec<String>> = following().take(12).map(|next| split.cells(next)).collect();
        let of_size = |cells: &Vec<String>| cells.len() == names.len();
        let fits = if split.is_by_spaces() {
            let is_row = |cells: &&Vec<String>| values(cells) > 0 && 3 * values(cells) >= cells.len();
            let mut rows = rows.iter().filter(is_row).peekable();
            // A command at the end, a date of two words, an index or a name before the first column.
            let more = rows.peek().map_or(0, |cells| cells.len().saturating_sub(names.len()));
            let is_known = names.iter().any(|name| {
                is_time(name)
                    || unit(name).is_some()
                    || known(name, &names).is_some()
                    || super::columns::is_position(name)
                    || matches!(role(name), Role::Memory | Role::Percent)
            });
            is_known && (rows.any(of_size) || (split == Split::Words && (1..=12).contains(&more)))
        } else {
            let is_row = |cells: &Vec<String>| of_size(cells) && 2 * values(cells) >= cells.len() && has_value(cells);
            let is_near = |cells: &Vec<String>| cells.len() + 1 >= names.len().min(3) && has_value(cells);
            match strict {
                true => rows.first().is_some_and(is_row),
                false => (rows.is_empty() && at == 0) || rows.iter().take(3).any(is_near),
            }
        };
        let mut skipped = at as u64 + 1;
        // A row of the units of the columns.
        let below = following().next().map(|next| split.cells(header_text(next))).unwrap_or_default();
        // Those of a tool are known.
        let is_unknown = names.iter().all(|name| known(name, &names).is_none());
        if fits && is_unknown && of_size(&below) && below.iter().any(|cell| is_unit(cell)) && !has_value(&below) {
            for (name, unit) in names.iter_mut().zip(&below).filter(|(_, unit)| is_unit(unit)) {
                *name = format!("{name} [{}]", unit.trim_matches(['[', ']', '(', ')']));
            }
            skipped += lines[at + 1..].iter().position(is_text).unwrap_or_default() as u64 + 1;
        }
        fits.then_some(Header { split, skipped, names, repeated })
    })
}

/// Names of columns without a header: of lines of `ps aux` or `top`, or `time`, `name`, and the number of each; `None` where
/// cells are no times or sizes.
fn names_by_cells(head: &FileHead) -> Option<Header> {
    let first = head.lines().find(|line| clock(line).is_none() && !line.starts_with('#'))?;
    let header = |split, names| Some(Header { split, skipped: 0, names, repeated: Vec::new() });
    let words = Split::Words.cells(first);
    let is_of_tool = |(_, numbers, time): &&(&str, &[usize], usize)| {
        words.len() > time + 1 && words[*time].contains(':') && numbers.iter().all(|at| is_number(&words[*at]))
    };
    if let Some((names, ..)) = HEADERS.iter().find(is_of_tool) {
        return header(Split::Words, Split::Words.cells(names));
    }
    let (split, _) = *splits(first).first()?;
    let mut cells = split.cells(first);
    // A date and its time of day are one cell.
    if split == Split::Words && cells.len() > 1 && is_date(&format!("{} {}", cells[0], cells[1])) {
        let time = cells.remove(1);
        cells[0] += &format!(" {time}");
    }
    // `900m` is a part of a processor.
    let is_size =
        |cell: &String| !cell.ends_with('m') && matches!(Numbers::default().amount(cell, false), Ok(Amount::Bytes(_)));
    let is_since_1970 =
        |cell: &String| cell.split('.').next().is_some_and(|whole| [10, 13].contains(&whole.len())) && is_number(cell);
    let time = cells.iter().position(|cell| is_clock(cell) || is_since_1970(cell));
    let is_table = cells.len() > 1
        && (time == Some(0) || cells.iter().any(is_size))
        && cells.iter().any(|cell| is_size(cell) || (time.is_some() && is_number(cell)))
        && cells.iter().all(|cell| is_value(cell) || is_missing(cell) || !cell.contains(['=', ':']));
    // Words of a log alternate with its numbers.
    let is_text = split == Split::Words && values(&cells) + usize::from(!is_value(&cells[0])) < cells.len();
    let name = |at: usize| match at {
        _ if Some(at) == time => "time".to_owned(),
        0 if !is_value(&cells[0]) => "name".to_owned(),
        _ => format!("column {}", at + 1),
    };
    let names = (0..cells.len().min(COLUMNS_MAX)).map(name).collect();
    if is_table && !is_text { header(split, names) } else { None }
}

/// Reader of a table.
pub struct Grid {
    lines: Lines,
    header: Header,
    facts: Facts,
    /// Columns that hold numbers in the first whole row.
    numeric: Vec<bool>,
    /// True if the last column is text and may have separators in it.
    text_at_end: bool,
    /// True if the columns `free`, `buff` and `cache` have a sum.
    has_unused: bool,
    /// Newest of the times between the rows.
    clock_text: String,
}

impl Grid {
    /// Opens a table with a header, or one whose columns are known by their cells; `None` for other text.
    pub fn open(path: &Path, head: &FileHead) -> Option<Result<Self, TableError>> {
        let mut header = find_header(head).or_else(|| names_by_cells(head))?;
        let split = header.split;
        let lines = head
            .text
            .lines()
            .skip(header.skipped as usize)
            .map(str::trim)
            .filter(|line| !line.is_empty() && !is_rule(line) && clock(line).is_none());
        let rows: Vec<Vec<String>> =
            lines.map(|line| split.cells(line)).filter(|row| has_value(row)).take(200).collect();
        let names = header.names.len();
        // An index of the rows has no name.
        let number = |row: &Vec<String>| row[0].parse::<u64>().ok();
        let counts = |pair: &[Vec<String>]| number(&pair[0]).map(|at| at + 1) == number(&pair[1]).filter(|at| *at > 0);
        let is_index = rows.windows(2).all(counts) || rows.iter().all(|row| row[0].starts_with('"'));
        if split == Split::Words && rows.len() > 1 && is_index && rows.iter().all(|row| row.len() == names + 1) {
            header.names.insert(0, String::new());
        }
        let names = header.names.len();
        let last_is_text = |row: &Vec<String>| !is_value(&row[names - 1]) && !is_missing(&row[names - 1]);
        let mut whole = rows.iter().filter(|row| row.len() >= names).peekable();
        let numeric = whole.peek().map(|row| row.iter().take(names).map(|cell| is_number(cell)).collect());
        let text_at_end = names > 1 && whole.peek().is_some() && whole.all(last_is_text);
        let has = |name: &str| header.names.iter().any(|one| one == name);
        let has_unused = UNUSED.iter().all(|name| has(name));
        let has_clock =
            split.is_by_spaces() && !has("time") && head.text.lines().any(|line| clock(line.trim()).is_some());
        let mut facts = Facts { form: "table", semicolons: split == Split::Character(';'), ..Facts::default() };
        facts.is_headless = header.repeated.is_empty();
        facts.names.clone_from(&header.names);
        facts.names.extend(has_unused.then(|| UNUSED.join(" + ")));
        facts.clock = has_clock.then_some(facts.names.len());
        facts.names.extend(has_clock.then(|| "time".to_owned()));
        // Those before the header belong to its first rows.
        let before = head.text.lines().take(header.skipped as usize).filter_map(|line| clock(line.trim())).last();
        Some(Lines::open(path, head).map(|lines| Self {
            lines,
            header,
            numeric: numeric.unwrap_or_default(),
            text_at_end,
            has_unused,
            facts,
            clock_text: before.unwrap_or_default().to_owned(),
        }))
    }

    /// Returns whether a row repeats the header, as a restarted tool writes it.
    fn is_header(&self, cells: &[String]) -> bool {
        let first = usize::from(self.header.names[0] == "time");
        let same = |(cell, name): (&String, &String)| header_text(cell) == *name;
        let repeated = &self.header.repeated;
        repeated.len() > first && cells.len() > first && cells.iter().zip(repeated).skip(first).all(same)
    }

    /// Cells of a row, one for each name; `None` where it does not fit, and is left out.
    fn fitted(&mut self, mut cells: Vec<String>, line: &str) -> Option<Vec<String>> {
        let (names, split) = (self.header.names.len(), self.header.split);
        let found = cells.len();
        while cells.len() > names && cells.last().is_some_and(String::is_empty) {
            cells.pop();
        }
        while cells.len() > names {
            // A date and its time of day, or a time and its milliseconds.
            let is_fraction = |cell: &String| cell.len() == 3 && cell.bytes().all(|byte| byte.is_ascii_digit());
            let both = |at: usize| match split {
                Split::Words => Some(format!("{} {}", cells[at], cells[at + 1])).filter(|both| is_date(both)),
                Split::Character(',') if is_fraction(&cells[at + 1]) && is_clock(&cells[at]) => {
                    Some(format!("{}.{}", cells[at], cells[at + 1]))
                }
                _ => None,
            };
            let Some((at, both)) = (0..cells.len() - 1).find_map(|at| Some((at, both(at)?))) else { break };
            cells.splice(at..at + 2, [both]);
        }
        if cells.len() > names && self.text_at_end {
            let tail = cells.split_off(names - 1).join(" ");
            cells.push(tail);
        }
        // Other text has as many words by chance; top has `rt` among its priorities.
        let is_other = |(cell, numeric): &(&String, &bool)| {
            **numeric && !cell.starts_with(|one: char| one.is_ascii_digit() || "-+.".contains(one)) && !is_missing(cell)
        };
        let is_of_kind = cells.iter().zip(&self.numeric).filter(is_other).count() <= cells.len() / 5;
        // A row of spaces has no empty cells, and one that is short has lost any.
        let is_short = cells.len() < names && (split.is_by_spaces() || split == Split::Bars);
        if cells.len() <= names && !is_short && (is_of_kind || !split.is_by_spaces()) {
            return Some(cells);
        }
        let is_mostly_values = 2 * values(&cells) > cells.len();
        if (is_mostly_values && (!is_short || is_of_kind)) || (cells.len() > names && !split.is_by_spaces()) {
            let is_comma = split == Split::Character(',') && cells.len() > names;
            let hint = if is_comma { "; quote numbers with commas, or separate cells by semicolons" } else { "" };
            self.facts.misfits.add(self.lines.number, || match found == names {
                true => format!("text where other rows have numbers: {}", quoted(line)),
                false => format!("{found} cells where the header has {names}: {}{hint}", quoted(line)),
            });
        }
        None
    }
}

impl Rows for Grid {
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TableError> {
        loop {
            let Some(line) = self.lines.next_line()?.map(str::to_owned) else {
                self.facts.misfits.check()?;
                return Ok(false);
            };
            if self.lines.number <= self.header.skipped || is_rule(&line) {
                continue;
            }
            if let Some(time) = clock(&line).filter(|_| self.facts.clock.is_some()) {
                time.clone_into(&mut self.clock_text);
                continue;
            }
            let text = if line.starts_with('#') { header_text(&line) } else { &line };
            let cells = self.header.split.cells(text);
            if self.is_header(&cells) {
                continue;
            }
            let Some(cells) = self.fitted(cells, text) else { continue };
            if self.facts.clock.is_some() && self.clock_text.is_empty() {
                continue;
            }
            let number = |name: &&str| {
                let at = self.facts.names.iter().position(|one| one == *name)?;
                Numbers::default().number(cells.get(at)?)
            };
            let unused = self.has_unused.then(|| UNUSED.iter().map(number).sum::<Option<f64>>()).flatten();
            *row = Row { line: self.lines.number, restart: false, cells: cells.into_iter().enumerate().collect() };
            row.cells.extend(unused.map(|sum| (self.header.names.len(), sum.to_string())));
            row.cells.extend(self.facts.clock.map(|column| (column, self.clock_text.clone())));
            self.facts.misfits.rows += 1;
            return Ok(true);
        }
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}
