//! Readings of tables and logs as people keep and paste them: units, columns, processes, and what is refused.
//!
//! The cases in `tuned` were used while the readers were written; those in `judged` were written before and run after.
#![cfg(all(feature = "table", feature = "serde"))]

mod judged;
mod tuned;

use xrun_verdict::table::{TableError, TableOptions, TableVerdict, judge_table};
use xrun_verdict::{UnitSource, VerdictWord};

const MIB: f64 = 1024.0 * 1024.0;

/// Text of a case and the options it is read with.
struct Case {
    name: &'static str,
    text: String,
    options: TableOptions,
    expected: Expected,
}

/// Outcome that a case must have.
enum Expected {
    /// Series by a part of the name; all others are bounded, and the columns of the second list are not judged.
    Judged(Vec<Series>, Vec<&'static str>),
    /// An error, in this line where it has one.
    Refused(Option<u64>),
}

/// Series that must be found.
struct Series {
    name: &'static str,
    grows: bool,
    unit: Unit,
}

/// Unit and newest value of a series.
enum Unit {
    /// Bytes, from a header, cells, a tool's format or an option.
    Bytes(f64),
    /// Bytes, where the sentence says that they are assumed.
    Assumed(f64),
    Percent,
    Unknown,
}

fn grows(name: &'static str, unit: Unit) -> Series {
    Series { name, grows: true, unit }
}

fn rests(name: &'static str, unit: Unit) -> Series {
    Series { name, grows: false, unit }
}

fn case(name: &'static str, text: String, series: Vec<Series>, not_judged: Vec<&'static str>) -> Case {
    Case { name, text, options: TableOptions::default(), expected: Expected::Judged(series, not_judged) }
}

fn refused(name: &'static str, text: String, line: Option<u64>) -> Case {
    Case { name, text, options: TableOptions::default(), expected: Expected::Refused(line) }
}

/// Lines of `count` rows after a header.
fn lines(header: &str, count: u64, row: impl Fn(u64) -> String) -> String {
    let header = if header.is_empty() { String::new() } else { format!("{header}\n") };
    (0..count).fold(header, |text, at| text + &row(at) + "\n")
}

/// Level of a series at rest: it moves a little, and does not grow.
fn level(at: u64) -> u64 {
    1000 + [0, 2, 1, 3, 1][at as usize % 5]
}

/// `10:04:35` of a second of the day.
fn time(second: u64) -> String {
    format!("{:02}:{:02}:{:02}", 10 + second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
fn read(case: &Case) -> Result<TableVerdict, TableError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, case.text.as_bytes()).unwrap();
    judge_table(file.path(), &case.options)
}

/// Difference between what a case expects and what was read; `None` where there is none.
fn problem(case: &Case) -> Option<String> {
    let read = read(case);
    match (&case.expected, read) {
        (Expected::Refused(line), Err(error)) => {
            let text = error.to_string();
            let named = line.is_none_or(|line| text.contains(&format!("line {line}:")));
            (!named).then(|| format!("another line: {text}"))
        }
        (Expected::Refused(_), Ok(read)) => Some(format!("not refused: {}", read.verdict.message)),
        (Expected::Judged(..), Err(error)) => Some(format!("refused: {error}")),
        (Expected::Judged(series, not_judged), Ok(read)) => {
            let mut problems: Vec<String> = Vec::new();
            let verdict = &read.verdict;
            for expected in series {
                let Some(found) = verdict.series.iter().find(|one| one.name.contains(expected.name)) else {
                    let names: Vec<&str> = verdict.series.iter().map(|one| one.name.as_str()).collect();
                    problems.push(format!("no series {} in {names:?}", expected.name));
                    continue;
                };
                if (found.findings.verdict == VerdictWord::Growing) != expected.grows {
                    problems.push(format!("{} is {:?}", found.name, found.findings.verdict));
                }
                let known = !matches!(found.unit_source, Some(UnitSource::Assumed | UnitSource::Unknown));
                let is_right = match expected.unit {
                    Unit::Bytes(last) => known && found.unit == "bytes" && (found.last / last - 1.0).abs() < 1e-3,
                    Unit::Assumed(last) => {
                        found.unit_source == Some(UnitSource::Assumed) && (found.last / last - 1.0).abs() < 1e-3
                    }
                    Unit::Percent => found.unit == "percent",
                    Unit::Unknown => found.unit == "unknown",
                };
                if !is_right {
                    let (last, unit, source) = (found.last, &found.unit, found.unit_source);
                    problems.push(format!("{} is {last} {unit} ({source:?})", found.name));
                }
            }
            let any = series.iter().any(|one| one.grows);
            if (verdict.verdict == VerdictWord::Growing) != any {
                problems.push(format!("verdict {:?}: {}", verdict.verdict, verdict.message));
            }
            for column in not_judged {
                if !verdict.not_judged.iter().any(|one| one.column == *column) {
                    problems.push(format!("`{column}` is not in {:?}", verdict.not_judged));
                }
                if verdict.series.iter().any(|one| one.name == *column) {
                    problems.push(format!("`{column}` is judged"));
                }
            }
            (!problems.is_empty()).then(|| problems.join("; "))
        }
    }
}

/// Asserts that all cases are read as they must be; lists those that are not.
fn assert_read(cases: &[Case]) {
    let wrong: Vec<String> =
        cases.iter().filter_map(|case| Some(format!("{}: {}", case.name, problem(case)?))).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
