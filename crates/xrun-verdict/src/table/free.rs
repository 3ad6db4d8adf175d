//! Repeated output of `free`: with `-s`, or in a loop with `date`.

use std::path::Path;

use super::text::{FileHead, Lines, quoted, without_title};
use super::times::TimeParser;
use super::{Sample, SeriesInfo, Trace, TraceError, Value};
use crate::axis::Axis;
use crate::findings::UnitSource;

const MIB: f64 = 1024.0 * 1024.0;
/// Lines that are ignored.
const IGNORED: &[&str] = &["Low:", "High:", "Total:", "Comm:"];

/// Returns whether a file begins like the output of `free`, possibly after a line with the time.
pub fn recognizes(head: &FileHead) -> bool {
    let mut lines = head.lines().take(3).skip_while(|line| !is_header(line));
    let has_header = lines.next().is_some() && head.lines().take(4).any(|line| line.starts_with("Mem:"));
    has_header || head.lines().take(2).any(is_memory)
}

/// Returns whether a line is that of the memory, as `grep` leaves it.
fn is_memory(line: &str) -> bool {
    line.starts_with("Mem:") && line.split_whitespace().skip(1).filter(|cell| parse_size(cell).is_ok()).count() >= 3
}

/// Columns of `free` where its header is not in the file.
const HEADER: &[&str] = &["total", "used", "free", "shared", "buff/cache", "available"];

fn is_header(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("total") && words.next() == Some("used") && words.next() == Some("free")
}

/// Position of the line with the time of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TimeLine {
    None,
    Before,
    After,
}

/// Output of one call; each size is a number, and the bytes of its unit if it has one.
#[derive(Clone, Debug, Default)]
struct Block {
    line: u64,
    time: Option<i64>,
    used: Option<(f64, Option<f64>)>,
    shared: Option<(f64, Option<f64>)>,
    swap: Option<(f64, Option<f64>)>,
}

/// Reader of the output of `free`.
pub struct Free {
    lines: Lines,
    time_line: TimeLine,
    times: TimeParser,
    header: Vec<String>,
    block: Block,
    count: i64,
    /// Bytes of the unit of the numbers.
    unit: f64,
    /// True if the unit is known and not inferred.
    unit_known: bool,
}

impl Free {
    pub fn open(path: &Path, head: &FileHead, unit: Option<f64>) -> Result<Self, TraceError> {
        let first = head.lines().next().unwrap_or_default();
        let has_times = || head.lines().any(|line| TimeParser::of("").read(without_title(line)).is_ok());
        let time_line = match is_header(first) || is_memory(first) {
            false => TimeLine::Before,
            true if has_times() => TimeLine::After,
            true => TimeLine::None,
        };
        let memory = head.lines().find(|line| line.starts_with("Mem:")).unwrap_or_default();
        let numbers: Vec<f64> = memory.split_whitespace().skip(1).filter_map(|cell| cell.parse().ok()).collect();
        Ok(Self {
            lines: Lines::open(path, head)?,
            time_line,
            times: TimeParser::of(""),
            header: HEADER.iter().map(|name| (*name).to_owned()).collect(),
            block: Block::default(),
            count: 0,
            unit: unit.unwrap_or_else(|| infer_unit(&numbers)),
            // In the output of `free -h` each number has a unit.
            unit_known: unit.is_some() || numbers.is_empty(),
        })
    }

    /// Adds a line of the table to the block; the first cell is its name.
    fn add_row(&mut self, cells: &[String]) -> Result<(), String> {
        let [name, cells @ ..] = cells else { return Ok(()) };
        // Older versions have a line for memory without caches: `-/+ buffers/cache: <used> <free>`.
        if name == "-/+" {
            self.block.used = cells.get(1).map(|cell| parse_size(cell)).transpose()?;
            return Ok(());
        }
        let cell = |column: &str| {
            let at = self.header.iter().position(|name| name == column)?;
            cells.get(at)
        };
        let number = |column: &str| cell(column).map(|cell| parse_size(cell)).transpose();
        let used = number("used")?.ok_or("the column `used` is missing")?;
        match name.as_str() {
            "Mem:" => (self.block.used, self.block.shared) = (Some(used), number("shared")?),
            _ => self.block.swap = Some(used),
        }
        Ok(())
    }

    /// Writes the block into `sample` and begins the next one; `false` for an incomplete block.
    fn take_block(&mut self, sample: &mut Sample) -> Result<bool, TraceError> {
        let block = std::mem::take(&mut self.block);
        let Some(used) = block.used else {
            self.block.time = block.time;
            return Ok(false);
        };
        let position = match (self.time_line, block.time) {
            (TimeLine::None, _) => self.count,
            (_, Some(time)) => time,
            (TimeLine::After, None) => return Ok(false),
            (TimeLine::Before, None) => {
                return Err(TraceError::at(block.line, "the time before this output of `free` is missing"));
            }
        };
        self.count += 1;
        (sample.line, sample.position, sample.restart) = (block.line, position, false);
        sample.values.clear();
        for (series, value) in [Some(used), block.shared, block.swap].into_iter().enumerate() {
            sample.values.extend(value.map(|(number, unit)| Value { series, number, unit, percent: false }));
        }
        Ok(true)
    }
}

impl Trace for Free {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TraceError> {
        loop {
            let Some(line) = self.lines.next_line()?.map(str::to_owned) else { return self.take_block(sample) };
            let cells: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let name = cells.first().map_or("", String::as_str);
            if is_header(&line) {
                let done = self.time_line != TimeLine::Before && self.take_block(sample)?;
                self.header = cells;
                self.block.line = self.lines.number;
                if done {
                    return Ok(true);
                }
            } else if ["Mem:", "Swap:", "-/+"].contains(&name) {
                // Without headers a block begins with its memory.
                let done = name == "Mem:" && self.block.used.is_some() && self.take_block(sample)?;
                if name == "Mem:" && done {
                    self.block.line = self.lines.number;
                }
                self.add_row(&cells).map_err(|problem| self.lines.error(format!("{problem}: {}", quoted(&line))))?;
                if done {
                    return Ok(true);
                }
            } else if !IGNORED.contains(&name) {
                let time = self.times.read(without_title(&line));
                let invalid = || format!("expected a line of `free` or a time, found {}", quoted(&line));
                let time = time.map_err(|_| self.lines.error(invalid()))?;
                if self.time_line == TimeLine::After {
                    self.block.time = Some(time);
                }
                let done = self.take_block(sample)?;
                if self.time_line == TimeLine::Before {
                    self.block.time = Some(time);
                }
                if done {
                    return Ok(true);
                }
            }
        }
    }

    fn series(&mut self) -> Vec<SeriesInfo> {
        let source = if self.unit_known { UnitSource::Tool } else { UnitSource::Assumed };
        ["used", "shared", "swap used"].into_iter().map(|name| SeriesInfo::new(name, (self.unit, source))).collect()
    }

    fn axis(&self) -> Axis {
        if self.time_line == TimeLine::None { Axis::Samples } else { Axis::Clock }
    }

    fn notes(&self) -> Vec<String> {
        // Its numbers do not tell `free -g` from `free --giga`.
        let unit = match self.unit_known {
            true => String::new(),
            false => format!(
                ", assumed to be in {} by its total (change with `--unit KiB`, or `--unit GB` for `free --giga`)",
                unit_name(self.unit)
            ),
        };
        let no_times = "samples are counted, because `free` prints no times; `while date; free; do sleep 1; done` does";
        let no_times = (self.time_line == TimeLine::None).then(|| no_times.to_owned());
        std::iter::once(format!("output of `free`{unit}")).chain(no_times).collect()
    }
}

/// Bytes of the unit of the numbers of a line, the first of which is the memory of the machine. In bytes and KiB they are
/// multiples of a page, 4 KiB.
fn infer_unit(numbers: &[f64]) -> f64 {
    let pages_of = |page: f64| numbers.iter().all(|number| number % page == 0.0);
    match numbers.first().copied().unwrap_or_default() {
        134_217_728.0.. if pages_of(4096.0) => 1.0,
        // 8 TiB, were it in MiB.
        8_388_608.0.. => 1024.0,
        131_072.0.. if pages_of(4.0) => 1024.0,
        128.0.. => MIB,
        _ => 1024.0 * MIB,
    }
}

fn unit_name(unit: f64) -> &'static str {
    match unit {
        1.0 => "bytes",
        1024.0 => "KiB",
        MIB => "MiB",
        _ => "GiB",
    }
}

/// Parses a number and the bytes of its unit, if it has one: `3.6Gi`, `512M`.
fn parse_size(cell: &str) -> Result<(f64, Option<f64>), String> {
    let digits = cell.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number = digits.replace(',', ".").parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite());
    let power = match cell[digits.len()..].chars().next().map(|letter| letter.to_ascii_lowercase()) {
        None => None,
        Some('b') => Some(0),
        Some('k') => Some(1),
        Some('m') => Some(2),
        Some('g') => Some(3),
        Some('t') => Some(4),
        _ => return Err(format!("{} is no size", quoted(cell))),
    };
    let number = number.ok_or_else(|| format!("{} is no size", quoted(cell)))?;
    Ok((number, power.map(|power| 1024f64.powi(power))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_inferred_from_the_total() {
        for gib in [1u64, 16, 24, 512, 4096] {
            let bytes = [(gib << 30) - 1_235 * 4096, (gib << 29) + 4096, (gib << 27) + 3 * 4096];
            for (shift, unit) in [(0, 1.0), (10, 1024.0), (20, MIB)] {
                let numbers = bytes.map(|bytes| (bytes >> shift) as f64);
                assert_eq!(infer_unit(&numbers), unit, "{gib} GiB: {numbers:?}");
            }
        }
        assert_eq!(infer_unit(&[24.0, 3.0, 10.0]), 1024.0 * MIB);
        assert_eq!(infer_unit(&[24_683_603.0, 3_914_531.0]), 1024.0, "`free --kilo`, nearly");
        assert_eq!(infer_unit(&[]), 1024.0 * MIB);
    }

    #[test]
    fn sizes_may_have_a_unit() {
        assert_eq!(parse_size("3662"), Ok((3662.0, None)));
        assert_eq!(parse_size("3.6Gi"), Ok((3.6, Some(1024.0 * MIB))));
        assert_eq!(parse_size("1,5M"), Ok((1.5, Some(MIB))), "decimal comma of some locales");
        assert_eq!(parse_size("0B"), Ok((0.0, Some(1.0))));
        for invalid in ["", "Gi", "-3", "inf", "nan", "3x", "1.2.3"] {
            assert!(parse_size(invalid).is_err(), "{invalid}");
        }
    }
}
