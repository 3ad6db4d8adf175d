//! Parser of the times of samples: numbers, dates and times of day, in milliseconds.

use chrono::{DateTime, NaiveDateTime};

use super::names::words;

const SECOND: f64 = 1e3;
const DAY: i64 = 24 * 3600 * 1000;
/// Upper bound of a time: 285,000 years.
const MILLISECONDS_MAX: f64 = 9e15;

/// Format of the times of a column; the first cell decides.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TimeFormat {
    /// Number, with the milliseconds of its unit.
    Number(f64),
    /// Date with a time of day.
    Date,
    /// `10:11:12`, which starts again at midnight.
    OfDay,
}

/// Parser of the times of one column.
#[derive(Clone, Debug)]
pub struct TimeParser {
    /// Milliseconds of the unit in the column's name.
    named_unit: Option<f64>,
    /// `None` before the first cell.
    format: Option<TimeFormat>,
    /// Dates such as `03/04/2025` have the day first.
    day_first: bool,
    /// They may have the month first as well.
    is_ambiguous: bool,
    /// Milliseconds of the days that have passed since the first time of day.
    ahead: i64,
    last: i64,
}

impl TimeParser {
    /// Parser for a column of this name.
    pub fn of(name: &str) -> Self {
        let words = words(name);
        let first = words.first().filter(|word| ["ns", "us", "µs", "ms"].contains(&word.as_str()));
        let named_unit = words.last().and_then(|word| unit(word)).or_else(|| unit(first?));
        Self { named_unit, format: None, day_first: false, is_ambiguous: false, ahead: 0, last: 0 }
    }

    /// Parser of dates in the order that leaves the shortest way between neighbouring ones.
    pub fn in_order<'a>(self, cells: impl Iterator<Item = &'a str>) -> Self {
        let orders: Vec<[i64; 2]> = cells.filter_map(|cell| Some([date(cell, false)?, date(cell, true)?])).collect();
        let way = |order: usize| -> u64 { orders.windows(2).map(|pair| pair[1][order].abs_diff(pair[0][order])).sum() };
        let is_ambiguous = orders.iter().any(|[month, day]| month != day);
        Self { day_first: way(1) < way(0), is_ambiguous, ..self }
    }

    /// Parses a cell into milliseconds.
    ///
    /// # Errors
    /// Message on a cell that is no time, or has another format than the cells before it.
    pub fn read(&mut self, cell: &str) -> Result<i64, String> {
        let number = cell.parse::<f64>().ok();
        let format = match (self.format, number) {
            (Some(format), _) => format,
            (None, Some(number)) => TimeFormat::Number(self.named_unit.unwrap_or_else(|| unit_by_size(number))),
            (None, None) if is_date(cell) => TimeFormat::Date,
            (None, None) if time_of_day(cell).is_some() => TimeFormat::OfDay,
            (None, None) => return Err("is no time; expected a number, a date or a time of day".into()),
        };
        let time = match format {
            TimeFormat::Number(unit) => {
                let number = number.ok_or("is no number, unlike the times before it")?;
                match number * unit {
                    time if !time.is_finite() => return Err("is not finite".into()),
                    time if time < 0.0 => return Err("is negative".into()),
                    time if time > MILLISECONDS_MAX => return Err("is too large for a time".into()),
                    time => time.round() as i64,
                }
            }
            TimeFormat::Date => date(cell, self.day_first).ok_or("is no date, unlike the times before it")?,
            TimeFormat::OfDay => {
                let time = time_of_day(cell).ok_or("is no time of day, unlike the times before it")?;
                if time + self.ahead < self.last - DAY / 2 {
                    self.ahead += DAY;
                }
                time + self.ahead
            }
        };
        (self.format, self.last) = (Some(format), time);
        Ok(time)
    }

    /// Unit that was inferred from the size of the numbers, or order of dates; `None` where the name or the format implies it.
    pub fn assumption(&self) -> Option<&'static str> {
        match (self.named_unit, self.format) {
            (None, Some(TimeFormat::Number(unit))) => Some(match unit {
                SECOND => "be in seconds",
                1.0 => "be in milliseconds",
                unit if unit > 1e-4 => "be in microseconds",
                _ => "be in nanoseconds",
            }),
            (_, Some(TimeFormat::Date)) if self.is_ambiguous => {
                Some(if self.day_first { "have the day first" } else { "have the month first" })
            }
            _ => None,
        }
    }
}

/// Returns whether a cell is a date with a time of day.
pub fn is_date(cell: &str) -> bool {
    date(cell, false).is_some()
}

/// Returns whether a cell is a date with a time of day, or a time of day.
pub fn is_clock(cell: &str) -> bool {
    cell.contains(':') && (is_date(cell) || time_of_day(cell).is_some())
}

/// Milliseconds of the unit of a time by its size: seconds since 1970 have ten digits in this century, and each smaller
/// unit has three more. Smaller numbers are seconds since the start.
fn unit_by_size(number: f64) -> f64 {
    match number {
        1e17.. => 1e-6,
        1e14.. => 1e-3,
        1e11.. => 1.0,
        _ => SECOND,
    }
}

/// Milliseconds of a unit.
fn unit(word: &str) -> Option<f64> {
    Some(match word {
        "ns" | "nanoseconds" => 1e-6,
        "us" | "µs" | "microseconds" => 1e-3,
        "ms" | "msec" | "millis" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "min" | "mins" | "minute" | "minutes" => 60.0 * SECOND,
        "h" | "hour" | "hours" => 3600.0 * SECOND,
        "day" | "days" => DAY as f64,
        _ => return None,
    })
}

/// Forms of dates, without their zones.
const DATES: &[&str] = &[
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%d %H:%M",
    "%d.%m.%Y %H:%M:%S%.f",
    "%d.%m.%Y %H:%M",
    "%m-%d-%Y %I:%M:%S %p",
    "%m-%d-%Y %H:%M:%S%.f",
    "%m-%d-%Y %I:%M %p",
    "%m-%d-%Y %H:%M",
    "%a %b %e %H:%M:%S %Y",
    "%a %b %e %I:%M:%S %p %Y",
    "%a %e %b %Y %H:%M:%S",
    "%a %e %b %Y %I:%M:%S %p",
];

/// Parses a date with a time of day: ISO 8601, with slashes as in nvidia-smi, with a comma as in Python's `logging`, or
/// as `date` prints it. Without an offset UTC is assumed, since only differences count. Of `03/04/2025` the month is the first number
/// that can be one, or with `day_first` the second.
fn date(cell: &str, day_first: bool) -> Option<i64> {
    let begins = cell.starts_with(|letter: char| letter.is_ascii_digit()) || cell.get(3..4) == Some(" ");
    if cell.len() > 64 || !begins || !cell.contains(':') {
        return None;
    }
    let cell = cell.strip_suffix(['Z', 'z']).unwrap_or(cell).replace('/', "-").replace(',', ".");
    let has_t = matches!(cell.get(10..11), Some("T" | "t"));
    let text = if has_t { format!("{} {}", &cell[..10], &cell[11..]) } else { cell };
    let with_offset = ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f %#z"];
    if let Some(time) = with_offset.iter().find_map(|format| DateTime::parse_from_str(&text, format).ok()) {
        return Some(time.timestamp_millis());
    }
    let is_zone = |word: &&str| word.bytes().all(|byte| byte.is_ascii_uppercase()) && !["AM", "PM"].contains(word);
    let text = text.split_whitespace().filter(|word| !is_zone(word)).collect::<Vec<&str>>().join(" ");
    // `13-12-22` is no year 13.
    let read = |text: &str| {
        let read = |format: &&str| NaiveDateTime::parse_from_str(text, format).ok().map(|time| time.and_utc());
        DATES.iter().filter_map(read).find(|time| time.timestamp() > 0).map(|time| time.timestamp_millis())
    };
    let read_swapped = || match text.splitn(3, '-').collect::<Vec<&str>>()[..] {
        [month, day, rest] => read(&format!("{day}-{month}-{rest}")),
        _ => None,
    };
    let first = if day_first { read_swapped() } else { None };
    first.or_else(|| read(&text)).or_else(read_swapped)
}

/// Parses a time of day, `10:11:12.5`; more than 24 hours are hours since the start.
fn time_of_day(cell: &str) -> Option<i64> {
    let (time, half) = match cell.rsplit_once(' ') {
        Some((time, "AM")) => (time, Some(0)),
        Some((time, "PM")) => (time, Some(12)),
        _ => (cell, None),
    };
    let [hours, minutes, seconds] = time.split(':').collect::<Vec<&str>>()[..] else { return None };
    let hours = hours.parse::<u16>().ok().filter(|_| hours.len() < 6)?;
    let hours = half.map_or(hours, |half| hours % 12 + half);
    let minutes = minutes.parse::<u8>().ok().filter(|minutes| *minutes < 60)?;
    let seconds = seconds.parse::<f64>().ok().filter(|seconds| (0.0..61.0).contains(seconds))?;
    Some((i64::from(hours) * 60 + i64::from(minutes)) * 60_000 + (seconds * SECOND).round() as i64)
}

/// Returns whether a column of this name holds the times of the rows: `timestamp`, `Wall Time`, `elapsed_s`; but not
/// `step_time_ms`, a duration.
pub fn is_time(name: &str) -> bool {
    const TIMES: &[&str] =
        &["timestamp", "time", "datetime", "date", "elapsed", "ts", "runtime", "uptime", "seconds", "secs", "sec"];
    const QUALIFIERS: &[&str] =
        &["wall", "unix", "epoch", "relative", "utc", "local", "stamp", "since", "start", "clock"];
    let words = words(name);
    words.iter().any(|word| TIMES.contains(&word.as_str()))
        && words
            .iter()
            .all(|word| TIMES.contains(&word.as_str()) || QUALIFIERS.contains(&word.as_str()) || unit(word).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, cells: &[&str]) -> Vec<Result<i64, String>> {
        let mut times = TimeParser::of(name);
        cells.iter().map(|cell| times.read(cell)).collect()
    }

    /// Milliseconds between two cells.
    fn between(name: &str, first: &str, last: &str) -> i64 {
        let read = read(name, &[first, last]);
        read[1].clone().unwrap() - read[0].clone().unwrap()
    }

    #[test]
    fn the_unit_of_numbers_follows_from_their_name_or_size() {
        assert_eq!(between("elapsed", "0.5", "2"), 1500);
        assert_eq!(between("time_ms", "500", "2000"), 1500);
        assert_eq!(between("ms_elapsed", "500", "2000"), 1500);
        assert_eq!(between("minutes", "1", "2.5"), 90_000);
        assert_eq!(between("timestamp", "1764189075", "1764189076.5"), 1500);
        assert_eq!(between("ts", "1764189075000", "1764189076500"), 1500);
        assert_eq!(between("ts", "1764189075000000", "1764189076500000"), 1500);
        assert_eq!(between("ts", "1764189075000000000", "1764189076500000000"), 1500);
        let mut times = TimeParser::of("ts");
        assert_eq!(
            (times.read("1764189075000"), times.assumption()),
            (Ok(1_764_189_075_000), Some("be in milliseconds"))
        );
    }

    #[test]
    fn dates_are_parsed_in_the_formats_of_common_tools() {
        let second = 1_704_190_272_000;
        for cell in [
            "2024-01-02T10:11:12Z",
            "2024-01-02 10:11:12",
            "2024-01-02 10:11:12.000",
            "2024-01-02 10:11:12,000",
            "2024/01/02 10:11:12.000",
            "2024-01-02T12:11:12+02:00",
            "2024-01-02 10:11:12 +0000",
            "2024-01-02 10:11:12 UTC",
            "2024-01-02 10:11:12 CEST",
            "02.01.2024 10:11:12",
            "01/02/2024 10:11:12.000",
            "Tue Jan  2 10:11:12 UTC 2024",
            "Tue Jan  2 10:11:12 2024",
            "Tue Jan  2 10:11:12 AM UTC 2024",
            "Tue 02 Jan 2024 10:11:12 AM UTC",
        ] {
            assert_eq!(TimeParser::of("time").read(cell), Ok(second), "{cell}");
        }
        assert_eq!(between("", "2024/01/02 10:11:12.345", "2024/01/02 10:11:13.350"), 1005);
    }

    #[test]
    fn the_order_of_day_and_month_is_the_one_with_the_shortest_way() {
        let hours = |cells: &[&str]| {
            let mut times = TimeParser::of("time").in_order(cells.iter().copied());
            let read: Vec<i64> = cells.iter().map(|cell| times.read(cell).unwrap()).collect();
            (read.windows(2).map(|pair| (pair[1] - pair[0]) / 3_600_000).collect::<Vec<i64>>(), times.assumption())
        };
        let day = Some("have the day first");
        assert_eq!(hours(&["03/04/2025 23:00:00", "04/04/2025 00:00:00"]), (vec![1], day));
        assert_eq!(hours(&["30/04/2025 11:00:00 PM", "01/05/2025 12:00:00 AM"]), (vec![1], day));
        assert_eq!(hours(&["04/30/2025 23:00", "05/01/2025 00:00"]), (vec![1], Some("have the month first")));
        assert_eq!(hours(&["2025-04-30 23:00", "2025-05-01 00:00"]), (vec![1], None));
    }

    #[test]
    fn a_time_of_day_continues_after_midnight() {
        assert_eq!(between("time", "23:59:59.5", "00:00:01"), 1500);
        assert_eq!(between("elapsed", "00:00:00", "31:00:00"), 31 * 3_600_000);
        assert_eq!(between("time", "10:00:05", "10:00:00"), -5000, "five seconds earlier is not the next day");
        assert_eq!(between("time", "11:59:00 AM", "12:00:00 PM"), 60_000);
    }

    #[test]
    fn invalid_times_are_errors() {
        let date = "2024-01-02 10:11:12";
        let columns: [&[&str]; 8] =
            [&["-3"], &["inf"], &["nan"], &["1e30"], &["soon"], &["1", date], &[date, "1"], &["10:11:12", "1"]];
        let messages =
            columns.map(|cells| format!("{} {}", cells.join(", "), read("time", cells).pop().unwrap().unwrap_err()));
        insta::assert_snapshot!(messages.join("\n"));
        for cell in ["1:2", "1:2:3:4", "::", "99999999999:00:00", "10:61:00", "10:00:-1"] {
            assert!(TimeParser::of("time").read(cell).is_err(), "{cell}");
        }
    }

    #[test]
    fn columns_of_times_are_recognised_by_name_and_durations_are_not() {
        for name in ["time", "timestamp", "Wall Time", "elapsed_s", "elapsed [s]", "time_ms", "_timestamp", "unixTime"]
        {
            assert!(is_time(name), "{name}");
        }
        for name in ["step_time_ms", "gpu_time", "time_per_step", "rss", "ms", "epoch", "data time"] {
            assert!(!is_time(name), "{name}");
        }
    }
}
