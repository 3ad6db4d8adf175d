//! Output of `free`, again and again: with `-s`, or in a loop with `date`.

use std::path::Path;

use super::text::{Head, Lines, quoted};
use super::time::Times;
use super::{Known, Sample, Source, Value, Wrong};
use crate::axis::Axis;

const MIB: f64 = 1024.0 * 1024.0;
/// Lines that say nothing of what is used.
const OTHERS: &[&str] = &["Low:", "High:", "Total:", "Comm:"];

/// Returns whether a file begins as `free` prints, perhaps below a line with the time.
pub fn is(head: &Head) -> bool {
    let mut lines = head.lines().take(3).skip_while(|line| !is_header(line));
    lines.next().is_some() && head.lines().take(4).any(|line| line.starts_with("Mem:"))
}

fn is_header(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("total") && words.next() == Some("used") && words.next() == Some("free")
}

/// The place where the times of samples stand.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    Nowhere,
    Before,
    Behind,
}

/// Output of one call.
#[derive(Clone, Debug, Default)]
struct Block {
    line: u64,
    time: Option<i64>,
    used: Option<(f64, Option<f64>)>,
    shared: Option<(f64, Option<f64>)>,
    swap: Option<(f64, Option<f64>)>,
}

pub struct Free {
    lines: Lines,
    stands: Stands,
    times: Times,
    header: Vec<String>,
    block: Block,
    count: i64,
    /// Bytes in the unit of the numbers, and whether it was said.
    unit: f64,
    said: bool,
}

impl Free {
    pub fn open(path: &Path, head: &Head, unit: Option<f64>) -> Result<Self, Wrong> {
        let first = head.lines().next().unwrap_or_default();
        let behind = || head.lines().any(|line| Times::of("").read(line).is_ok());
        let stands = match is_header(first) {
            false => Stands::Before,
            true if behind() => Stands::Behind,
            true => Stands::Nowhere,
        };
        let memory = head.lines().find(|line| line.starts_with("Mem:")).unwrap_or_default();
        let numbers: Vec<f64> = memory.split_whitespace().skip(1).filter_map(|cell| cell.parse().ok()).collect();
        Ok(Self {
            lines: Lines::open(path, head)?,
            stands,
            times: Times::of(""),
            header: Vec::new(),
            block: Block::default(),
            count: 0,
            unit: unit.unwrap_or_else(|| unit_of(&numbers)),
            // Of `free -h` each number has a unit beside it.
            said: unit.is_some() || numbers.is_empty(),
        })
    }

    /// Takes up a line of the table; the first cell is its name.
    fn row(&mut self, cells: &[String]) -> Result<(), String> {
        let [name, cells @ ..] = cells else { return Ok(()) };
        // The older `free` has a line of its own for what programs use: `-/+ buffers/cache: <used> <free>`.
        if name == "-/+" {
            self.block.used = cells.get(1).map(|cell| size(cell)).transpose()?;
            return Ok(());
        }
        let cell = |column: &str| {
            let at = self.header.iter().position(|name| name == column)?;
            cells.get(at)
        };
        let number = |column: &str| cell(column).map(|cell| size(cell)).transpose();
        let used = number("used")?.ok_or("has no number below `used`")?;
        match name.as_str() {
            "Mem:" => (self.block.used, self.block.shared) = (Some(used), number("shared")?),
            _ => self.block.swap = Some(used),
        }
        Ok(())
    }

    /// The block so far, if it is one, as a sample; the next one begins.
    fn take(&mut self, sample: &mut Sample) -> Result<bool, Wrong> {
        let block = std::mem::take(&mut self.block);
        let Some(used) = block.used else {
            self.block.time = block.time;
            return Ok(false);
        };
        let place = match (self.stands, block.time) {
            (Stands::Nowhere, _) => self.count,
            (_, Some(time)) => time,
            (Stands::Behind, None) => return Ok(false),
            (Stands::Before, None) => {
                return Err(Wrong::at(
                    block.line,
                    "no time stands before this output of `free`, as before those above it",
                ));
            }
        };
        self.count += 1;
        (sample.line, sample.place, sample.restart) = (block.line, place, false);
        sample.values.clear();
        for (series, value) in [Some(used), block.shared, block.swap].into_iter().enumerate() {
            sample.values.extend(value.map(|(number, unit)| Value { series, number, unit }));
        }
        Ok(true)
    }
}

impl Source for Free {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, Wrong> {
        loop {
            let Some(line) = self.lines.next_line()?.map(str::to_owned) else { return self.take(sample) };
            let cells: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let name = cells.first().map_or("", String::as_str);
            if is_header(&line) {
                let done = self.stands != Stands::Before && self.take(sample)?;
                self.header = cells;
                self.block.line = self.lines.number;
                if done {
                    return Ok(true);
                }
            } else if ["Mem:", "Swap:", "-/+"].contains(&name) {
                self.row(&cells).map_err(|why| self.lines.wrong(format!("{} {why}", quoted(&line))))?;
            } else if !OTHERS.contains(&name) {
                let time = self.times.read(&line);
                let time =
                    time.map_err(|_| self.lines.wrong(format!("{} is no line of `free`, and no time", quoted(&line))))?;
                if self.stands == Stands::Behind {
                    self.block.time = Some(time);
                }
                let done = self.take(sample)?;
                if self.stands == Stands::Before {
                    self.block.time = Some(time);
                }
                if done {
                    return Ok(true);
                }
            }
        }
    }

    fn known(&mut self) -> Vec<Known> {
        ["used", "shared", "swap used"].into_iter().map(|name| Known::new(name, Some(self.unit))).collect()
    }

    fn axis(&self) -> Axis {
        if self.stands == Stands::Nowhere { Axis::Samples } else { Axis::Clock }
    }

    fn notes(&self) -> Vec<String> {
        let taken = match self.said {
            true => String::new(),
            false => format!(", in {} judging by the total; `--unit KiB` says another", unit_name(self.unit)),
        };
        let counted = "`free` prints no times: samples are counted; `while date; free; do sleep 1; done` has them";
        let counted = (self.stands == Stands::Nowhere).then(|| counted.to_owned());
        std::iter::once(format!("the output of `free`{taken}")).chain(counted).collect()
    }
}

/// The bytes of the unit of the numbers of a line, of which the first is what the machine has in all. In bytes and KiB
/// they are whole pages, of 4 KiB.
fn unit_of(numbers: &[f64]) -> f64 {
    let pages_of = |size: f64| numbers.iter().all(|number| number % size == 0.0);
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

/// A number, and the bytes of the unit behind it if there is one: `3.6Gi`, `512M`.
fn size(cell: &str) -> Result<(f64, Option<f64>), String> {
    let digits = cell.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number = digits.replace(',', ".").parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite());
    let power = match cell[digits.len()..].chars().next().map(|letter| letter.to_ascii_lowercase()) {
        None => None,
        Some('b') => Some(0),
        Some('k') => Some(1),
        Some('m') => Some(2),
        Some('g') => Some(3),
        Some('t') => Some(4),
        _ => return Err(format!("holds {}, which is no size", quoted(cell))),
    };
    let number = number.ok_or_else(|| format!("holds {}, which is no size", quoted(cell)))?;
    Ok((number, power.map(|power| 1024f64.powi(power))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_follows_from_what_there_is_in_all() {
        for gib in [1u64, 16, 24, 512, 4096] {
            let bytes = [(gib << 30) - 1_235 * 4096, (gib << 29) + 4096, (gib << 27) + 3 * 4096];
            for (shift, unit) in [(0, 1.0), (10, 1024.0), (20, MIB)] {
                let numbers = bytes.map(|bytes| (bytes >> shift) as f64);
                assert_eq!(unit_of(&numbers), unit, "{gib} GiB: {numbers:?}");
            }
        }
        assert_eq!(unit_of(&[24.0, 3.0, 10.0]), 1024.0 * MIB);
        assert_eq!(unit_of(&[24_683_603.0, 3_914_531.0]), 1024.0, "`free --kilo`, nearly");
        assert_eq!(unit_of(&[]), 1024.0 * MIB);
    }

    #[test]
    fn sizes_may_have_a_unit() {
        assert_eq!(size("3662"), Ok((3662.0, None)));
        assert_eq!(size("3.6Gi"), Ok((3.6, Some(1024.0 * MIB))));
        assert_eq!(size("1,5M"), Ok((1.5, Some(MIB))), "as some languages write it");
        assert_eq!(size("0B"), Ok((0.0, Some(1.0))));
        for wrong in ["", "Gi", "-3", "inf", "nan", "3x", "1.2.3"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
