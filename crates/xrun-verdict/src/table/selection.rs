//! Selection of the series that are judged, with their units.

use std::collections::BTreeMap;

use super::columns::{Column, Columns};
use super::names::{Role, is_resident, words};
use super::numbers::Amount;
use super::options::{TableError, TableOptions};
use crate::findings::{UnitSource, UnjudgedColumn};
use crate::thresholds::{BYTES, Thresholds};

/// Reason why the column of steps or times is not judged.
pub const POSITIONS: &str = "holds the steps or times";

/// Smallest memory of a training in bytes: smaller numbers are in another unit.
const BYTES_MIN: f64 = 1024.0 * 1024.0;
/// Smallest unused memory of a machine that trains, in bytes.
const UNUSED_MIN: f64 = 128.0 * 1024.0 * 1024.0;
/// Numbers from here on are bytes: they would be a TiB and more in KiB.
const SURELY_BYTES: f64 = 1024.0 * 1024.0 * 1024.0;
/// Memory of the largest machines in bytes, 64 TiB.
const MACHINE_MAX: f64 = 64.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0;
/// Fraction of its own level by which a series of unknown unit must grow.
const GROWTH_OF_LEVEL: f64 = 0.02;
/// Reason why a column of zeros without a unit is not judged.
const ONLY_ZERO: &str = "holds only 0";
/// Smallest number of different values from which a unit can be inferred, or a counter recognised.
const MOVES_MIN: u64 = 8;

/// Range of the values of a series or a column, and what they say about their unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueRange {
    pub count: u64,
    /// Numbers without a unit in their cells, and percentages.
    bare: u64,
    percent: u64,
    /// Highest of the numbers without a unit.
    bare_peak: f64,
    first: f64,
    last: f64,
    peak: f64,
    /// Largest power of two that divides all numbers; 0 before the first, and where one is no whole number.
    divisor: u64,
    is_whole: bool,
    /// Number of differences between neighbours, the smallest and the largest of them.
    moves: u64,
    move_min: f64,
    move_max: f64,
    /// True if a number is lower than the one before.
    falls: bool,
}

impl ValueRange {
    pub fn add(&mut self, amount: Amount) {
        let (number, is_bare) = match amount {
            Amount::Bytes(number) => (number, false),
            Amount::Number(number) | Amount::Percent(number) => (number, true),
            Amount::Missing => return,
        };
        if self.count == 0 {
            (self.first, self.is_whole, self.move_min) = (number, true, f64::INFINITY);
        } else {
            let change = number - self.last;
            self.falls |= change < 0.0;
            self.moves += u64::from(change != 0.0);
            (self.move_min, self.move_max) = (self.move_min.min(change), self.move_max.max(change));
        }
        (self.last, self.peak) = (number, self.peak.max(number));
        self.count += 1;
        if is_bare {
            self.bare += 1;
            self.percent += u64::from(matches!(amount, Amount::Percent(_)));
            self.bare_peak = self.bare_peak.max(number);
            self.is_whole &= number.fract() == 0.0 && number < 9e15;
            let whole = number as u64;
            if self.is_whole && whole > 0 {
                let power = 1 << whole.trailing_zeros();
                self.divisor = if self.divisor == 0 { power } else { self.divisor.min(power) };
            }
        }
    }

    /// Returns whether the values are those of a counter: they rise from 0 in equal moves.
    fn is_counter(&self) -> bool {
        let is_even = self.move_max - self.move_min <= 1e-3 * self.move_max;
        !self.falls
            && self.moves >= MOVES_MIN
            && self.moves + 1 == self.count
            && is_even
            && self.first <= 1.01 * self.move_max
    }
}

/// Scale, unit and thresholds of a series that is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub name: String,
    /// Series of the swap that is judged with it.
    pub swap: Option<usize>,
    /// It is of a process that had ended, and is judged in the sum of all alone.
    pub has_ended: bool,
    /// Memory of which its values are the unused part.
    pub whole: Option<f64>,
    /// Factor of its values.
    pub scale: f64,
    pub unit: &'static str,
    pub source: UnitSource,
    pub thresholds: Thresholds,
}

impl Judged {
    /// Number that is judged, of an amount of this series.
    pub fn number(&self, amount: Amount) -> Option<f64> {
        let number = match amount {
            Amount::Bytes(bytes) => bytes,
            Amount::Number(number) | Amount::Percent(number) => number * self.scale,
            Amount::Missing => return None,
        };
        let number = self.whole.map_or(number, |whole| whole - number);
        Some(if self.unit == "bytes" { number.trunc() } else { number })
    }
}

/// Series that are judged, and the columns that are not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Series that are judged, by their index; `None` where one is not.
    pub judged: Vec<Option<Judged>>,
    pub not_judged: Vec<UnjudgedColumn>,
    /// Beginning of the message: units that are assumed or unknown.
    pub caveat: String,
}

/// Unit of a series, or the reason why it is not judged.
enum Unit {
    Bytes(f64, UnitSource),
    Percent,
    Unknown,
    /// It may be anything, and is judged where nothing else can be.
    Anything,
    None(String),
}

/// Unit of a series of a column; `requested` says that the column was named by an option.
fn unit(column: &Column, range: &ValueRange, options: &TableOptions, requested: bool) -> Result<Unit, TableError> {
    let all = &column.range;
    if range.count == 0 {
        return Ok(Unit::None("holds no number".into()));
    }
    let is_percent = matches!(column.role, Role::Percent) || (all.bare > 0 && all.percent == all.bare);
    if is_percent {
        return Ok(match options.whole_bytes()? {
            Some(whole) => Unit::Bytes(whole / 100.0, UnitSource::Option),
            None if matches!(column.role, Role::Percent | Role::Memory) || requested => Unit::Percent,
            None => Unit::None("a percentage".into()),
        });
    }
    let option = options.unit_bytes()?.map(|unit| (unit, UnitSource::Option));
    let by_header = column.unit.filter(|(_, source)| *source == UnitSource::Header);
    let by_cells = (all.bare == 0).then_some((1.0, UnitSource::Cells));
    let unit = by_header.or(by_cells).or(option).or(column.unit);
    // psutil and `ru_maxrss` of macOS have bytes, a multiple of a page, where others have KiB.
    let is_pages = all.is_whole && all.divisor >= 4096 && all.moves >= MOVES_MIN && all.bare_peak >= SURELY_BYTES / 4.0;
    let unit = match unit {
        Some((unit, UnitSource::Tool)) if unit == 1024.0 && is_pages => Some((1.0, UnitSource::Assumed)),
        Some((unit, UnitSource::Tool)) if unit == 1.0 && all.bare_peak < BYTES_MIN => None,
        // `vmstat -S M`
        Some((unit, UnitSource::Tool)) if column.role == Role::Unused && all.bare_peak * unit < UNUSED_MIN => None,
        unit => unit,
    };
    let is_memory = column.role == Role::Memory || requested;
    let unit = unit.or_else(|| is_memory.then(|| assumed_unit(&column.name, all)).flatten());
    Ok(match unit {
        Some((unit, source)) => match range.peak.max(range.bare_peak * unit) > MACHINE_MAX {
            true => Unit::None("is beyond the memory of any machine (64 TiB)".into()),
            false => Unit::Bytes(unit, source),
        },
        None if all.bare_peak == 0.0 && !requested => Unit::None(ONLY_ZERO.into()),
        None if range.is_counter() && column.role != Role::Memory && !requested => {
            Unit::None("rises from 0 in equal moves, as a counter of work".into())
        }
        None if is_memory || column.role == Role::Unused => Unit::Unknown,
        None => Unit::Anything,
    })
}

/// Selects the series to judge: the requested columns, or otherwise all that may be memory.
pub fn select(columns: &Columns, options: &TableOptions) -> Result<Selection, TableError> {
    let names: Vec<String> = columns.series.iter().map(|series| columns.name(series)).collect();
    let column = |at: usize| &columns.columns[columns.series[at].column];
    let is = |at: usize, wanted: &String| names[at] == *wanted || column(at).name == *wanted;
    for wanted in &options.columns {
        if !(0..names.len()).any(|at| is(at, wanted)) {
            let message = format!("there is no column `{wanted}` (found: {})", names.join(", "));
            return Err(TableError::Options(message));
        }
    }
    let mut selection = Selection { judged: vec![None; names.len()], ..Selection::default() };
    let (mut anything, mut unused) = (Vec::new(), Vec::new());
    for (at, series) in columns.series.iter().enumerate() {
        let column = column(at);
        let requested = options.columns.iter().any(|wanted| is(at, wanted));
        let excluded = match &column.role {
            Role::Excluded(reason) if !requested => Some(reason.clone()),
            _ if !requested && !options.columns.is_empty() => Some("not selected by `--column`".into()),
            _ => None,
        };
        let unit = match column.invalid.clone().or(excluded) {
            Some(reason) => Unit::None(reason),
            None => unit(column, &series.range, options, requested)?,
        };
        match unit {
            Unit::None(reason) if requested => {
                return Err(TableError::Content(format!("column `{}` cannot be judged: {reason}", names[at])));
            }
            Unit::None(reason) => selection.leave_out(column, &series.range, reason, options),
            Unit::Anything => anything.push(at),
            unit if column.role == Role::Unused && !requested => unused.push((at, unit)),
            unit => selection.judge(at, names[at].clone(), unit, &series.range, options),
        }
    }
    // Unused memory is judged where no other is, and where it is not what the file cache leaves.
    let has = |at: usize, list: &[&str]| words(&column(at).name).iter().any(|word| list.contains(&word.as_str()));
    let is_swap_only = (0..names.len()).all(|at| selection.judged[at].is_none() || has(at, &["swap", "swpd"]));
    for (at, unit) in unused {
        let range = &columns.series[at].range;
        let says_all =
            has(at, &["avail", "available", "kbavail", "gpu", "vram", "cuda", "cache"]) && !has(at, &["swap"]);
        if is_swap_only && says_all {
            selection.judge(at, format!("fall of {}", names[at]), unit, range, options);
            if let Some(judged) = &mut selection.judged[at] {
                judged.whole = Some(range.peak.max(range.bare_peak * judged.scale));
            }
        } else {
            selection.leave_out(column(at), range, "unused memory".into(), options);
        }
    }
    let is_one_column =
        anything.windows(2).all(|pair| columns.series[pair[0]].column == columns.series[pair[1]].column);
    let is_only = selection.judged.iter().all(Option::is_none) && is_one_column && !columns.facts.is_log;
    for at in anything {
        let range = &columns.series[at].range;
        match is_only {
            true => selection.judge(at, names[at].clone(), Unit::Unknown, range, options),
            false => {
                let reason = "neither its name nor a unit says that it is memory; select it with `--column`";
                selection.leave_out(column(at), range, reason.into(), options);
            }
        }
    }
    for (at, series) in columns.series.iter().enumerate() {
        // Pages that move to the swap are no less memory, and come back.
        let swap = columns.swap_beside(at).filter(|_| options.columns.is_empty());
        let is_size = |at: usize| selection.judged[at].as_ref().is_some_and(|one| one.unit == "bytes");
        let swap = swap.filter(|swap| is_size(at) && is_size(*swap));
        if let Some(judged) = &mut selection.judged[at] {
            judged.has_ended = columns.has_ended(series) && !options.columns.contains(&names[at]);
            judged.name += &swap.map_or_else(String::new, |swap| format!(" + {}", column(swap).name));
            judged.swap = swap;
        }
    }
    selection.caveat = caveat(&selection);
    let any = selection.judged.iter().any(Option::is_some);
    if any { Ok(selection) } else { Err(TableError::Content(no_column(&selection))) }
}

impl Selection {
    /// Returns whether a series is judged with the RSS beside it.
    pub fn is_swap(&self, at: usize) -> bool {
        self.judged.iter().flatten().any(|one| one.swap == Some(at))
    }

    fn judge(&mut self, at: usize, name: String, unit: Unit, range: &ValueRange, options: &TableOptions) {
        let of_bytes = options.growth_min.map_or(BYTES, |bytes| Thresholds::of_growth(bytes as f64));
        let relative = Thresholds::of_growth((GROWTH_OF_LEVEL * range.peak).max(f64::MIN_POSITIVE));
        let (unit, source, scale, thresholds) = match unit {
            Unit::Bytes(scale, source) => ("bytes", source, scale, of_bytes),
            Unit::Percent => ("percent", UnitSource::Unknown, 1.0, relative),
            _ => ("unknown", UnitSource::Unknown, 1.0, relative),
        };
        self.judged[at] =
            Some(Judged { name, swap: None, has_ended: false, whole: None, scale, unit, source, thresholds });
    }

    fn leave_out(&mut self, column: &Column, range: &ValueRange, reason: String, options: &TableOptions) {
        if self.not_judged.iter().any(|one| one.column == column.name) {
            return;
        }
        let is_memory = matches!(column.role, Role::Memory | Role::Percent) || column.unit.is_some();
        // A column of zeros is read, and has no leak; `memory_format` is text.
        let is_text = range.count == 0 && column.invalid.is_some() && column.unit.is_none();
        let is_unreadable = is_memory && !is_text && reason != ONLY_ZERO && reason != POSITIONS;
        let unreadable_memory =
            is_unreadable && !matches!(column.role, Role::Excluded(_) | Role::Unused) && options.columns.is_empty();
        self.not_judged.push(UnjudgedColumn { column: column.name.clone(), reason, unreadable_memory });
    }
}

/// Unit that the numbers of a column of memory are likely in.
fn assumed_unit(column: &str, all: &ValueRange) -> Option<(f64, UnitSource)> {
    let bytes = Some((1.0, UnitSource::Assumed));
    match () {
        () if all.bare_peak >= SURELY_BYTES => bytes,
        // Memory of tensors and pages is a multiple of 512 bytes, and RSS in KiB one of 4.
        () if all.bare_peak >= BYTES_MIN
            && all.is_whole
            && (all.divisor >= 4096 || (all.divisor >= 512 && all.moves > 0)) =>
        {
            bytes
        }
        () if all.bare_peak >= BYTES_MIN / 16.0
            && is_resident(column)
            && all.is_whole
            && (4..512).contains(&all.divisor)
            && all.moves >= MOVES_MIN =>
        {
            Some((1024.0, UnitSource::Assumed))
        }
        () => None,
    }
}

/// Beginning of a message on series whose unit is assumed or unknown.
fn caveat(selection: &Selection) -> String {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for one in selection.judged.iter().flatten() {
        let text = match (one.unit, one.source, one.scale) {
            ("unknown", ..) => "judged relative to its level, because the unit is unknown (`--unit`)".to_owned(),
            ("percent", ..) => "judged relative to its level (`--of 16GiB` sets 100 %)".to_owned(),
            (_, UnitSource::Assumed, scale) => format!("assumed to be in {} (`--unit`)", unit_name(scale)),
            _ => continue,
        };
        groups.entry(text).or_default().push(&one.name);
    }
    let part = |(text, names): (&String, &Vec<&str>)| match names[..] {
        [one] => format!("`{one}` is {text}"),
        [one, ..] => format!("`{one}` and {} more are {text}", names.len() - 1),
        [] => String::new(),
    };
    let parts: Vec<String> = groups.iter().map(part).collect();
    if parts.is_empty() { String::new() } else { format!("{}: ", parts.join(", ")) }
}

/// Name of a unit that may be assumed.
fn unit_name(scale: f64) -> &'static str {
    match scale {
        1.0 => "bytes",
        1024.0 => "KiB",
        BYTES_MIN => "MiB",
        _ => "GiB",
    }
}

/// Message for a trace without a column that can be judged.
fn no_column(selection: &Selection) -> String {
    let listed = selection.not_judged.iter().filter(|one| one.reason != POSITIONS);
    let all: Vec<String> = listed.map(|one| format!("`{}` ({})", one.column, one.reason)).collect();
    match all.is_empty() {
        true => "no column can be judged: the only one holds the steps or times".into(),
        false => format!("no column can be judged: {}; select one with `--column NAME`", all.join(", ")),
    }
}
