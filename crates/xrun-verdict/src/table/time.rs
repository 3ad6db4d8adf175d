//! Times of samples: numbers since some start, dates and times of day, to milliseconds.

use chrono::{DateTime, NaiveDateTime};

use super::names::words;

const SECOND: f64 = 1e3;
const DAY: i64 = 24 * 3600 * 1000;
/// Larger times are none: 285,000 years.
const MILLISECONDS_MAX: f64 = 9e15;

/// The form in which the times of a column are written; the first cell decides.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Written {
    /// A number in a unit of so many milliseconds.
    Number(f64),
    Date,
    /// `10:11:12`, which begins anew at midnight.
    OfDay,
}

/// Reads the times of one column.
#[derive(Clone, Debug)]
pub struct Times {
    /// Milliseconds of the unit that the column's name says.
    named: Option<f64>,
    written: Option<Written>,
    days: i64,
    last: i64,
}

impl Times {
    /// The times of a column of this name.
    pub fn of(name: &str) -> Self {
        Self { named: words(name).last().and_then(|word| unit(word)), written: None, days: 0, last: 0 }
    }

    /// The milliseconds of a cell; an error says what is wrong with it.
    pub fn read(&mut self, cell: &str) -> Result<i64, String> {
        let number = cell.parse::<f64>().ok();
        let written = match (self.written, number) {
            (Some(written), _) => written,
            (None, Some(number)) => Written::Number(self.named.unwrap_or_else(|| by_size(number))),
            (None, None) if date(cell).is_some() => Written::Date,
            (None, None) if of_day(cell).is_some() => Written::OfDay,
            (None, None) => return Err("is no time: a number, a date or a time of day was expected".into()),
        };
        let time = match written {
            Written::Number(unit) => {
                let number = number.ok_or("is no number, as the times before it are")?;
                match number * unit {
                    time if !time.is_finite() => return Err("is not finite".into()),
                    time if time < 0.0 => return Err("is negative; times count from 0 on".into()),
                    time if time > MILLISECONDS_MAX => return Err("is too large for a time".into()),
                    time => time.round() as i64,
                }
            }
            Written::Date => date(cell).ok_or("is no date, as the times before it are")?,
            Written::OfDay => {
                let time = of_day(cell).ok_or("is no time of day, as the times before it are")?;
                if time + self.days < self.last - DAY / 2 {
                    self.days += DAY;
                }
                time + self.days
            }
        };
        (self.written, self.last) = (Some(written), time);
        Ok(time)
    }

    /// A note on what the numbers were taken for, where neither the name nor the cells say it.
    pub fn taken_for(&self) -> Option<&'static str> {
        match (self.named, self.written) {
            (None, Some(Written::Number(unit))) => Some(match unit {
                SECOND => "seconds",
                1.0 => "milliseconds",
                unit if unit > 1e-4 => "microseconds",
                _ => "nanoseconds",
            }),
            _ => None,
        }
    }
}

/// Seconds since 1970 have ten digits in this century; each unit below has three more. Less is time since the start.
fn by_size(number: f64) -> f64 {
    match number {
        1e17.. => 1e-6,
        1e14.. => 1e-3,
        1e11.. => 1.0,
        _ => SECOND,
    }
}

/// The milliseconds of a unit.
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

/// A date with a time of day: ISO 8601, with slashes as nvidia-smi writes it, with a comma as Python's `logging` does,
/// or as `date` prints it. Without an offset it is taken for UTC: only differences count.
fn date(cell: &str) -> Option<i64> {
    if cell.len() > 64 || !cell.contains(':') {
        return None;
    }
    let cell = cell.strip_suffix(['Z', 'z']).unwrap_or(cell);
    let plain: String = cell
        .char_indices()
        .map(|(at, letter)| match letter {
            '/' => '-',
            ',' => '.',
            'T' | 't' if at == 10 => ' ',
            other => other,
        })
        .collect();
    let naive = |text: &str, format| NaiveDateTime::parse_from_str(text, format).ok();
    let with_offset = ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f %#z"];
    if let Some(time) = with_offset.iter().find_map(|format| DateTime::parse_from_str(&plain, format).ok()) {
        return Some(time.timestamp_millis());
    }
    // Behind a date there may be the name of a zone.
    let zone = plain.rsplit_once(' ').filter(|(_, zone)| zone.chars().all(char::is_alphabetic));
    let unzoned = zone.map_or(plain.as_str(), |(before, _)| before);
    let iso = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"].iter().find_map(|format| naive(unzoned, format));
    let spoken = || {
        let formats = [
            "%a %b %e %H:%M:%S %Z %Y",
            "%a %b %e %H:%M:%S %Y",
            "%a %b %e %I:%M:%S %p %Z %Y",
            "%a %e %b %Y %I:%M:%S %p %Z",
            "%a %e %b %Y %H:%M:%S %Z",
        ];
        formats.iter().find_map(|format| naive(cell, format))
    };
    Some(iso.or_else(spoken)?.and_utc().timestamp_millis())
}

/// `10:11:12.5`; more hours than a day has are hours since the start.
fn of_day(cell: &str) -> Option<i64> {
    let mut parts = cell.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str| text.chars().all(|letter| letter.is_ascii_digit());
    if parts.next().is_some()
        || !digits(hours)
        || !digits(minutes)
        || hours.len() > 5
        || seconds.starts_with(['-', '+'])
    {
        return None;
    }
    let seconds = seconds.parse::<f64>().ok().filter(|seconds| (0.0..61.0).contains(seconds))?;
    let minutes = minutes.parse::<i64>().ok().filter(|minutes| *minutes < 60)?;
    Some((hours.parse::<i64>().ok()? * 60 + minutes) * 60_000 + (seconds * SECOND).round() as i64)
}

/// Returns whether the name of a column says that it is when the rows were taken: `timestamp`, `Wall Time`,
/// `elapsed_s`. Not `step_time_ms`, which is how long something took.
pub fn is_time(name: &str) -> bool {
    const TIMES: &[&str] =
        &["timestamp", "time", "datetime", "date", "elapsed", "ts", "runtime", "uptime", "seconds", "secs", "sec"];
    const BESIDE: &[&str] = &["wall", "unix", "epoch", "relative", "utc", "local", "stamp", "since", "start", "clock"];
    let words = words(name);
    words.iter().any(|word| TIMES.contains(&word.as_str()))
        && words
            .iter()
            .all(|word| TIMES.contains(&word.as_str()) || BESIDE.contains(&word.as_str()) || unit(word).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, cells: &[&str]) -> Vec<Result<i64, String>> {
        let mut times = Times::of(name);
        cells.iter().map(|cell| times.read(cell)).collect()
    }

    /// The milliseconds between two cells.
    fn between(name: &str, first: &str, last: &str) -> i64 {
        let read = read(name, &[first, last]);
        read[1].clone().unwrap() - read[0].clone().unwrap()
    }

    #[test]
    fn numbers_have_the_unit_of_their_name_or_of_their_size() {
        assert_eq!(between("elapsed", "0.5", "2"), 1500);
        assert_eq!(between("time_ms", "500", "2000"), 1500);
        assert_eq!(between("minutes", "1", "2.5"), 90_000);
        assert_eq!(between("timestamp", "1764189075", "1764189076.5"), 1500);
        assert_eq!(between("ts", "1764189075000", "1764189076500"), 1500);
        assert_eq!(between("ts", "1764189075000000", "1764189076500000"), 1500);
        assert_eq!(between("ts", "1764189075000000000", "1764189076500000000"), 1500);
        let mut times = Times::of("ts");
        assert_eq!((times.read("1764189075000"), times.taken_for()), (Ok(1_764_189_075_000), Some("milliseconds")));
    }

    #[test]
    fn dates_are_read_as_tools_write_them() {
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
            "Tue Jan  2 10:11:12 UTC 2024",
            "Tue Jan  2 10:11:12 2024",
            "Tue Jan  2 10:11:12 AM UTC 2024",
            "Tue 02 Jan 2024 10:11:12 AM UTC",
        ] {
            assert_eq!(Times::of("time").read(cell), Ok(second), "{cell}");
        }
        assert_eq!(between("", "2024/01/02 10:11:12.345", "2024/01/02 10:11:13.350"), 1005);
    }

    #[test]
    fn a_time_of_day_goes_on_at_midnight_and_hours_may_be_many() {
        assert_eq!(between("time", "23:59:59.5", "00:00:01"), 1500);
        assert_eq!(between("elapsed", "00:00:00", "31:00:00"), 31 * 3_600_000);
        assert_eq!(between("time", "10:00:05", "10:00:00"), -5000, "five seconds back are no new day");
    }

    #[test]
    fn what_is_no_time_is_said() {
        let said = |cells: &[&str]| read("time", cells).pop().unwrap().unwrap_err();
        assert!(said(&["-3"]).contains("negative"));
        assert!(said(&["inf"]).contains("finite") && said(&["nan"]).contains("finite"));
        assert!(said(&["1e30"]).contains("too large"));
        assert!(said(&["soon"]).contains("is no time"));
        assert!(said(&["1", "2024-01-02 10:11:12"]).contains("no number, as the times before"));
        assert!(said(&["2024-01-02 10:11:12", "1"]).contains("no date, as the times before"));
        for cell in ["1:2", "1:2:3:4", "::", "99999999999:00:00", "10:61:00", "10:00:-1"] {
            assert!(Times::of("time").read(cell).is_err(), "{cell}");
        }
    }

    #[test]
    fn a_name_says_that_a_column_is_when_and_not_how_long() {
        for name in ["time", "timestamp", "Wall Time", "elapsed_s", "elapsed [s]", "time_ms", "_timestamp", "unixTime"]
        {
            assert!(is_time(name), "{name}");
        }
        for name in ["step_time_ms", "gpu_time", "time_per_step", "rss", "ms", "epoch", "data time"] {
            assert!(!is_time(name), "{name}");
        }
    }
}
